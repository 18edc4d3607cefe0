#include "collective/synthesis/routed_graph.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "cluster/max_flow.hpp"

namespace weft {
namespace {

bool is_among(std::span<const std::int32_t> devices, std::int32_t vertex) {
  return std::ranges::find(devices, vertex) != devices.end();
}

// As much of the split as leaves no piece behind. A cut loses at most one unit for every unit of the split, and only
// cuts that lose can fall short, so what is missing after the whole split is exactly what is too much of it.
std::int64_t bypassable(const RoutedGraph& graph, const Bypass& split, std::span<const std::int32_t> devices,
                        std::span<const std::int64_t> demands) {
  return split.capacity - missing_pieces(graph, devices, demands, split);
}

// Every incoming edge is spread evenly over the other neighbours at once, which makes shallow trees.
RoutedGraph evenly_spread(const RoutedGraph& graph, std::int32_t hub) {
  const std::vector<std::int32_t> sources = graph.sources_of(hub), targets = graph.targets_of(hub);
  const auto share_of = [](std::int64_t capacity, const std::vector<std::int32_t>& ends, bool has_itself) {
    const auto others = static_cast<std::int64_t>(ends.size()) - (has_itself ? 1 : 0);
    return others == 0 ? 0 : capacity / others;
  };
  RoutedGraph after = graph;
  for (const std::int32_t from : sources) {
    const std::int64_t in = share_of(graph.capacity(from, hub), targets, graph.capacity(hub, from) > 0);
    for (const std::int32_t to : targets) {
      const std::int64_t out = share_of(graph.capacity(hub, to), sources, graph.capacity(to, hub) > 0);
      if (from != to && std::min(in, out) > 0) after.apply({from, hub, to, std::min(in, out)});
    }
  }
  return after;
}

void bypass_pairs(RoutedGraph& graph, std::int32_t hub, std::int32_t from, bool back_to_itself,
                  std::span<const std::int32_t> devices, std::span<const std::int64_t> demands) {
  std::vector<std::int32_t> targets = graph.targets_of(hub);
  // Neighbours take turns to be first, so that rings close.
  std::ranges::rotate(targets, std::ranges::upper_bound(targets, from));
  for (const std::int32_t to : targets) {
    const std::int64_t in = graph.capacity(from, hub);
    if (in == 0) return;
    if ((from == to) != back_to_itself) continue;
    const Bypass split{from, hub, to, std::min(in, graph.capacity(hub, to))};
    const std::int64_t possible = bypassable(graph, split, devices, demands);
    if (possible > 0) graph.apply({from, hub, to, possible});
  }
}

// All vertices but devices. NICs go before the switches behind them, so that switches see devices.
std::vector<std::int32_t> fewest_neighbours_first(const RoutedGraph& graph, std::span<const std::int32_t> devices) {
  std::vector<std::pair<std::size_t, std::int32_t>> hubs;
  for (std::int32_t vertex = 0; vertex < static_cast<std::int32_t>(graph.vertex_count()); ++vertex) {
    if (!is_among(devices, vertex)) hubs.emplace_back(graph.targets_of(vertex).size(), vertex);
  }
  std::ranges::sort(hubs);
  std::vector<std::int32_t> order;
  for (const auto& [neighbours, vertex] : hubs) order.push_back(vertex);
  return order;
}

// Whether all edges of a switch may go at once: its neighbours that are switches too must lose as much in as out.
bool keeps_others_balanced(const RoutedGraph& graph, std::int32_t hub, std::span<const std::int32_t> devices) {
  const auto is_balanced = [&](std::int32_t neighbour) {
    return is_among(devices, neighbour) || graph.capacity(neighbour, hub) == graph.capacity(hub, neighbour);
  };
  return std::ranges::all_of(graph.sources_of(hub), is_balanced) &&
         std::ranges::all_of(graph.targets_of(hub), is_balanced);
}

void drop_edges_of(RoutedGraph& graph, std::int32_t hub) {
  for (const std::int32_t from : graph.sources_of(hub)) graph.take(from, hub, graph.capacity(from, hub));
  for (const std::int32_t to : graph.targets_of(hub)) graph.take(hub, to, graph.capacity(hub, to));
}

}  // namespace

std::int64_t RoutedGraph::capacity(std::int32_t from, std::int32_t to) const {
  const auto found = capacity_.find({from, to});
  return found == capacity_.end() ? 0 : found->second;
}

std::vector<std::int32_t> RoutedGraph::sources_of(std::int32_t vertex) const {
  std::vector<std::int32_t> found;
  for (const auto& [ends, amount] : capacity_) {
    if (ends.second == vertex) found.push_back(ends.first);
  }
  return found;
}

std::vector<std::int32_t> RoutedGraph::targets_of(std::int32_t vertex) const {
  std::vector<std::int32_t> found;
  for (auto edge = capacity_.lower_bound({vertex, 0}); edge != capacity_.end() && edge->first.first == vertex; ++edge) {
    found.push_back(edge->first.second);
  }
  return found;
}

void RoutedGraph::add(std::int32_t from, std::int32_t to, const Route& route) {
  if (route.capacity == 0) return;
  capacity_[{from, to}] += route.capacity;
  std::vector<Route>& routes = routes_[{from, to}];
  const auto same = std::ranges::find(routes, route.vertices, &Route::vertices);
  if (same != routes.end()) {
    same->capacity += route.capacity;
  } else {
    routes.push_back(route);
  }
}

std::vector<Route> RoutedGraph::take(std::int32_t from, std::int32_t to, std::int64_t capacity) {
  const auto edge = capacity_.find({from, to});
  WEFT_CHECK(edge != capacity_.end() && edge->second >= capacity);
  std::vector<Route> taken;
  std::vector<Route>& routes = routes_[{from, to}];
  for (std::int64_t left = capacity; left > 0;) {
    Route& route = routes.back();
    const std::int64_t part = std::min(left, route.capacity);
    taken.push_back({route.vertices, part});
    left -= part;
    route.capacity -= part;
    if (route.capacity == 0) routes.pop_back();
  }
  edge->second -= capacity;
  if (edge->second == 0) {
    capacity_.erase(edge);
    routes_.erase({from, to});
  }
  return taken;
}

void RoutedGraph::apply(const Bypass& bypass) {
  const auto [from, through, to, capacity] = bypass;
  std::vector<Route> in = take(from, through, capacity), out = take(through, to, capacity);
  if (from == to) return;
  while (!in.empty()) {
    const std::int64_t part = std::min(in.back().capacity, out.back().capacity);
    Route joined{in.back().vertices, part};
    joined.vertices.insert(joined.vertices.end(), out.back().vertices.begin() + 1, out.back().vertices.end());
    add(from, to, joined);
    for (auto* const routes : {&in, &out}) {
      routes->back().capacity -= part;
      if (routes->back().capacity == 0) routes->pop_back();
    }
  }
}

std::int64_t missing_pieces(const RoutedGraph& graph, std::span<const std::int32_t> devices,
                            std::span<const std::int64_t> demands, const Bypass& tried) {
  MaxFlow flow(graph.vertex_count() + 1);
  const auto source = static_cast<std::int32_t>(graph.vertex_count());
  for (const auto& [ends, amount] : graph.edges()) {
    const bool first_leg = ends == std::pair(tried.from, tried.through),
               last_leg = ends == std::pair(tried.through, tried.to);
    flow.add_edge(ends.first, ends.second, first_leg || last_leg ? amount - tried.capacity : amount);
  }
  if (tried.from != tried.to) flow.add_edge(tried.from, tried.to, tried.capacity);
  std::int64_t total = 0;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (demands[i] > 0) flow.add_edge(source, devices[i], demands[i]);
    total += demands[i];
  }
  std::int64_t least = total;
  for (const std::int32_t device : devices) {
    least = std::min(least, flow.run(source, device, total));
    if (tried.capacity > 0 && total - least >= tried.capacity) break;
  }
  return total - least;
}

void remove_switches(RoutedGraph& graph, std::span<const std::int32_t> devices, std::span<const std::int64_t> demands) {
  for (const std::int32_t hub : fewest_neighbours_first(graph, devices)) {
    RoutedGraph spread = evenly_spread(graph, hub);
    // What is left behind matters only where the switch is part of the slowest cut.
    if (keeps_others_balanced(spread, hub, devices)) {
      RoutedGraph without_hub = spread;
      drop_edges_of(without_hub, hub);
      if (missing_pieces(without_hub, devices, demands) == 0) {
        graph = std::move(without_hub);
        continue;
      }
    }
    if (missing_pieces(spread, devices, demands) == 0) graph = std::move(spread);
    for (const bool back_to_itself : {false, true}) {
      for (const std::int32_t from : graph.sources_of(hub)) {
        bypass_pairs(graph, hub, from, back_to_itself, devices, demands);
      }
    }
    drop_edges_of(graph, hub);
  }
}

}  // namespace weft
