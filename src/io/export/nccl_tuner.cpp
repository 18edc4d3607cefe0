// The configuration file of NCCL's example tuner plugin (docs/export.md):
// collective,min bytes,max bytes,algorithm,protocol,channels,nodes,ranks.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "base/error.hpp"
#include "cost/movers.hpp"
#include "io/export/export_writers.hpp"
#include "io/export/transfer_kinds.hpp"

namespace weft {
namespace {

// Below it NCCL's protocols for short messages are faster than the one that is written.
constexpr Bytes kLeastForSimple{1 << 20};

std::string_view tuner_name(Collective collective) {
  switch (collective) {
    case Collective::broadcast:
      return "broadcast";
    case Collective::reduce:
      return "reduce";
    case Collective::all_gather:
      return "allgather";
    case Collective::reduce_scatter:
      return "reducescatter";
    case Collective::all_reduce:
      return "allreduce";
    default:
      return "";
  }
}

struct Choice {
  Bytes bytes;
  std::string_view algorithm;
};

// What the plugin calls it; empty where NCCL has none. An all_reduce whose sums are made in switches is NVLS, and
// between nodes NVLS in each of them and a tree of nodes.
std::string_view algorithm_name(const CommunicatorShape& shape, const TransferAlgorithm& named) {
  if (named.algorithm == Algorithm::ring || named.algorithm == Algorithm::tree) return name_of(named.algorithm);
  if (!named.in_switches || shape.collective != Collective::all_reduce) return "";
  return shape.nodes == 1 ? "nvls" : "nvls_tree";
}

// The sizes at which the plan names one algorithm that NCCL has, ascending.
std::vector<Choice> choices_of(const CommunicatorShape& shape,
                               const std::map<Bytes, std::set<TransferAlgorithm>>& by_size) {
  std::vector<Choice> choices;
  for (const auto& [bytes, algorithms] : by_size) {
    const std::string_view name = algorithm_name(shape, *algorithms.begin());
    if (bytes >= kLeastForSimple && algorithms.size() == 1 && !name.empty()) choices.push_back({bytes, name});
  }
  return choices;
}

// NICs of a node that so many of its ranks use.
std::int64_t network_links(const ClusterSpec& cluster, std::int64_t ranks) {
  for (const LevelSpec& level : cluster.levels) {
    if (level.joins > Domain::node) return std::max<std::int64_t>(1, ranks / level.shared_by);
  }
  return 1;
}

// The plugin takes a number for every row: with -1, which its own documentation calls NCCL's default, it leaves NCCL
// one channel. So the row says what NCCL itself takes: inside a node its number of thread blocks for the device,
// between nodes a ring for every NIC, each of them twice (graph/connect.cc).
std::int64_t channels_of(const Plan& plan, const CommunicatorShape& shape) {
  if (plan.thread_blocks > 0) return plan.thread_blocks;
  constexpr std::int64_t kRingsOfALink = 2;
  const auto generation = gpu_generation(plan.cluster.device.name);
  if (!generation) {
    fail(
        "--to nccl-tuner: how many channels NCCL takes on a {} is not known, and the plugin needs a number; plan with "
        "a "
        "--profile that has library_thread_blocks",
        plan.cluster.device.name);
  }
  if (shape.nodes == 1) return library_blocks(*generation);
  return std::min<std::int64_t>(kMaxThreadBlocks,
                                kRingsOfALink * network_links(plan.cluster, shape.ranks / shape.nodes));
}

// Sizes between two of the plan belong to the nearer one.
std::int64_t write_rows(ExportSheet& sheet, const CommunicatorShape& shape, const std::vector<Choice>& choices) {
  if (choices.empty()) return 0;
  const std::int64_t channels = channels_of(sheet.plan(), shape);
  std::int64_t rows = 0;
  std::uint64_t from = static_cast<std::uint64_t>(kLeastForSimple.value);
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const bool last = i + 1 == choices.size();
    if (!last && choices[i + 1].algorithm == choices[i].algorithm) continue;
    const std::uint64_t to =
        last ? std::numeric_limits<std::uint64_t>::max()
             : static_cast<std::uint64_t>((choices[i].bytes.value + choices[i + 1].bytes.value) / 2);
    sheet.line(fmt::format("{},{},{},{},simple,{},{},{}", tuner_name(shape.collective), from, to, choices[i].algorithm,
                           channels, shape.nodes, shape.ranks));
    from = to + 1;
    ++rows;
  }
  return rows;
}

}  // namespace

void write_nccl_tuner(ExportSheet& sheet) {
  std::int64_t rows = 0;
  bool all = true;
  for (const auto& [shape, by_size] : transfer_algorithms(sheet.plan())) {
    if (tuner_name(shape.collective).empty()) {
      all = false;
      continue;
    }
    const std::vector<Choice> choices = choices_of(shape, by_size);
    all &= choices.size() == by_size.size();
    rows += write_rows(sheet, shape, choices);
  }
  if (rows == 0)
    fail("--to nccl-tuner: the plan has no collective of 1 MiB or more that NCCL's ring, tree or NVLS carries out");
  sheet.carries({Feature::thread_blocks, Feature::programs});
  if (!all) {
    sheet.leaves_out(Feature::programs,
                     "rows are for ring, tree and NVLS from 1 MiB on; NCCL chooses for the rest, and for all-to-alls");
  }
  sheet.warn("set NCCL_TUNER_PLUGIN to the built example plugin and NCCL_TUNER_CONFIG_FILE to this file");
  sheet.warn("a plan names no protocol: simple is written, which is NCCL's for large messages");
  sheet.warn("the example plugin gives one channel to a collective that no row matches");
  if (sheet.plan().thread_blocks == 0) {
    sheet.warn("channels are those that NCCL takes by itself: inside a node its own number, between nodes two a NIC");
  }
}

}  // namespace weft
