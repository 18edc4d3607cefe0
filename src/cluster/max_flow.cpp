#include "cluster/max_flow.hpp"

#include <algorithm>

namespace weft {

void MaxFlow::add_edge(std::int32_t from, std::int32_t to, std::int64_t capacity) {
  edges_.push_back({to, first_[from], capacity, 0});
  first_[from] = static_cast<std::int32_t>(edges_.size()) - 1;
  edges_.push_back({from, first_[to], 0, 0});
  first_[to] = static_cast<std::int32_t>(edges_.size()) - 1;
}

std::int64_t MaxFlow::run(std::int32_t source, std::int32_t sink, std::int64_t enough) {
  for (Edge& edge : edges_) edge.left = edge.capacity;
  std::int64_t flow = 0;
  while (flow < enough && find_levels(source, sink)) {
    at_ = first_;
    while (const std::int64_t more = flow < enough ? push(source, sink, enough - flow) : 0) flow += more;
  }
  return flow;
}

std::vector<bool> MaxFlow::source_side() const {
  std::vector<bool> side(level_.size());
  for (std::size_t i = 0; i < side.size(); ++i) side[i] = level_[i] >= 0;
  return side;
}

bool MaxFlow::find_levels(std::int32_t source, std::int32_t sink) {
  level_.assign(first_.size(), -1);
  level_[source] = 0;
  queue_.assign(1, source);
  for (std::size_t i = 0; i < queue_.size(); ++i) {
    const std::int32_t vertex = queue_[i];
    for (std::int32_t e = first_[vertex]; e >= 0; e = edges_[e].next) {
      const Edge& edge = edges_[e];
      if (edge.left == 0 || level_[edge.to] >= 0) continue;
      level_[edge.to] = level_[vertex] + 1;
      queue_.push_back(edge.to);
    }
  }
  return level_[sink] >= 0;
}

std::int64_t MaxFlow::push(std::int32_t vertex, std::int32_t sink, std::int64_t limit) {
  if (vertex == sink) return limit;
  for (std::int32_t& e = at_[vertex]; e >= 0; e = edges_[e].next) {
    Edge& edge = edges_[e];
    if (edge.left == 0 || level_[edge.to] != level_[vertex] + 1) continue;
    const std::int64_t pushed = push(edge.to, sink, std::min(limit, edge.left));
    if (pushed == 0) continue;
    edge.left -= pushed;
    edges_[e ^ 1].left += pushed;
    return pushed;
  }
  return 0;
}

}  // namespace weft
