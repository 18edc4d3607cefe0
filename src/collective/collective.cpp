#include "collective/collective.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <map>

#include "base/enum_name.hpp"
#include "base/error.hpp"
#include "cluster/topology.hpp"

namespace weft {
namespace {

// How often the buffer passes: reduce_scatter and all_gather are each one half of all_reduce.
double passes(Collective kind) {
  switch (kind) {
    case Collective::all_reduce:
      return 2;
    case Collective::barrier:
      return 0;
    default:
      return 1;
  }
}

bool moves_the_whole_buffer(Collective kind) {
  return kind == Collective::broadcast || kind == Collective::reduce || kind == Collective::send_recv;
}

std::int64_t ceil_log2(std::int64_t n) {
  return n <= 1 ? 0 : std::bit_width(static_cast<std::uint64_t>(n - 1));
}

std::int64_t step_count(Collective kind, Algorithm algorithm, std::int64_t size) {
  const std::int64_t rounds = kind == Collective::all_reduce ? 2 : 1;
  if (kind == Collective::send_recv) return 1;
  switch (algorithm) {
    case Algorithm::ring:
      return rounds * (size - 1);
    case Algorithm::tree:
      return rounds * ceil_log2(size);
    default:
      return rounds;
  }
}

// The fraction of the buffer that one rank sends, over all fabrics together.
double sent_fraction(Collective kind, std::int64_t size) {
  const auto n = static_cast<double>(size);
  return moves_the_whole_buffer(kind) ? 1.0 : passes(kind) * (n - 1) / n;
}

// all_to_all: every peer gets its own piece over the innermost fabric that joins the two.
std::vector<FabricTraffic> pairwise_traffic(const Cluster& cluster, Bytes bytes, const GroupView& view) {
  std::vector<FabricTraffic> traffic;
  std::int64_t inner = 1;
  for (std::size_t i = 0; i < view.within.size(); ++i) {
    const std::int64_t peers = view.within[i] - inner;
    if (peers > 0) {
      traffic.push_back({cluster.fabrics()[i], static_cast<double>(bytes.value) * static_cast<double>(peers) /
                                                   static_cast<double>(view.size)});
    }
    inner = view.within[i];
  }
  return traffic;
}

// A ring through all members, domain after domain: of the edges, one per inner domain crosses the next fabric.
std::vector<FabricTraffic> ring_traffic(const Cluster& cluster, double sent, const GroupView& view) {
  std::vector<FabricTraffic> traffic;
  std::int64_t inner = 1;
  for (std::size_t i = 0; i < view.within.size(); ++i) {
    const std::int64_t here = view.within[i];
    if (here > inner) {
      const double closing = here == view.size ? 0.0 : 1.0 / static_cast<double>(here);
      const double share = 1.0 / static_cast<double>(inner) - closing;
      traffic.push_back({cluster.fabrics()[i], sent * share});
    }
    inner = here;
  }
  return traffic;
}

// How many of the sequential steps cross each fabric. In a pass a ring enters each of the d domains below a fabric
// once; a tree has a level for every doubling of them; direct messages all wait for the slowest.
void share_steps(CollectiveTraffic& result, Collective kind, Algorithm algorithm, const GroupView& view) {
  const std::int64_t rounds = kind == Collective::all_reduce ? 2 : 1;
  std::int64_t left = result.steps;
  std::size_t at = result.fabrics.size();
  for (std::size_t i = view.within.size(); i-- > 0 && at > 0;) {
    const std::int64_t inner = i == 0 ? 1 : view.within[i - 1];
    if (view.within[i] <= inner) continue;
    FabricTraffic& fabric = result.fabrics[--at];
    const std::int64_t domains = (view.within[i] + inner - 1) / inner;
    std::int64_t crossing = left;
    if (at > 0 && algorithm == Algorithm::ring) crossing = rounds * domains * (view.size / view.within[i]);
    if (at > 0 && algorithm == Algorithm::tree) crossing = rounds * ceil_log2(domains);
    fabric.steps = std::min(left, crossing);
    left -= fabric.steps;
  }
}

}  // namespace

std::string_view name_of(Collective kind) {
  static constexpr std::string_view kNames[] = {"broadcast",      "reduce",     "gather",     "scatter",   "all_gather",
                                                "reduce_scatter", "all_reduce", "all_to_all", "send_recv", "barrier"};
  return enum_name(kNames, kind);
}

std::string_view name_of(Algorithm algorithm) {
  static constexpr auto kNames = std::to_array<std::string_view>(
      {"ring", "tree", "direct", "bidirectional_ring", "binomial_tree", "recursive_doubling", "recursive_halving",
       "bruck", "pairwise", "reduce_broadcast", "parameter_server", "hierarchical", "native", "carried"});
  return enum_name(kNames, algorithm);
}

std::vector<GroupView> group_views(const Cluster& cluster, std::span<const Rank> members) {
  std::vector<GroupView> views(members.size());
  for (GroupView& view : views) view.size = static_cast<std::int64_t>(members.size());
  for (const LevelId fabric : cluster.fabrics()) {
    std::map<std::int64_t, std::int64_t> count;
    for (const Rank member : members) ++count[cluster.domain_of(fabric, member)];
    for (std::size_t i = 0; i < members.size(); ++i) {
      views[i].within.push_back(count[cluster.domain_of(fabric, members[i])]);
    }
  }
  const bool even = std::all_of(views.begin(), views.end(),
                                [&](const GroupView& view) { return view.within == views.front().within; });
  for (GroupView& view : views) view.even = even;
  if (members.size() > 1 && (views.front().within.empty() || views.front().within.back() != views.front().size)) {
    fail("cluster {}: no level joins all ranks of a group that starts with rank {}", cluster.spec().name,
         members.front().value);
  }
  return views;
}

CollectiveTraffic collective_traffic(const Cluster& cluster, Collective kind, Algorithm algorithm, Bytes bytes,
                                     const GroupView& view) {
  CollectiveTraffic result;
  if (view.size <= 1) return result;
  result.steps = step_count(kind, algorithm, view.size);
  result.fabrics = kind == Collective::all_to_all
                       ? pairwise_traffic(cluster, bytes, view)
                       : ring_traffic(cluster, sent_fraction(kind, view.size) * static_cast<double>(bytes.value), view);
  WEFT_CHECK(!result.fabrics.empty());
  share_steps(result, kind, algorithm, view);
  return result;
}

namespace {

std::int64_t members_within(const Cluster& cluster, const GroupView& view, LevelId fabric) {
  return view.within[std::find(cluster.fabrics().begin(), cluster.fabrics().end(), fabric) - cluster.fabrics().begin()];
}

}  // namespace

std::int64_t forwarding_domain(const Cluster& cluster, const GroupView& view) {
  for (std::size_t i = cluster.fabrics_of_parts(); i < view.within.size(); ++i) {
    if (view.within[i] > 1) return view.within[i] < view.size ? view.within[i] : 0;
  }
  return 0;
}

std::vector<FabricTraffic> minimum_forwarded_traffic(const Cluster& cluster, Bytes bytes, const GroupView& view,
                                                     double distinct) {
  std::vector<FabricTraffic> traffic = pairwise_traffic(cluster, bytes, view);
  const std::int64_t inner = forwarding_domain(cluster, view);
  if (inner == 0) return traffic;
  for (FabricTraffic& fabric : traffic) {
    if (members_within(cluster, view, fabric.fabric) > inner) fabric.bytes *= distinct;
  }
  return traffic;
}

CollectiveTraffic forwarded_traffic(const Cluster& cluster, Bytes bytes, const GroupView& view, double distinct) {
  CollectiveTraffic result = collective_traffic(cluster, Collective::all_to_all, Algorithm::direct, bytes, view);
  const std::int64_t inner = forwarding_domain(cluster, view);
  if (inner == 0) return result;
  result.fabrics = minimum_forwarded_traffic(cluster, bytes, view, distinct);
  // Across, then inside.
  result.steps = 2;
  for (FabricTraffic& fabric : result.fabrics) {
    const std::int64_t within = members_within(cluster, view, fabric.fabric);
    fabric.steps = within == inner || within == view.size ? 1 : 0;
    if (within > inner) continue;
    // All copies except those for the member itself and for the member that receives a domain's rows.
    fabric.bytes *= static_cast<double>(view.size) / static_cast<double>(inner);
  }
  return result;
}

namespace {

bool can_reduce_in_switches(const Cluster& cluster) {
  if (!cluster.spec().topology) return false;
  const std::vector<TopologyVertex>& vertices = (*cluster.spec().topology).vertices;
  return std::any_of(vertices.begin(), vertices.end(),
                     [](const TopologyVertex& vertex) { return vertex.multicasts && vertex.reduces; });
}

}  // namespace

std::vector<FabricTraffic> minimum_traffic(const Cluster& cluster, Collective kind, Bytes bytes,
                                           const GroupView& view) {
  if (view.size <= 1) return {};
  if (kind == Collective::all_to_all) return pairwise_traffic(cluster, bytes, view);
  std::vector<FabricTraffic> traffic;
  const auto whole = static_cast<double>(bytes.value);
  // A switch that adds up and sends copies takes the buffer from every domain once, and gives it back once.
  const bool in_switches = kind == Collective::all_reduce && can_reduce_in_switches(cluster);
  std::int64_t inner = 1;
  for (std::size_t i = 0; i < view.within.size(); ++i) {
    const std::int64_t here = view.within[i];
    if (here > inner) {
      // All members of an inner domain together must exchange with the here/inner - 1 other domains.
      const double domains = static_cast<double>(here) / static_cast<double>(inner);
      double sent = passes(kind) * (domains - 1) / domains;
      if (in_switches) sent = std::min(sent, 1.0);
      if (kind == Collective::send_recv || (kind == Collective::all_reduce && !view.even)) sent = 1.0;
      traffic.push_back({cluster.fabrics()[i], whole * sent / static_cast<double>(inner)});
    }
    inner = here;
  }
  return traffic;
}

}  // namespace weft
