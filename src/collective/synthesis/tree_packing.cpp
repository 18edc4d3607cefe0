#include "collective/synthesis/tree_packing.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/error.hpp"
#include "collective/synthesis/tree_growth.hpp"

namespace weft {
namespace {

constexpr int kHalvings = 20;                      // of the interval in which the capacities for a number of pieces lie
constexpr double kNearEnough = 0.999;              // of the optimum: fewer pieces are worth more than the rest
constexpr std::size_t kDevicesForEveryCount = 32;  // with more devices only a few numbers of pieces are tried

// What the trees are packed into: whole capacities for whole pieces.
struct Scaled {
  std::int64_t pieces = 0;               // of a share
  double time = 0;                       // in which links carry these capacities, in pieces per unit of bandwidth
  std::vector<std::int64_t> capacities;  // by link
  std::vector<std::int64_t> demands;     // by rank
};

void check_balance(const Topology& topology) {
  std::vector<std::int64_t> in(topology.vertices.size(), 0), out(topology.vertices.size(), 0);
  for (const TopologyLink& link : topology.links) {
    out[link.from] += bandwidth_units(link.bandwidth);
    in[link.to] += bandwidth_units(link.bandwidth);
  }
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (topology.vertices[i].kind == VertexKind::device || in[i] == out[i]) continue;
    fail("topology '{}': {} '{}' takes in {} KB/s and gives out {} KB/s; trees need both to be equal", topology.name,
         name_of(topology.vertices[i].kind), topology.vertices[i].name, in[i], out[i]);
  }
}

// The topology with like switches merged, because together they carry what one large switch would. Routes name the
// first of them.
Topology merge_like_switches(const Topology& topology) {
  const std::vector<std::int32_t> like = like_switches(topology);
  Topology result{topology.name, topology.vertices, {}};
  for (const TopologyLink& link : topology.links) {
    result.connect_one_way(like[link.from], like[link.to], link.bandwidth, link.latency);
  }
  return result;
}

RoutedGraph graph_of(const Topology& topology, const std::vector<std::int64_t>& capacities) {
  RoutedGraph graph(topology.vertices.size());
  for (std::size_t i = 0; i < topology.links.size(); ++i) {
    const TopologyLink& link = topology.links[i];
    graph.add(link.from, link.to, {{link.from, link.to}, capacities[i]});
  }
  return graph;
}

std::vector<std::int64_t> link_units(const Topology& topology) {
  std::vector<std::int64_t> units;
  for (const TopologyLink& link : topology.links) units.push_back(bandwidth_units(link.bandwidth));
  return units;
}

std::vector<std::int64_t> scaled_demands(std::span<const std::int64_t> shares, std::int64_t pieces) {
  std::vector<std::int64_t> demands;
  for (const std::int64_t share : shares) demands.push_back(share * pieces);
  return demands;
}

// The fewest pieces with which the cut's time is met exactly. In that time a link carries pieces x weight / bandwidth
// of the cut x its own bandwidth, which must be whole for every link.
std::int64_t exact_pieces(const GatherCut& cut, const std::vector<std::int64_t>& units) {
  const std::int64_t rate = cut.out_bandwidth / std::gcd(cut.weight, cut.out_bandwidth);
  std::int64_t common = rate;
  for (const std::int64_t unit : units) common = std::gcd(common, unit);
  return rate / common;
}

Scaled scale_exactly(const GatherCut& cut, const std::vector<std::int64_t>& units, std::span<const std::int64_t> shares,
                     std::int64_t pieces) {
  const std::int64_t common = std::gcd(cut.weight, cut.out_bandwidth);
  const std::int64_t weight = cut.weight / common, rate = cut.out_bandwidth / common;
  const double time = static_cast<double>(weight) / static_cast<double>(rate) * static_cast<double>(pieces);
  Scaled scaled{pieces, time, {}, scaled_demands(shares, pieces)};
  for (const std::int64_t unit : units) {
    WEFT_CHECK(unit * pieces % rate == 0);
    scaled.capacities.push_back(unit * pieces / rate * weight);
  }
  return scaled;
}

// With so many pieces: the least time, to within rounding, in which whole capacities are enough for them.
Scaled scale_for_pieces(const Topology& topology, const GatherCut& cut, std::span<const std::int64_t> shares,
                        std::int64_t pieces) {
  const std::vector<std::int64_t> units = link_units(topology);
  const std::vector<std::int32_t> devices = topology.devices();
  const std::vector<std::int64_t> demands = scaled_demands(shares, pieces);
  const auto capacities_in = [&](double time) {
    std::vector<std::int64_t> capacities;
    for (const std::int64_t unit : units)
      capacities.push_back(static_cast<std::int64_t>(std::floor(static_cast<double>(unit) * time)));
    return capacities;
  };
  const auto is_enough = [&](double time) {
    return missing_pieces(graph_of(topology, capacities_in(time)), devices, demands) == 0;
  };
  double low = static_cast<double>(cut.weight) / static_cast<double>(cut.out_bandwidth) * static_cast<double>(pieces);
  double high = low * (1 + 1e-9);
  while (!is_enough(high)) {
    low = high;
    high *= 1.25;
  }
  for (int i = 0; i < kHalvings && high - low > 1e-6 * high; ++i) {
    const double middle = (low + high) / 2;
    (is_enough(middle) ? high : low) = middle;
  }
  return {pieces, high, capacities_in(high), demands};
}

double seconds_of(const Topology& topology, const TreePacking& packing) {
  const std::vector<double> loads = link_loads(topology, packing);
  double longest = 0;
  for (std::size_t i = 0; i < loads.size(); ++i) {
    longest = std::max(longest, loads[i] / topology.links[i].bandwidth.bytes_per_second);
  }
  return longest;
}

// A device without pieces of its own relays nothing where the others can do without: its links are the slow ones.
void spare_idle_devices(RoutedGraph& graph, std::span<const std::int32_t> devices,
                        std::span<const std::int64_t> demands) {
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    if (demands[rank] > 0) continue;
    RoutedGraph spared = graph;
    for (const std::int32_t to : graph.targets_of(devices[rank])) {
      spared.take(devices[rank], to, graph.capacity(devices[rank], to));
    }
    if (missing_pieces(spared, devices, demands) == 0) graph = std::move(spared);
  }
}

TreePacking pack_scaled(const Topology& topology, const Scaled& scaled) {
  const std::vector<std::int32_t> devices = topology.devices();
  RoutedGraph graph = graph_of(topology, scaled.capacities);
  remove_switches(graph, devices, scaled.demands);
  // Whole capacities of links that differ by direction may leave a switch unbalanced.
  if (missing_pieces(graph, devices, scaled.demands) > 0) {
    fail("topology '{}': {} pieces of a rank are too few for switches whose links differ by direction; allow more",
         topology.name, scaled.pieces);
  }
  spare_idle_devices(graph, devices, scaled.demands);
  TreePacking packing{scaled.demands, grow_trees(std::move(graph), devices, scaled.demands), {}, 0, 0};
  packing.seconds = seconds_of(topology, packing);
  return packing;
}

std::vector<std::int64_t> piece_counts(std::size_t devices, std::int64_t max_pieces) {
  std::vector<std::int64_t> counts;
  for (std::int64_t pieces = 1; pieces <= max_pieces; devices <= kDevicesForEveryCount ? ++pieces : pieces *= 2) {
    counts.push_back(pieces);
  }
  return counts;
}

Scaled best_up_to(std::int64_t max_pieces, const Topology& topology, const GatherCut& cut,
                  std::span<const std::int64_t> shares) {
  const double least = static_cast<double>(cut.weight) / static_cast<double>(cut.out_bandwidth);
  Scaled best;
  for (const std::int64_t pieces : piece_counts(shares.size(), max_pieces)) {
    Scaled scaled = scale_for_pieces(topology, cut, shares, pieces);
    const double time = scaled.time / static_cast<double>(pieces);
    if (best.pieces == 0 || time < best.time / static_cast<double>(best.pieces)) best = std::move(scaled);
    if (least > kNearEnough * best.time / static_cast<double>(best.pieces)) break;
  }
  return best;
}

}  // namespace

std::vector<std::int32_t> like_switches(const Topology& topology) {
  std::vector<std::map<std::pair<std::int32_t, bool>, std::int64_t>> neighbours(topology.vertices.size());
  for (const TopologyLink& link : topology.links) {
    neighbours[link.from][{link.to, true}] = bandwidth_units(link.bandwidth);
    neighbours[link.to][{link.from, false}] = bandwidth_units(link.bandwidth);
  }
  for (auto& around : neighbours) {
    std::int64_t common = 0;
    for (const auto& [neighbour, units] : around) common = std::gcd(common, units);
    for (auto& [neighbour, units] : around) units /= common;
  }
  std::map<std::map<std::pair<std::int32_t, bool>, std::int64_t>, std::int32_t> first;
  std::vector<std::int32_t> like(topology.vertices.size());
  for (std::size_t i = 0; i < like.size(); ++i) {
    const auto vertex = static_cast<std::int32_t>(i);
    const bool is_device = topology.vertices[i].kind == VertexKind::device;
    like[i] = is_device ? vertex : first.emplace(neighbours[i], vertex).first->second;
  }
  return like;
}

TreePacking pack_trees(const Topology& given, std::span<const std::int64_t> shares, std::int64_t max_pieces) {
  check_balance(given);
  const Topology topology = merge_like_switches(given);
  const std::vector<std::int64_t> units = link_units(topology);
  const GatherCut cut = slowest_gather_cut(topology, shares);
  const double least = static_cast<double>(cut.weight) /
                       (static_cast<double>(cut.out_bandwidth) * kBandwidthUnit *
                        static_cast<double>(std::accumulate(shares.begin(), shares.end(), std::int64_t{0})));
  const std::int64_t exact = exact_pieces(cut, units);
  TreePacking packing = pack_scaled(topology, exact <= max_pieces ? scale_exactly(cut, units, shares, exact)
                                                                  : best_up_to(max_pieces, topology, cut, shares));
  packing.least_seconds = least;
  packing.cut = slowest_gather_cut(given, shares);
  return packing;
}

std::vector<double> link_loads(const Topology& topology, const TreePacking& packing) {
  const std::int64_t pieces = std::accumulate(packing.pieces.begin(), packing.pieces.end(), std::int64_t{0});
  std::map<std::pair<std::int32_t, std::int32_t>, double> bytes;
  for (const SpanningTree& tree : packing.trees) {
    for (const TreeEdge& edge : tree.edges) {
      for (const Route& route : edge.routes) {
        for (std::size_t i = 0; i + 1 < route.vertices.size(); ++i) {
          bytes[{route.vertices[i], route.vertices[i + 1]}] +=
              static_cast<double>(route.capacity) / static_cast<double>(pieces);
        }
      }
    }
  }
  // Like switches share what goes through the first of them.
  const std::vector<std::int32_t> like = like_switches(topology);
  std::map<std::pair<std::int32_t, std::int32_t>, double> bandwidth;
  for (const TopologyLink& link : topology.links) {
    bandwidth[{like[link.from], like[link.to]}] += link.bandwidth.bytes_per_second;
  }
  std::vector<double> loads;
  for (const TopologyLink& link : topology.links) {
    const std::pair ends{like[link.from], like[link.to]};
    loads.push_back(bytes[ends] * link.bandwidth.bytes_per_second / bandwidth[ends]);
  }
  return loads;
}

}  // namespace weft
