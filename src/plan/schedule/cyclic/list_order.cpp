#include "plan/schedule/cyclic/list_order.hpp"

#include <utility>

#include "base/error.hpp"
#include "plan/schedule/cyclic/greedy_lanes.hpp"
#include "plan/schedule/cyclic/period.hpp"
#include "plan/schedule/cyclic/urgency.hpp"

namespace weft {

namespace {

// The first iteration finds the links idle, later ones find what the one before left on them.
constexpr int kIterations = 3;
// How many iterations ahead a chain is followed.
constexpr int kAhead = 3;
// How often the best order is turned into urgencies again, while that helps.
constexpr int kRounds = 4;

class ListRules {
 public:
  explicit ListRules(const CyclicGraph& graph) : graph_(graph), periods_(graph) {
    auto any = graph.any_sequence();
    WEFT_CHECK(any.has_value());
    any_ = std::move(*any);
    keep_if_better(any_);
  }

  SequenceFound best() {
    // As the operations were given.
    std::vector<double> given(graph_.size());
    for (std::size_t i = 0; i < given.size(); ++i) given[i] = -static_cast<double>(i);
    attempt(std::move(given));
    attempt(urgency_in_iteration(graph_, any_));
    attempt(urgency_by_next_use(graph_, any_, 0, 1));
    attempt(urgency_by_next_use(graph_, any_, graph_.busiest_ns(), kAhead));
    attempt(urgency_by_next_use(graph_, any_, best_.period_ns, kAhead));
    for (int round = 0; round < kRounds; ++round) {
      if (!attempt(urgency_in_order(graph_, best_.sequence, best_.period_ns, kAhead))) break;
    }
    return std::move(best_);
  }

 private:
  // True: it gave a better one.
  bool attempt(std::vector<double> urgency) {
    if (best_.period_ns <= graph_.busiest_ns()) return false;
    GreedyLanes lanes(graph_, std::move(urgency));
    bool better = false;
    for (int k = 0; k < kIterations; ++k) better |= keep_if_better(lanes.run_iteration());
    return better;
  }

  bool keep_if_better(std::vector<std::int32_t> sequence) {
    const double found = periods_.find(sequence);
    if (!best_.sequence.empty() && found >= best_.period_ns) return false;
    best_ = {std::move(sequence), found};
    return true;
  }

  const CyclicGraph& graph_;
  PeriodSearch periods_;
  std::vector<std::int32_t> any_;
  SequenceFound best_;
};

}  // namespace

SequenceFound list_sequence(const CyclicGraph& graph) {
  return ListRules(graph).best();
}

OrderFound list_order(const CyclicProblem& problem) {
  const CyclicGraph graph(problem);
  const SequenceFound found = list_sequence(graph);
  return {graph.orders_of(found.sequence), found.period_ns};
}

}  // namespace weft
