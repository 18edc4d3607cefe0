// A Python file with the arguments of torch.nn.parallel.DistributedDataParallel (docs/export.md).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.hpp"
#include "io/export/export_writers.hpp"
#include "io/export/gradient_buckets.hpp"

namespace weft {
namespace {

constexpr std::int64_t kMiB = 1024 * 1024;
constexpr std::int64_t kFirstBucket = kMiB, kBucket = 25 * kMiB;  // DDP's defaults

using Buckets = std::vector<std::vector<std::int64_t>>;  // bytes of the gradients of each

Buckets bytes_of_buckets(const Plan& plan) {
  Buckets buckets;
  for (const GradientBucket& bucket : gradient_buckets(plan, 0)) {
    std::vector<std::int64_t>& sizes = buckets.emplace_back();
    for (const Bytes bytes : bucket.bytes) sizes.push_back(bytes.value);
  }
  return buckets;
}

bool cut_by_defaults(const Buckets& buckets) {
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const std::int64_t limit = i == 0 ? kFirstBucket : kBucket;
    if (!limits_of_bucket(buckets[i], i + 1 == buckets.size()).allow(limit)) return false;
  }
  return true;
}

// DDP multiplies by 2^20 and rounds down, so that a whole number of bytes comes out.
std::string mebibytes(std::int64_t bytes) {
  return fmt::format("{} / 2**20", bytes);
}

std::vector<std::string> limits_of_each(const Buckets& buckets) {
  std::vector<std::string> limits;
  for (const std::vector<std::int64_t>& bucket : buckets) {
    limits.push_back(mebibytes(*limits_of_bucket(bucket, false).at_most));
  }
  return limits;
}

void write_buckets(ExportSheet& sheet) {
  const Buckets buckets = bytes_of_buckets(sheet.plan());
  sheet.line("# The buckets that follow: bytes of their gradients, in the order in which gradients arrive.");
  sheet.line("BUCKETS = [");
  for (const std::vector<std::int64_t>& bucket : buckets) sheet.line(fmt::format("    {},", bucket));
  sheet.line("]");
  const BucketLimits limits = limits_of_all(buckets);
  sheet.carries({Feature::gradient_buckets});
  if (buckets.empty() || cut_by_defaults(buckets)) {
    sheet.line("ARGUMENTS = {}  # DDP's own: a first bucket of 1 MiB, then 25 MiB");
    sheet.line("BUCKET_CAP_MB_LIST = []");
  } else if (limits.possible()) {
    sheet.line(
        fmt::format("ARGUMENTS = {{\"bucket_cap_mb\": {}}}", mebibytes(limits.at_most.value_or(limits.above + 1))));
    sheet.line("BUCKET_CAP_MB_LIST = []");
  } else {
    std::int64_t largest = 0;
    for (const auto& bucket : buckets) largest = std::max(largest, *limits_of_bucket(bucket, false).at_most);
    sheet.line(fmt::format("ARGUMENTS = {{\"bucket_cap_mb\": {}}}", mebibytes(largest)));
    sheet.line("# For a PyTorch that takes the list (2.13).");
    sheet.line(fmt::format("BUCKET_CAP_MB_LIST = [{}]", fmt::join(limits_of_each(buckets), ", ")));
    sheet.warn("a PyTorch without bucket_cap_mb_list has buckets of the largest size instead");
  }
}

constexpr std::string_view kFunctions = R"py(

def wrap(module, **others):
    """Returns the module in DistributedDataParallel with the buckets of the plan."""
    arguments = dict(ARGUMENTS)
    known = inspect.signature(DistributedDataParallel.__init__).parameters
    if BUCKET_CAP_MB_LIST and "bucket_cap_mb_list" in known:
        arguments = {"bucket_cap_mb_list": BUCKET_CAP_MB_LIST}
    return DistributedDataParallel(module, **arguments, **others)


def micro_batch(ddp, index):
    """Context of forward and backward of a micro-batch: gradients are reduced with the last one."""
    return contextlib.nullcontext() if index + 1 == MICRO_BATCHES else ddp.no_sync())py";

}  // namespace

void write_ddp_arguments(ExportSheet& sheet) {
  const Layout& layout = sheet.layout();
  if (layout.zero >= 2) fail("--to ddp: the plan has --zero {}; --to fsdp2 writes such plans", layout.zero);
  sheet.line("import contextlib");
  sheet.line("import inspect\n");
  sheet.line("from torch.nn.parallel import DistributedDataParallel\n");
  sheet.line(fmt::format("MICRO_BATCHES = {}", layout.micro_batches()));
  write_buckets(sheet);
  sheet.line(kFunctions);
  sheet.carries({Feature::data_parallel, Feature::reductions_beside_compute, Feature::queues});
  sheet.leaves_out(Feature::batches,
                   fmt::format("the job calls {} micro-batches itself, see micro_batch()", layout.micro_batches()));
  if (layout.zero == 1) sheet.leaves_out(Feature::zero, "wrap the optimizer in ZeroRedundancyOptimizer");
  if (layout.pp > 1) {
    sheet.warn("the buckets are those of the first pipeline stage; later stages have gradients of their own");
  }
  if (layout.grad_dtype != layout.precision) {
    sheet.warn(
        fmt::format("sizes count gradients in {}: the module's parameters have that type and autocast computes in {}",
                    name_of(layout.grad_dtype), name_of(layout.precision)));
    sheet.carries({Feature::gradient_type});
  }
}

}  // namespace weft
