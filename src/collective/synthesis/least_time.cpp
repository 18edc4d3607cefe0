#include "collective/synthesis/least_time.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace weft {
namespace {

// The buffer has so many slices, of which the cut's weight must cross it.
double time_of_cut(const GatherCut& cut, std::size_t slices) {
  return static_cast<double>(cut.weight) /
         (static_cast<double>(cut.out_bandwidth) * kBandwidthUnit * static_cast<double>(slices));
}

// An all_reduce brings the whole buffer out of every set of devices that a cut separates.
LeastTime least_of_cuts(const Topology& topology) {
  std::vector<std::int64_t> one(topology.devices().size(), 0);
  LeastTime least;
  for (std::size_t rank = 0; rank < one.size(); ++rank) {
    one[rank] = 1;
    GatherCut cut = slowest_gather_cut(topology, one);
    one[rank] = 0;
    if (const double time = time_of_cut(cut, 1); time > least.seconds) {
      least.seconds = time;
      least.cut = std::move(cut);
    }
  }
  return least;
}

using SenderOf = std::vector<std::int64_t>;  // by vertex; -1: none, it only passes on
constexpr std::int64_t kNoSender = -1;

SenderOf devices_as_senders(const Topology& topology) {
  SenderOf sender(topology.vertices.size(), kNoSender);
  for (const std::int32_t device : topology.devices()) sender[device] = device;
  return sender;
}

// Nodes with devices, as all that is in them, or without the vertices that only pass on: either may have the slower
// way out. Nothing where something between the nodes reduces or multicasts.
std::optional<SenderOf> nodes_as_senders(const Topology& topology, bool in_network, bool with_passive) {
  std::set<std::int64_t> nodes;
  for (const std::int32_t device : topology.devices()) nodes.insert(topology.vertices[device].node);
  if (nodes.size() < 2 || nodes.contains(-1)) return std::nullopt;
  SenderOf sender;
  for (const TopologyVertex& vertex : topology.vertices) {
    const bool able = in_network && (vertex.multicasts || vertex.reduces);
    if (able && !nodes.contains(vertex.node)) return std::nullopt;
    const bool is_part = vertex.kind == VertexKind::device || able || with_passive;
    sender.push_back(is_part && nodes.contains(vertex.node) ? vertex.node : kNoSender);
  }
  return sender;
}

void raise_by_senders(const Topology& topology, const SenderOf& sender, bool are_nodes, LeastTime& least) {
  const std::set<std::int64_t> all(sender.begin(), sender.end());
  const std::int64_t senders = std::ssize(all) - static_cast<std::int64_t>(all.contains(kNoSender));
  double out = 0, in = 0;
  for (const TopologyLink& link : topology.links) {
    if (sender[link.from] == sender[link.to]) continue;
    if (sender[link.from] != kNoSender) out += link.bandwidth.bytes_per_second;
    if (sender[link.to] != kNoSender) in += link.bandwidth.bytes_per_second;
  }
  const double slower = std::min(out, in);
  const double seconds = 2 * static_cast<double>(senders - 1) / slower;
  if (seconds <= least.seconds * (1 + 1e-9)) return;
  least.seconds = seconds;
  least.senders = senders;
  least.senders_bytes_per_second = slower;
  least.senders_are_nodes = are_nodes;
}

}  // namespace

LeastTime least_time(const Topology& topology, Collective kind, bool in_network) {
  if (kind != Collective::all_reduce) {
    // Copies and sums in switches do not change what must cross a cut.
    LeastTime least;
    least.cut = slowest_gather_cut(kind == Collective::all_gather ? topology : reversed(topology));
    least.seconds = time_of_cut(least.cut, topology.devices().size());
    return least;
  }
  LeastTime least = least_of_cuts(topology);
  for (const bool with_passive : {false, true}) {
    if (const auto nodes = nodes_as_senders(topology, in_network, with_passive)) {
      raise_by_senders(topology, *nodes, true, least);
    }
  }
  if (!in_network) raise_by_senders(topology, devices_as_senders(topology), false, least);
  return least;
}

}  // namespace weft
