#include "planner/schedule/cyclic/cyclic_graph.hpp"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "base/error.hpp"

namespace weft {

CyclicGraph::Lists CyclicGraph::lists(std::size_t operations, const std::vector<CyclicEdge>& edges, bool incoming) {
  Lists result;
  result.begin.assign(operations + 1, 0);
  for (const CyclicEdge& edge : edges) ++result.begin[at(incoming ? edge.to : edge.from) + 1];
  for (std::size_t i = 0; i < operations; ++i) result.begin[i + 1] += result.begin[i];
  std::vector<std::int32_t> next(result.begin.begin(), result.begin.end() - 1);
  result.neighbours.resize(edges.size());
  for (const CyclicEdge& edge : edges) {
    const std::int32_t slot = next[at(incoming ? edge.to : edge.from)]++;
    result.neighbours[at(slot)] = {incoming ? edge.from : edge.to, edge.distance};
  }
  return result;
}

CyclicGraph::CyclicGraph(const CyclicProblem& problem) : queues_(problem.queues), links_(problem.links) {
  const auto count = static_cast<std::int32_t>(problem.operations.size());
  std::vector<CyclicEdge> edges = problem.edges;
  for (const CyclicEdge& edge : edges) {
    WEFT_CHECK(edge.from >= 0 && edge.from < count && edge.to >= 0 && edge.to < count);
    WEFT_CHECK(edge.distance == 0 || edge.distance == 1);
  }
  std::vector<double> work(resources(), 0);
  std::vector<std::int32_t> last_fixed(at(queues_), -1);
  for (std::int32_t i = 0; i < count; ++i) {
    const CyclicOperation& operation = problem.operations[at(i)];
    WEFT_CHECK(operation.queue >= 0 && operation.queue < queues_);
    WEFT_CHECK(operation.link >= -1 && operation.link < links_);
    WEFT_CHECK(operation.ns >= 0);
    queue_.push_back(operation.queue);
    link_.push_back(operation.link < 0 ? -1 : queues_ + operation.link);
    ns_.push_back(operation.ns);
    total_ns_ += operation.ns;
    work[at(queue_.back())] += operation.ns;
    if (link_.back() >= 0) work[at(link_.back())] += operation.ns;
    if (operation.fixed_order) {
      std::int32_t& last = last_fixed[at(operation.queue)];
      if (last >= 0) edges.push_back({last, i, 0});
      last = i;
    }
  }
  for (std::size_t r = 0; r < work.size(); ++r) {
    if (work[r] > busiest_ns_) busiest_ = static_cast<std::int32_t>(r), busiest_ns_ = work[r];
  }
  in_ = lists(size(), edges, true);
  out_ = lists(size(), edges, false);
}

CyclicGraph CyclicGraph::backwards() const {
  CyclicGraph result = *this;
  std::swap(result.in_, result.out_);
  return result;
}

// `chains`: operations that also follow each other. Of those that may come next, the lowest index.
std::optional<std::vector<std::int32_t>> CyclicGraph::sorted(
    const std::vector<std::vector<std::int32_t>>& chains) const {
  std::vector<std::vector<std::int32_t>> followers(size());
  std::vector<std::int32_t> missing(size(), 0);
  for (const auto& chain : chains) {
    for (std::size_t i = 1; i < chain.size(); ++i) {
      followers[at(chain[i - 1])].push_back(chain[i]);
      ++missing[at(chain[i])];
    }
  }
  std::priority_queue<std::int32_t, std::vector<std::int32_t>, std::greater<>> ready;
  const auto count = static_cast<std::int32_t>(size());
  for (std::int32_t i = 0; i < count; ++i) {
    for (const CyclicNeighbour& n : before(i)) missing[at(i)] += n.distance == 0 ? 1 : 0;
    if (missing[at(i)] == 0) ready.push(i);
  }
  std::vector<std::int32_t> sequence;
  sequence.reserve(size());
  while (!ready.empty()) {
    const std::int32_t i = ready.top();
    ready.pop();
    sequence.push_back(i);
    const auto passed = [&](std::int32_t to) {
      if (--missing[at(to)] == 0) ready.push(to);
    };
    for (const CyclicNeighbour& n : after(i)) {
      if (n.distance == 0) passed(n.operation);
    }
    for (std::int32_t to : followers[at(i)]) passed(to);
  }
  if (sequence.size() < size()) return std::nullopt;
  return sequence;
}

std::optional<std::vector<std::int32_t>> CyclicGraph::any_sequence() const {
  return sorted({});
}

std::optional<std::vector<std::int32_t>> CyclicGraph::sequence_of(const QueueOrders& orders) const {
  WEFT_CHECK(orders.queues.size() == at(queues_) && orders.links.size() == at(links_));
  std::vector<std::vector<std::int32_t>> chains = orders.queues;
  chains.insert(chains.end(), orders.links.begin(), orders.links.end());
  std::vector<std::int32_t> times_named(size(), 0);
  for (std::size_t r = 0; r < chains.size(); ++r) {
    for (std::int32_t i : chains[r]) {
      WEFT_CHECK(i >= 0 && at(i) < size());
      WEFT_CHECK(at(queue(i)) == r || (link(i) >= 0 && at(link(i)) == r));
      ++times_named[at(i)];
    }
  }
  for (std::size_t i = 0; i < size(); ++i) WEFT_CHECK(times_named[i] == (link_[i] >= 0 ? 2 : 1));
  return sorted(chains);
}

QueueOrders CyclicGraph::orders_of(std::span<const std::int32_t> sequence) const {
  QueueOrders orders;
  orders.queues.resize(at(queues_));
  orders.links.resize(at(links_));
  for (std::int32_t i : sequence) {
    orders.queues[at(queue(i))].push_back(i);
    if (link(i) >= 0) orders.links[at(link(i) - queues_)].push_back(i);
  }
  return orders;
}

}  // namespace weft
