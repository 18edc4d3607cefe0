#include "planner/schedule/cyclic/period.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace weft {

namespace {

std::size_t at(std::int32_t index) {
  return index;
}

}  // namespace

PeriodSearch::PeriodSearch(const CyclicGraph& graph)
    : graph_(graph),
      tolerance_(1e-13 * graph.total_ns()),
      ends_(graph.size(), 0),
      parents_(graph.size()),
      last_of_(graph.resources(), -1),
      mark_(graph.size()) {}

// Raises end times once along the sequence; true: some moved.
bool PeriodSearch::sweep(std::span<const std::int32_t> sequence, double guess) {
  free_after_ = last_of_;
  first_.assign(graph_.resources(), 1);
  bool moved = false;
  for (std::int32_t i : sequence) {
    double start = -std::numeric_limits<double>::infinity();
    Parent parent;
    const auto wait = [&](std::int32_t from, std::int32_t distance) {
      const double end = ends_[at(from)] - guess * distance;
      if (end > start) {
        start = end;
        parent = {from, distance};
      }
    };
    const auto wait_for_resource = [&](std::int32_t resource) {
      wait(free_after_[at(resource)], first_[at(resource)]);
      free_after_[at(resource)] = i;
      first_[at(resource)] = 0;
    };
    for (const CyclicNeighbour& n : graph_.before(i)) wait(n.operation, n.distance);
    wait_for_resource(graph_.queue(i));
    if (graph_.link(i) >= 0) wait_for_resource(graph_.link(i));
    const double end = start + graph_.ns(i);
    if (end > ends_[at(i)] + tolerance_) {
      ends_[at(i)] = end;
      parents_[at(i)] = parent;
      moved = true;
    }
  }
  visits_ += static_cast<std::int64_t>(sequence.size());
  return moved;
}

double PeriodSearch::ratio_of_cycle_through(std::int32_t operation) const {
  double ns = 0;
  std::int32_t iterations = 0, i = operation;
  do {
    ns += graph_.ns(i);
    iterations += parents_[at(i)].distance;
    i = parents_[at(i)].operation;
  } while (i != operation);
  // A sequence leads forwards within an iteration, so every cycle spans one at least.
  WEFT_CHECK(iterations > 0);
  return ns / iterations;
}

void PeriodSearch::keep_cycle_through(std::int32_t operation) {
  cycle_.clear();
  std::int32_t i = operation;
  do {
    cycle_.push_back(i);
    i = parents_[at(i)].operation;
  } while (i != operation);
  std::reverse(cycle_.begin(), cycle_.end());
}

double PeriodSearch::find_cycle() {
  std::fill(mark_.begin(), mark_.end(), -1);
  double best = 0;
  std::int32_t through = -1;
  const auto count = static_cast<std::int32_t>(graph_.size());
  for (std::int32_t start = 0; start < count; ++start) {
    std::int32_t i = start;
    while (i >= 0 && mark_[at(i)] < 0) {
      mark_[at(i)] = start;
      i = parents_[at(i)].operation;
    }
    if (i < 0 || mark_[at(i)] != start) continue;  // ends, or met what an earlier start has followed
    const double ratio = ratio_of_cycle_through(i);
    if (ratio > best) {
      best = ratio;
      through = i;
    }
  }
  if (through >= 0) keep_cycle_through(through);
  return best;
}

double PeriodSearch::find(std::span<const std::int32_t> sequence, Range range) {
  WEFT_CHECK(sequence.size() == graph_.size());
  std::fill(last_of_.begin(), last_of_.end(), -1);
  for (std::int32_t i : sequence) {
    last_of_[at(graph_.queue(i))] = i;
    if (graph_.link(i) >= 0) last_of_[at(graph_.link(i))] = i;
  }
  cycle_.clear();
  std::fill(parents_.begin(), parents_.end(), Parent{});
  double guess = std::max(range.from, graph_.busiest_ns());
  while (guess <= range.to && sweep(sequence, guess)) {
    const double ratio = find_cycle();
    if (ratio == 0) continue;
    if (ratio <= guess) break;  // above the guess by less than numbers can say
    guess = ratio;
    std::fill(parents_.begin(), parents_.end(), Parent{});
  }
  return guess;
}

std::optional<double> period(const CyclicProblem& problem, const QueueOrders& orders) {
  const CyclicGraph graph(problem);
  const auto sequence = graph.sequence_of(orders);
  if (!sequence) return std::nullopt;
  return PeriodSearch(graph).find(*sequence);
}

double period_bound(const CyclicProblem& problem) {
  // Without queues there is nothing left but data: every operation has a queue of its own.
  CyclicProblem data{.queues = static_cast<std::int32_t>(problem.operations.size()),
                     .links = 0,
                     .operations = problem.operations,
                     .edges = problem.edges};
  std::int32_t own = 0;
  for (CyclicOperation& operation : data.operations) {
    operation.queue = own++;
    operation.link = -1;
  }
  const CyclicGraph graph(problem), alone(data);
  const auto sequence = alone.any_sequence();
  if (!sequence) return std::numeric_limits<double>::infinity();
  return PeriodSearch(alone).find(*sequence, {.from = graph.busiest_ns()});
}

}  // namespace weft
