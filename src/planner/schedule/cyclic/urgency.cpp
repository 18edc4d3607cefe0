#include "planner/schedule/cyclic/urgency.hpp"

#include <algorithm>

namespace weft {

namespace {

std::size_t at(std::int32_t index) {
  return index;
}

// Chains are followed backwards: from the end of the sequence to its beginning, once per iteration looked at.
class BackwardChains {
 public:
  BackwardChains(const CyclicGraph& graph, std::span<const std::int32_t> sequence, double period, bool queues)
      : graph_(graph), sequence_(sequence), period_(period), queues_(queues), from_start_(graph.size(), 0) {
    for (std::int32_t i : sequence) from_start_[at(i)] = graph.ns(i);
    if (!queues) return;
    first_of_.assign(graph.resources(), -1);
    for (auto i = sequence.rbegin(); i != sequence.rend(); ++i) {
      first_of_[at(graph.queue(*i))] = *i;
      if (graph.link(*i) >= 0) first_of_[at(graph.link(*i))] = *i;
    }
  }

  // True: some chain grew.
  bool extend(bool into_next_iteration) {
    std::vector<std::int32_t> next = first_of_;
    std::vector<char> within(first_of_.size(), 0);
    bool grew = false;
    for (auto it = sequence_.rbegin(); it != sequence_.rend(); ++it) {
      const std::int32_t i = *it;
      double longest = 0;
      for (const CyclicNeighbour& n : graph_.after(i)) {
        if (n.distance == 0 || into_next_iteration) {
          longest = std::max(longest, from_start_[at(n.operation)] - period_ * n.distance);
        }
      }
      const auto follow_resource = [&](std::int32_t resource) {
        if (within[at(resource)] != 0 || into_next_iteration) {
          longest =
              std::max(longest, from_start_[at(next[at(resource)])] - (within[at(resource)] != 0 ? 0.0 : period_));
        }
        next[at(resource)] = i;
        within[at(resource)] = 1;
      };
      if (queues_) {
        follow_resource(graph_.queue(i));
        if (graph_.link(i) >= 0) follow_resource(graph_.link(i));
      }
      if (graph_.ns(i) + longest > from_start_[at(i)]) {
        from_start_[at(i)] = graph_.ns(i) + longest;
        grew = true;
      }
    }
    return grew;
  }

  std::vector<double> take() { return std::move(from_start_); }

 private:
  const CyclicGraph& graph_;
  std::span<const std::int32_t> sequence_;
  double period_;
  bool queues_;
  std::vector<double> from_start_;
  std::vector<std::int32_t> first_of_;  // by resource
};

std::vector<double> chains(const CyclicGraph& graph, std::span<const std::int32_t> sequence, double period,
                           int iterations, bool queues) {
  BackwardChains result(graph, sequence, period, queues);
  result.extend(false);
  for (int k = 0; k < iterations && result.extend(true); ++k) {
  }
  return result.take();
}

}  // namespace

std::vector<double> urgency_in_iteration(const CyclicGraph& graph, std::span<const std::int32_t> sequence) {
  return chains(graph, sequence, 0, 0, false);
}

std::vector<double> urgency_by_next_use(const CyclicGraph& graph, std::span<const std::int32_t> sequence, double period,
                                        int iterations) {
  return chains(graph, sequence, period, iterations, false);
}

std::vector<double> urgency_in_order(const CyclicGraph& graph, std::span<const std::int32_t> sequence, double period,
                                     int iterations) {
  return chains(graph, sequence, period, iterations, true);
}

}  // namespace weft
