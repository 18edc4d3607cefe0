#include "collective/synthesis/exchange_flow.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <queue>
#include <utility>

#include "base/error.hpp"
#include "collective/synthesis/linear_program.hpp"

namespace weft {
namespace {

constexpr double kFar = std::numeric_limits<double>::infinity();
constexpr int kRoundsOfWeights = 400;
constexpr double kSecondsForSolver = 60;
constexpr double kNoFlow = 1e-9;  // of a slice

// The links out of every vertex, and what a link takes for a slice.
struct FlowGraph {
  std::vector<std::int32_t> devices;
  std::vector<std::vector<std::int32_t>> out;  // by vertex: links
  std::vector<double> seconds_per_slice;       // by link, for a buffer of one byte
};

FlowGraph flow_graph(const Topology& topology) {
  FlowGraph graph{topology.devices(), std::vector<std::vector<std::int32_t>>(topology.vertices.size()), {}};
  const auto slices = static_cast<double>(graph.devices.size());
  for (std::size_t i = 0; i < topology.links.size(); ++i) {
    graph.out[topology.links[i].from].push_back(static_cast<std::int32_t>(i));
    graph.seconds_per_slice.push_back(1 / (slices * topology.links[i].bandwidth.bytes_per_second));
  }
  return graph;
}

struct ShortestWays {
  std::vector<double> distance;
  std::vector<std::int32_t> link_into;  // by vertex; -1: the source, or not reached
};

ShortestWays shortest_ways(const Topology& topology, const FlowGraph& graph, std::int32_t source,
                           const std::vector<double>& length) {
  ShortestWays ways{std::vector<double>(graph.out.size(), kFar), std::vector<std::int32_t>(graph.out.size(), -1)};
  std::priority_queue<std::pair<double, std::int32_t>, std::vector<std::pair<double, std::int32_t>>, std::greater<>>
      queue;
  ways.distance[source] = 0;
  queue.emplace(0, source);
  while (!queue.empty()) {
    const auto [distance, vertex] = queue.top();
    queue.pop();
    if (distance > ways.distance[vertex]) continue;
    for (const std::int32_t link : graph.out[vertex]) {
      const std::int32_t next = topology.links[link].to;
      if (distance + length[link] >= ways.distance[next]) continue;
      ways.distance[next] = distance + length[link];
      ways.link_into[next] = link;
      queue.emplace(ways.distance[next], next);
    }
  }
  return ways;
}

// Shares of slices by the devices on their way.
class WayShares {
 public:
  explicit WayShares(const Topology& topology, const FlowGraph& graph)
      : topology_(topology),
        rank_of_(topology.vertices.size(), -1),
        shares_(graph.devices.size() * graph.devices.size()) {
    for (std::size_t rank = 0; rank < graph.devices.size(); ++rank) {
      rank_of_[graph.devices[rank]] = static_cast<std::int32_t>(rank);
    }
  }

  // Links from the destination back to the source.
  void add(std::size_t pair, const std::vector<std::int32_t>& links_back, double share) {
    std::vector<std::int32_t> ranks{rank_of_[topology_.links[links_back.front()].to]};
    for (const std::int32_t link : links_back) {
      if (const std::int32_t rank = rank_of_[topology_.links[link].from]; rank >= 0) ranks.push_back(rank);
    }
    std::ranges::reverse(ranks);
    shares_[pair][ranks] += share;
  }

  // The largest first, scaled so that they add up to 1.
  std::vector<std::vector<ExchangeWay>> finish() const {
    std::vector<std::vector<ExchangeWay>> all;
    for (const auto& pair : shares_) {
      std::vector<ExchangeWay>& ways = all.emplace_back();
      double sum = 0;
      for (const auto& [ranks, share] : pair) sum += share;
      for (const auto& [ranks, share] : pair) ways.push_back({ranks, share / sum});
      std::ranges::stable_sort(ways, std::ranges::greater{}, &ExchangeWay::share);
    }
    return all;
  }

 private:
  const Topology& topology_;
  std::vector<std::int32_t> rank_of_;
  std::vector<std::map<std::vector<std::int32_t>, double>> shares_;
};

std::vector<std::int32_t> links_back(const Topology& topology, const ShortestWays& ways, std::int32_t to) {
  std::vector<std::int32_t> links;
  for (std::int32_t at = to; ways.link_into[at] >= 0; at = topology.links[ways.link_into[at]].from) {
    links.push_back(ways.link_into[at]);
  }
  return links;
}

// Every round sends all slices on the ways that are cheapest at the links' prices, which rise with what a link has
// carried (Garg and Koenemann, "Faster and simpler algorithms for multicommodity flow", 1998). The mean of the rounds
// is the flow, and at any prices all slices on their cheapest ways cost no more than the time times what the links'
// capacity costs: the largest such bound is kept.
ExchangeFlow flow_by_weights(const Topology& topology, const FlowGraph& graph) {
  const std::size_t links = topology.links.size(), ranks = graph.devices.size();
  std::vector<double> busy(links, 0), weight(links, 1), length(links);
  WayShares shares(topology, graph);
  ExchangeFlow flow;
  for (int round = 0; round < kRoundsOfWeights; ++round) {
    double heaviest = 0;
    for (const double seconds : busy) heaviest = std::max(heaviest, seconds);
    double capacity_cost = 0, cost = 0;
    for (std::size_t i = 0; i < links; ++i) {
      // Prices are exponential in how busy a link is, ever more steeply, as fits ever finer rounds.
      const double steepness = std::sqrt(static_cast<double>(round)) * 2;
      weight[i] = heaviest > 0 ? std::exp(steepness * (busy[i] / heaviest - 1)) : 1;
      length[i] = weight[i] * graph.seconds_per_slice[i];
      capacity_cost += weight[i];
    }
    for (std::size_t from = 0; from < ranks; ++from) {
      const ShortestWays ways = shortest_ways(topology, graph, graph.devices[from], length);
      for (std::size_t to = 0; to < ranks; ++to) {
        if (to == from) continue;
        cost += ways.distance[graph.devices[to]];
        const std::vector<std::int32_t> way = links_back(topology, ways, graph.devices[to]);
        for (const std::int32_t link : way) busy[link] += graph.seconds_per_slice[link];
        shares.add(from * ranks + to, way, 1);
      }
    }
    flow.least_seconds = std::max(flow.least_seconds, cost / capacity_cost);
  }
  flow.ways = shares.finish();
  flow.seconds = *std::ranges::max_element(busy) / kRoundsOfWeights;
  return flow;
}

// Slices of one source are one commodity: a column for every source and link, a row for every source and vertex, and
// one for every link, whose time the last column bounds.
LinearProgram flow_program(const Topology& topology, const FlowGraph& graph) {
  LinearProgram program;
  const std::size_t links = topology.links.size(), vertices = topology.vertices.size();
  for (std::size_t i = 0; i < links; ++i) program.add_row(-kUnbounded, 0);
  std::vector<bool> is_device(vertices, false);
  for (const std::int32_t device : graph.devices) is_device[device] = true;
  double fastest = kFar;
  for (const double seconds : graph.seconds_per_slice) fastest = std::min(fastest, seconds);
  for (const std::int32_t source : graph.devices) {
    const auto first = static_cast<std::int32_t>(program.rows.size());
    for (std::size_t v = 0; v < vertices; ++v) {
      const double keeps = std::cmp_equal(v, source) ? 1 - static_cast<double>(graph.devices.size()) : is_device[v];
      program.add_row(keeps, keeps);
    }
    for (std::size_t i = 0; i < links; ++i) {
      program.add_column({.cost = 0,
                          .entries = {{static_cast<std::int32_t>(i), graph.seconds_per_slice[i] / fastest},
                                      {first + topology.links[i].from, -1},
                                      {first + topology.links[i].to, 1}}});
    }
  }
  LinearProgram::Column time{.cost = 1, .entries = {}};
  for (std::size_t i = 0; i < links; ++i) time.entries.push_back({static_cast<std::int32_t>(i), -1});
  program.add_column(std::move(time));
  return program;
}

// Takes the flow of a source apart into ways: again and again one with something left on every link.
void take_apart(const Topology& topology, const FlowGraph& graph, std::size_t from, std::vector<double> left,
                WayShares& shares) {
  const std::size_t ranks = graph.devices.size();
  for (std::size_t to = 0; to < ranks; ++to) {
    double open = to == from ? 0 : 1;
    while (open > kNoFlow) {
      std::vector<double> length(left.size());
      for (std::size_t i = 0; i < left.size(); ++i) length[i] = left[i] > kNoFlow ? 1 : kFar;
      const ShortestWays ways = shortest_ways(topology, graph, graph.devices[from], length);
      if (ways.link_into[graph.devices[to]] < 0) break;  // rounding: the shares are scaled up
      const std::vector<std::int32_t> way = links_back(topology, ways, graph.devices[to]);
      double share = open;
      for (const std::int32_t link : way) share = std::min(share, left[link]);
      for (const std::int32_t link : way) left[link] -= share;
      open -= share;
      shares.add(from * ranks + to, way, share);
    }
  }
}

}  // namespace

ExchangeFlow exchange_flow(const Topology& topology, FlowMethod method) {
  const FlowGraph graph = flow_graph(topology);
  if (method == FlowMethod::weights || !has_linear_solver()) return flow_by_weights(topology, graph);
  const auto solution = solve(flow_program(topology, graph), kSecondsForSolver);
  if (!solution) return flow_by_weights(topology, graph);
  const std::size_t links = topology.links.size(), ranks = graph.devices.size();
  ExchangeFlow flow{{}, 0, 0, true};
  WayShares shares(topology, graph);
  std::vector<double> busy(links, 0);
  for (std::size_t from = 0; from < ranks; ++from) {
    const auto begin = solution->begin() + static_cast<std::ptrdiff_t>(from * links);
    take_apart(topology, graph, from, {begin, begin + static_cast<std::ptrdiff_t>(links)}, shares);
    for (std::size_t i = 0; i < links; ++i) busy[i] += (*solution)[from * links + i] * graph.seconds_per_slice[i];
  }
  flow.ways = shares.finish();
  flow.seconds = flow.least_seconds = *std::ranges::max_element(busy);
  return flow;
}

std::vector<std::vector<std::int32_t>> ways_of_chunks(const ExchangeFlow& flow, std::int64_t chunks) {
  std::vector<std::vector<std::int32_t>> all;
  for (const std::vector<ExchangeWay>& ways : flow.ways) {
    std::vector<std::int64_t> count;
    std::vector<std::pair<double, std::size_t>> remainders;  // negative, so that the largest come first
    std::int64_t given = 0;
    for (std::size_t i = 0; i < ways.size(); ++i) {
      const double wanted = ways[i].share * static_cast<double>(chunks);
      count.push_back(static_cast<std::int64_t>(std::floor(wanted)));
      given += count.back();
      remainders.emplace_back(std::floor(wanted) - wanted, i);
    }
    std::ranges::sort(remainders);
    for (std::size_t i = 0; given < chunks && i < remainders.size(); ++i, ++given) ++count[remainders[i].second];
    const std::size_t end = all.size() + static_cast<std::size_t>(chunks);
    for (std::size_t i = 0; i < ways.size(); ++i) all.insert(all.end(), count[i], ways[i].ranks);
    all.resize(end);  // a rank's slice for itself
  }
  return all;
}

}  // namespace weft
