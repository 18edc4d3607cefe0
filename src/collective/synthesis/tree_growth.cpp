#include "collective/synthesis/tree_growth.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "cluster/max_flow.hpp"

namespace weft {
namespace {

// A tree that does not span all devices yet.
struct PartialTree {
  SpanningTree tree;
  std::vector<std::int32_t> reached;  // ranks, in the order in which they joined
};

class TreeGrower {
 public:
  TreeGrower(RoutedGraph graph, std::span<const std::int32_t> devices, std::span<const std::int64_t> demands)
      : graph_(std::move(graph)), devices_(devices), waiting_(demands.begin(), demands.end()) {}

  std::vector<SpanningTree> grow() {
    for (std::size_t root = 0; root < devices_.size(); ++root) {
      if (waiting_[root] == 0) continue;
      const auto rank = static_cast<std::int32_t>(root);
      partial_.push_back({{rank, waiting_[root], {}}, {rank}});
      waiting_[root] = 0;
      while (!partial_.empty()) {
        PartialTree next = std::move(partial_.back());
        partial_.pop_back();
        finished_.push_back(finish(std::move(next)));
      }
    }
    return std::move(finished_);
  }

 private:
  // Where an edge has room for some of the tree's pieces only, the others become a tree of their own, for later.
  SpanningTree finish(PartialTree growing) {
    for (std::size_t i = 0; i < growing.reached.size(); ++i) {
      const std::int32_t from = growing.reached[i];
      for (std::int32_t to = 0; to < static_cast<std::int32_t>(devices_.size()); ++to) {
        if (std::ranges::find(growing.reached, to) != growing.reached.end()) continue;
        const std::int64_t pieces = addable(growing, from, to);
        if (pieces == 0) continue;
        if (pieces < growing.tree.pieces) split(growing, pieces);
        growing.tree.edges.push_back({from, to, graph_.take(devices_[from], devices_[to], pieces)});
        growing.reached.push_back(to);
      }
    }
    WEFT_CHECK(growing.reached.size() == devices_.size());  // Edmonds: some edge can always be added
    return std::move(growing.tree);
  }

  void split(PartialTree& growing, std::int64_t pieces) {
    PartialTree rest = growing;
    rest.tree.pieces -= pieces;
    for (TreeEdge& edge : rest.tree.edges) edge.routes.clear();
    growing.tree.pieces = pieces;
    for (std::size_t i = 0; i < growing.tree.edges.size(); ++i) {
      divide(growing.tree.edges[i].routes, rest.tree.edges[i].routes, pieces);
    }
    partial_.push_back(std::move(rest));
  }

  // Keeps so much of the routes and moves the others.
  static void divide(std::vector<Route>& kept, std::vector<Route>& moved, std::int64_t pieces) {
    std::vector<Route> all = std::move(kept);
    kept.clear();
    for (Route& route : all) {
      const std::int64_t here = std::min(pieces, route.capacity);
      pieces -= here;
      if (here > 0) kept.push_back({route.vertices, here});
      if (here < route.capacity) moved.push_back({route.vertices, route.capacity - here});
    }
  }

  // How many pieces the tree may take over an edge so that all other trees can still be finished. Only sets of devices
  // that hold `to` lose by it, one unit for every piece, so one flow to `to` says how many are too many.
  std::int64_t addable(const PartialTree& growing, std::int32_t from, std::int32_t to) {
    const std::int64_t wanted = std::min(graph_.capacity(devices_[from], devices_[to]), growing.tree.pieces);
    if (wanted == 0) return 0;
    const auto source = static_cast<std::int32_t>(graph_.vertex_count());
    MaxFlow flow(graph_.vertex_count() + 3 + partial_.size());
    for (const auto& [ends, amount] : graph_.edges()) {
      const bool used = ends == std::pair(devices_[from], devices_[to]);
      flow.add_edge(ends.first, ends.second, used ? amount - wanted : amount);
    }
    std::int64_t total = 0;
    std::int32_t next = source + 1;
    const auto add_tree = [&](const std::vector<std::int32_t>& reached, std::int32_t also, std::int64_t pieces) {
      if (pieces == 0) return;
      total += pieces;
      flow.add_edge(source, next, pieces);
      for (const std::int32_t rank : reached) flow.add_edge(next, devices_[rank], pieces);
      if (also >= 0) flow.add_edge(next, devices_[also], pieces);
      ++next;
    };
    add_tree(growing.reached, to, wanted);
    add_tree(growing.reached, -1, growing.tree.pieces - wanted);
    for (const PartialTree& other : partial_) add_tree(other.reached, -1, other.tree.pieces);
    for (std::size_t rank = 0; rank < devices_.size(); ++rank) {
      if (waiting_[rank] == 0) continue;
      total += waiting_[rank];
      flow.add_edge(source, devices_[rank], waiting_[rank]);
    }
    return std::max<std::int64_t>(0, wanted - (total - flow.run(source, devices_[to], total)));
  }

  RoutedGraph graph_;
  std::span<const std::int32_t> devices_;
  std::vector<std::int64_t> waiting_;  // pieces whose trees have not begun
  std::vector<PartialTree> partial_;
  std::vector<SpanningTree> finished_;
};

}  // namespace

std::vector<SpanningTree> grow_trees(RoutedGraph graph, std::span<const std::int32_t> devices,
                                     std::span<const std::int64_t> demands) {
  return TreeGrower(std::move(graph), devices, demands).grow();
}

}  // namespace weft
