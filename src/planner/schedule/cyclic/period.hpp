// The time of a repeating step in its steady state, for given orders.
//
// Every operation starts as soon as its queue and link are free and what it waits for has ended. The settled period of
// such a system is its maximum cycle ratio: over all cycles of waits, the operations' time divided by the iterations
// that the cycle spans (Baccelli, Cohen, Olsder, Quadrat, Synchronization and Linearity, 1992, section 2.5).
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "planner/schedule/cyclic/cyclic_graph.hpp"
#include "planner/schedule/cyclic/cyclic_problem.hpp"

namespace weft {

// Returns nanoseconds per iteration, or nothing at a deadlock: where the orders contradict edges of distance 0 or each
// other.
std::optional<double> period(const CyclicProblem& problem, const QueueOrders& orders);

// Returns a period that no order beats: the work of the busiest queue or link, or the largest cycle of data alone.
double period_bound(const CyclicProblem& problem);

// Finds maximum cycle ratios of many sequences of one graph, each search starting from the end times that the one
// before found: after a small change few of them move.
//
// For a guess of the period, end times are raised until no wait is violated. Either that settles, then the guess is no
// shorter than the period; or those who raised each other form a cycle, whose ratio is above the guess and becomes the
// next one (Newton's method on the cycle ratio, each test a Bellman-Ford in the order of the sequence). What it returns
// is the ratio of a cycle that exists, and the end times prove that none is above it, but for rounding (1e-13 of the
// work of all operations, per wait).
class PeriodSearch {
 public:
  // `graph` must outlive this.
  explicit PeriodSearch(const CyclicGraph& graph);

  struct Range {
    double from = 0;                                      // the search returns `from` for every shorter period
    double to = std::numeric_limits<double>::infinity();  // the search ends as soon as the period exceeds this
  };
  double find(std::span<const std::int32_t> sequence, Range range);
  double find(std::span<const std::int32_t> sequence) { return find(sequence, {}); }

  // The waits of the last search, in the order of time: each operation waits for the one before it, the first for the
  // last. Empty where the period was not above Range::from or the work of the busiest resource.
  const std::vector<std::int32_t>& cycle() const { return cycle_; }
  // Settled end times of the last search, where it was not ended by Range::to.
  const std::vector<double>& ends() const { return ends_; }
  // Starts the next search from these, say those of the sequence that will be changed.
  void start_from(const std::vector<double>& ends) { ends_ = ends; }
  // How many operations have been looked at so far; budgets count these.
  std::int64_t visits() const { return visits_; }

 private:
  struct Parent {
    std::int32_t operation = -1, distance = 0;
  };
  bool sweep(std::span<const std::int32_t> sequence, double guess);
  // The best cycle among those who raised each other; 0: none.
  double find_cycle();
  double ratio_of_cycle_through(std::int32_t operation) const;
  void keep_cycle_through(std::int32_t operation);

  const CyclicGraph& graph_;
  double tolerance_ = 0;
  std::vector<double> ends_;
  std::vector<Parent> parents_;
  std::vector<std::int32_t> last_of_;     // by resource, in the sequence
  std::vector<std::int32_t> free_after_;  // by resource: the operation before, during a sweep
  std::vector<char> first_;               // by resource: the operation before is of the previous iteration
  std::vector<std::int32_t> mark_;        // by operation, in find_cycle
  std::vector<std::int32_t> cycle_;
  std::int64_t visits_ = 0;
};

}  // namespace weft
