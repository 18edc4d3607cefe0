#include "planner/schedule/cyclic/list_order.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "planner/schedule/cyclic/greedy_queues.hpp"
#include "planner/schedule/cyclic/period.hpp"
#include "planner/schedule/cyclic/urgency.hpp"

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
  explicit ListRules(const CyclicGraph& graph) : graph_(graph), backwards_(graph.backwards()), periods_(graph) {
    auto any = graph.any_sequence();
    WEFT_CHECK(any.has_value());
    any_ = std::move(*any);
    any_backwards_.assign(any_.rbegin(), any_.rend());
    keep(any_);
  }

  SequenceFound best() {
    // As the operations were given.
    std::vector<double> given(graph_.size());
    for (std::size_t i = 0; i < given.size(); ++i) given[i] = -static_cast<double>(i);
    run(graph_, given);
    run(graph_, urgency_in_iteration(graph_, any_));
    run(backwards_, urgency_in_iteration(backwards_, any_backwards_));
    attempt([](const CyclicGraph& graph, const auto& any) { return urgency_by_next_use(graph, any, 0, 1); });
    for (const double period : {graph_.busiest_ns(), best_.period_ns}) {
      attempt(
          [&](const CyclicGraph& graph, const auto& any) { return urgency_by_next_use(graph, any, period, kAhead); });
    }
    for (int round = 0; round < kRounds; ++round) {
      if (!refine()) break;
    }
    return best_;
  }

  // After best().
  std::vector<SequenceFound> all() {
    std::stable_sort(all_.begin(), all_.end(), [](const auto& a, const auto& b) { return a.period_ns < b.period_ns; });
    const auto same = [](const auto& a, const auto& b) { return a.period_ns == b.period_ns; };
    all_.erase(std::unique(all_.begin(), all_.end(), same), all_.end());
    return std::move(all_);
  }

 private:
  bool done() const { return best_.period_ns <= graph_.busiest_ns(); }

  // True: one of the ways to use the urgency gave better orders.
  template <typename Urgency>
  bool attempt(const Urgency& urgency) {
    if (done()) return false;
    const bool sorted = keep(sort(any_, urgency(graph_, any_)));
    const bool forwards = run(graph_, urgency(graph_, any_));
    return run(backwards_, urgency(backwards_, any_backwards_)) || sorted || forwards;
  }

  // With the waits for queues of the best orders so far.
  bool refine() {
    if (done()) return false;
    const std::vector<std::int32_t> forwards = best_.sequence, backwards(forwards.rbegin(), forwards.rend());
    const double period = best_.period_ns;
    const std::vector<double> urgency = urgency_in_order(graph_, forwards, period, kAhead);
    const bool sorted = keep(sort(forwards, urgency));
    const bool better = run(graph_, urgency);
    return run(backwards_, urgency_in_order(backwards_, backwards, period, kAhead)) || sorted || better;
  }

  // The most urgent first, even if a queue has to wait for it. None stands before what it waits for: that is more
  // urgent.
  static std::vector<std::int32_t> sort(std::vector<std::int32_t> sequence, const std::vector<double>& urgency) {
    std::stable_sort(sequence.begin(), sequence.end(),
                     [&](std::int32_t i, std::int32_t j) { return urgency[i] > urgency[j]; });
    return sequence;
  }

  // Queues take what is ready; backwards: from the end of the step, so that what is needed late runs late.
  bool run(const CyclicGraph& graph, const std::vector<double>& urgency) {
    const bool better = run(graph, urgency, false);
    const bool compute_is_busiest = graph.busiest() == 0;
    return (!compute_is_busiest && run(graph, urgency, true)) || better;
  }
  bool run(const CyclicGraph& graph, const std::vector<double>& urgency, bool feeds_busiest) {
    if (done()) return false;
    GreedyQueues queues(graph, urgency, feeds_busiest);
    SequenceFound best;
    for (int k = 0; k < kIterations; ++k) {
      std::vector<std::int32_t> sequence = queues.run_iteration();
      if (&graph == &backwards_) std::reverse(sequence.begin(), sequence.end());
      const double found = periods_.find(sequence);
      if (best.sequence.empty() || found < best.period_ns) best = {std::move(sequence), found};
    }
    return keep(std::move(best));
  }

  // True: the best so far.
  bool keep(SequenceFound found) {
    const bool better = best_.sequence.empty() || found.period_ns < best_.period_ns;
    if (better) best_ = found;
    all_.push_back(std::move(found));
    return better;
  }
  bool keep(std::vector<std::int32_t> sequence) {
    const double found = periods_.find(sequence);
    return keep({std::move(sequence), found});
  }

  const CyclicGraph& graph_;
  const CyclicGraph backwards_;
  PeriodSearch periods_;
  std::vector<std::int32_t> any_, any_backwards_;
  SequenceFound best_;
  std::vector<SequenceFound> all_;
};

}  // namespace

SequenceFound list_sequence(const CyclicGraph& graph) {
  return ListRules(graph).best();
}

std::vector<SequenceFound> list_sequences(const CyclicGraph& graph) {
  ListRules rules(graph);
  rules.best();
  return rules.all();
}

OrderFound list_order(const CyclicProblem& problem) {
  const CyclicGraph graph(problem);
  const SequenceFound found = list_sequence(graph);
  return {graph.orders_of(found.sequence), found.period_ns};
}

}  // namespace weft
