// A Python file with settings of PyTorch's Inductor for graphs with collectives (docs/export.md).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "io/export/export_writers.hpp"

namespace weft {
namespace {

// The sizes of a role's transfers on the first rank class in the order of issue, each transfer once, in whole MiB.
std::vector<std::int64_t> bucket_mebibytes(const Plan& plan, Role role) {
  std::vector<std::int64_t> sizes;
  std::set<OpId> seen;
  const ClassPlan& first = plan.classes.front();
  for (const IssueSlot& slot : first.order) {
    for (const OpId id : operations_of(first, slot)) {
      const Operation& op = plan.graph.op(id);
      if (op.role != role || !op.is_transfer() || !seen.insert(id).second) continue;
      constexpr std::int64_t kMiB = 1024 * 1024;
      sizes.push_back(std::max<std::int64_t>(1, (op.communication->bytes.value + kMiB - 1) / kMiB));
    }
  }
  return sizes;
}

// Gigabytes a second of the links inside nodes, or of the outermost ones.
double bandwidth(const ClusterSpec& cluster, bool in_node) {
  const auto joins_node = [](const LevelSpec& level) { return level.joins == Domain::node; };
  const auto found = std::find_if(cluster.levels.begin(), cluster.levels.end(), joins_node);
  const LevelSpec& level = in_node && found != cluster.levels.end() ? *found : cluster.levels.back();
  return level.bandwidth.bytes_per_second / 1e9;
}

constexpr std::string_view kFunctions = R"py(

def size_of(sizes):
    """MiB of the bucket with an index, as Inductor asks for it; the last size goes for all behind it."""
    return lambda index: sizes[min(index, len(sizes) - 1)]


def settings():
    """The settings by name. Those that this PyTorch does not have are left out."""
    wanted = {
        "reorder_for_compute_comm_overlap": OVERLAP,
        "intra_node_bw": INTRA_NODE_BW,
        "inter_node_bw": INTER_NODE_BW,
    }
    if GATHERS:
        wanted["bucket_all_gathers_fx"] = "all"
        wanted["bucket_all_gathers_fx_bucket_size_determinator"] = size_of(GATHERS)
    if REDUCTIONS:
        wanted["bucket_reduce_scatters_fx"] = "all"
        wanted["bucket_reduce_scatters_fx_bucket_size_determinator"] = size_of(REDUCTIONS)
    return {name: value for name, value in wanted.items() if hasattr(torch._inductor.config, name)}


def compile(model, **others):
    """torch.compile with these settings."""
    return torch.compile(model, options=settings(), **others))py";

}  // namespace

void write_inductor_settings(ExportSheet& sheet) {
  if (sheet.layout().zero < 2) {
    fail("--to inductor: the plan has --zero {}; Inductor sees the collectives of --zero 2 and 3", sheet.layout().zero);
  }
  const TransferFacts& facts = sheet.facts();
  const bool overlaps = facts.reductions_beside_compute || facts.gathers_beside_compute;
  sheet.line("import torch");
  sheet.line("import torch._inductor.config\n");
  sheet.line(fmt::format("OVERLAP = {}", overlaps ? "True" : "False"));
  sheet.line("# Buckets in MiB, in the order of issue.");
  sheet.line(fmt::format("GATHERS = {}", bucket_mebibytes(sheet.plan(), Role::param_gather)));
  sheet.line(fmt::format("REDUCTIONS = {}", bucket_mebibytes(sheet.plan(), Role::grad_reduce)));
  sheet.line("# GB/s of one direction, by which Inductor estimates how long collectives take.");
  sheet.line(fmt::format("INTRA_NODE_BW = {}", bandwidth(sheet.plan().cluster, true)));
  sheet.line(fmt::format("INTER_NODE_BW = {}", bandwidth(sheet.plan().cluster, false)));
  sheet.line(kFunctions);
  sheet.carries({Feature::reductions_beside_compute, Feature::gathers_beside_compute, Feature::gradient_buckets});
  sheet.leaves_out(Feature::prefetch, "Inductor moves gathers as far ahead as memory allows");
  sheet.leaves_out(Feature::operation_order, "Inductor orders operations by its own estimates");
}

}  // namespace weft
