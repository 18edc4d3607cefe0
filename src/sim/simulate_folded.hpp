// Simulates without writing out what repeats: the result has the times of nodes (folding.hpp), and of the few
// operations inside folds that took longer than alone.
#pragma once

#include "sim/folding.hpp"

namespace weft {

struct SlowedOperation {
  std::int32_t node = 0;
  std::int32_t offset = 0;  // within its fold
  Nanos length;
  friend auto operator<=>(const SlowedOperation&, const SlowedOperation&) = default;
};

struct FoldedIteration {
  std::vector<Nanos> start, end;        // by node
  std::vector<SlowedOperation> slowed;  // ascending; the other operations of folds took their time alone
};

// The fields are those of SimResult.
struct FoldedResult {
  Folding folding;
  std::vector<FoldedIteration> iterations;
  std::int32_t steady_first = 0;
  std::int32_t periods = 1;
  Nanos steady_begin;
  double period_ns = 0;
  bool repeats = false;
  SimWork work;
};

FoldedResult simulate_folded(const SimProblem& problem, const SimOptions& options = {});

// Adds spans and steady state to a timeline whose operations and dependencies are those of the problem: single
// operations and slowed ones as spans, the rest folded.
void add_simulated(const FoldedResult& result, Timeline& timeline);

// Consecutive operations of a node, in their order: `count` of them from `first` on, back to back from `start`, each as
// long as alone; or one (`slowed`) until `end`.
struct Stretch {
  std::int32_t first = 0, count = 1;
  Nanos start, end;
  bool slowed = false;
};
// Calls visit(Stretch) for all nodes in order. A single operation is always `slowed`: its end is stored.
template <class Visit>
void for_each_stretch(const Folding& folding, const FoldedIteration& iteration, Visit visit) {
  auto slowed = iteration.slowed.begin();
  for (std::size_t n = 0; n < folding.nodes.size(); ++n) {
    const FoldedNode& node = folding.nodes[n];
    if (!node.is_fold()) {
      visit(Stretch{node.first, 1, iteration.start[n], iteration.end[n], true});
      continue;
    }
    const std::int32_t end = node.first + node.count;
    std::int32_t next = node.first;
    Nanos now = iteration.start[n];
    const auto follow_until = [&](std::int32_t until) {
      if (until == next) return;
      const auto alone = folding.alone_before.begin();
      const Nanos length{alone[until] - alone[next]};
      visit(Stretch{next, until - next, now, now + length, false});
      now += length;
      next = until;
    };
    for (; slowed != iteration.slowed.end() && slowed->node == static_cast<std::int32_t>(n); ++slowed) {
      follow_until(node.first + slowed->offset);
      visit(Stretch{next, 1, now, now + slowed->length, true});
      now += slowed->length;
      ++next;
    }
    follow_until(end);
  }
}

}  // namespace weft
