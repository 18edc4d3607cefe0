#include "planner/schedule/cyclic/exact_order.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "planner/schedule/cyclic/period.hpp"
#include "planner/schedule/cyclic/start_windows.hpp"

namespace weft {

namespace {

using OperationPair = std::pair<std::int32_t, std::int32_t>;

// Operations that nothing tells apart: the lower index goes first.
bool interchangeable(const CyclicGraph& graph, std::int32_t i, std::int32_t j) {
  if (graph.queue(i) != graph.queue(j) || graph.link(i) != graph.link(j) || graph.ns(i) != graph.ns(j)) return false;
  const auto sorted = [](std::span<const CyclicNeighbour> neighbours) {
    std::vector<OperationPair> list;
    for (const CyclicNeighbour& n : neighbours) list.emplace_back(n.operation, n.distance);
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    return list;
  };
  return sorted(graph.before(i)) == sorted(graph.before(j)) && sorted(graph.after(i)) == sorted(graph.after(j));
}

class ExactSearch {
 public:
  explicit ExactSearch(const CyclicGraph& graph) : graph_(graph) {
    const auto count = static_cast<std::int32_t>(graph.size());
    for (std::int32_t i = 0; i < count; ++i) {
      for (std::int32_t j = i + 1; j < count; ++j) {
        if (graph.queue(i) == graph.queue(j) || (graph.link(i) >= 0 && graph.link(i) == graph.link(j))) {
          pairs_.emplace_back(i, j);
          if (interchangeable(graph, i, j)) alike_.emplace_back(i, j);
        }
      }
    }
  }

  // Orders whose period is not above this one, if there are any.
  std::optional<std::vector<std::int32_t>> find(double period) const {
    StartWindows windows(graph_, period);
    for (const auto& [i, j] : alike_) windows.put_before(i, j);
    return explore(std::move(windows));
  }

 private:
  std::optional<std::vector<std::int32_t>> explore(StartWindows windows) const {
    OperationPair open;
    if (!decide_what_must_be(windows, open) || !windows.work_fits()) return std::nullopt;
    auto [i, j] = open;
    if (i == j) return sequence(windows);
    if (windows.slack_before(i, j) < windows.slack_before(j, i)) std::swap(i, j);
    StartWindows likely = windows;
    likely.put_before(i, j);
    if (auto found = explore(std::move(likely))) return found;
    windows.put_before(j, i);
    return explore(std::move(windows));
  }

  // Puts every pair in order that has only one way left; false: one has none. `open`: the pair with the least freedom
  // among those with two ways; (0, 0): there is none.
  bool decide_what_must_be(StartWindows& windows, OperationPair& open) const {
    for (bool decided = true; decided;) {
      decided = false;
      open = {0, 0};
      double least = 0;
      for (const auto& [i, j] : pairs_) {
        const double one = windows.slack_before(i, j), other = windows.slack_before(j, i);
        if (!windows.feasible() || (one < 0 && other < 0)) return false;
        if (other < 0) {
          decided |= windows.put_before(i, j);
        } else if (one < 0) {
          decided |= windows.put_before(j, i);
        } else if (open.first == open.second || one + other < least) {
          open = {i, j};
          least = one + other;
        }
      }
    }
    return windows.feasible();
  }

  // All pairs are in order: sorting by what follows gives a sequence.
  std::vector<std::int32_t> sequence(const StartWindows& windows) const {
    std::vector<std::int32_t> result;
    for (std::size_t i = 0; i < graph_.size(); ++i) result.push_back(static_cast<std::int32_t>(i));
    std::stable_sort(result.begin(), result.end(),
                     [&](std::int32_t i, std::int32_t j) { return windows.followers(i) > windows.followers(j); });
    return result;
  }

  const CyclicGraph& graph_;
  std::vector<OperationPair> pairs_, alike_;
};

}  // namespace

OrderFound exact_order(const CyclicProblem& problem) {
  const CyclicGraph graph(problem);
  const ExactSearch search(graph);
  PeriodSearch periods(graph);
  SequenceFound best = list_sequence(graph);
  while (best.period_ns > graph.busiest_ns()) {
    auto shorter = search.find(best.period_ns * (1 - 1e-10));
    if (!shorter) break;
    best.period_ns = periods.find(*shorter);
    best.sequence = std::move(*shorter);
  }
  return {graph.orders_of(best.sequence), best.period_ns};
}

}  // namespace weft
