#include "planner/schedule/cyclic/improve_order.hpp"

#include <algorithm>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "planner/schedule/cyclic/fitted_order.hpp"
#include "planner/schedule/cyclic/greedy_queues.hpp"
#include "planner/schedule/cyclic/period.hpp"
#include "planner/schedule/cyclic/sequence_moves.hpp"
#include "planner/schedule/cyclic/urgency.hpp"

namespace weft {

namespace {

// Of one stretch of the critical cycle, and of all of them, tried before it gives up.
constexpr std::size_t kMovesOffStretch = 12;
constexpr std::size_t kMovesTried = 48;
// For how many moves one is not undone.
constexpr std::int64_t kTabuAtLeast = 4, kTabuSpread = 8;
// Moves without a better order before it starts anew.
constexpr std::int64_t kPatience = 40;
// Above that many operations, what chance makes is never good enough to start from.
constexpr std::size_t kFewOperations = 40;
// What list_sequences looks at, about, per operation.
constexpr std::int64_t kListVisits = 100;

class OrderSearch {
 public:
  OrderSearch(const CyclicGraph& graph, std::vector<std::int32_t> sequence, double bound, const ImproveOptions& options)
      : graph_(graph),
        options_(options),
        bound_(bound),
        small_(1e-10 * bound),
        periods_(graph),
        mover_(graph),
        fitted_(graph),
        random_(options.seed),
        current_{std::move(sequence), 0} {
    settle();
    best_ = current_;
  }

  void run() {
    std::int64_t since_better = 0;
    double shortest = current_.period_ns;  // since it last started anew
    while (!optimal() && visits() < options_.visits) {
      if (!step(shortest) || ++since_better > kPatience) {
        start_anew();
        shortest = current_.period_ns;
        since_better = 0;
      }
      if (current_.period_ns < shortest - small_) {
        shortest = current_.period_ns;
        since_better = 0;
      }
      if (current_.period_ns < best_.period_ns - small_) best_ = current_;
    }
  }

  const SequenceFound& best() const { return best_; }
  bool optimal() const { return best_.period_ns <= bound_ + small_; }
  std::int64_t visits() const { return periods_.visits() + fitted_.visits() + list_visits_; }

 private:
  // A pair that was put in order: not to be turned round until then.
  struct Tabu {
    std::int32_t first, second;
    std::int64_t until;
  };

  // Takes the first move that leaves the step short enough; false: there is none.
  bool step(double shortest) {
    std::vector<SequenceMove> moves =
        moves_off_cycle(graph_, current_.sequence, cycle_, kMovesOffStretch, static_cast<std::size_t>(turns_++));
    shuffle(moves);
    if (moves.size() > kMovesTried) moves.resize(kMovesTried);
    // Up to twice as much longer as one of the operations takes.
    const auto some = static_cast<std::int32_t>(below(static_cast<std::int64_t>(graph_.size())));
    const double longer = 0.02 * static_cast<double>(below(100)) * graph_.ns(some);
    const double limit = std::max(current_.period_ns, shortest + longer);
    for (const SequenceMove& move : moves) {
      if (visits() >= options_.visits) break;
      if (is_tabu(move) || !fitted_.try_move(move, limit)) continue;
      current_.sequence = fitted_.sequence();
      const auto [first, second] = put_in_order(move);
      std::erase_if(tabu_, [&](const Tabu& tabu) { return tabu.until < steps_; });
      tabu_.push_back({first, second, steps_ + kTabuAtLeast + below(kTabuSpread)});
      ++steps_;
      settle();
      return true;
    }
    return false;
  }

  static std::pair<std::int32_t, std::int32_t> put_in_order(const SequenceMove& move) {
    return move.behind ? std::pair(move.anchor, move.operation) : std::pair(move.operation, move.anchor);
  }

  bool is_tabu(const SequenceMove& move) const {
    const auto [first, second] = put_in_order(move);
    return std::any_of(tabu_.begin(), tabu_.end(), [&](const Tabu& tabu) {
      return tabu.first == second && tabu.second == first && tabu.until >= steps_;
    });
  }

  // The period, cycle and end times of the current sequence, whatever was searched before.
  void settle() {
    periods_.start_from(std::vector<double>(graph_.size(), 0));
    current_.period_ns = periods_.find(current_.sequence, {.from = bound_});
    cycle_ = periods_.cycle();
    // In the order of time: then a move takes along only what runs at the same time. Stable, as operations may be
    // empty.
    std::stable_sort(current_.sequence.begin(), current_.sequence.end(),
                     [&](std::int32_t i, std::int32_t j) { return start(i) < start(j); });
    fitted_.set(current_.sequence, periods_.ends());
  }
  double start(std::int32_t i) const { return periods_.ends()[i] - graph_.ns(i); }

  // In turn from the best orders with some operations moved, and from orders made in one go: by every rule, then, where
  // there are few operations, by urgencies that are partly chance.
  void start_anew() {
    tabu_.clear();
    const std::int64_t cost = kListVisits * static_cast<std::int64_t>(graph_.size());
    if (restarts_ == 0 && visits() + cost < options_.visits) {
      starts_ = list_sequences(graph_);
      list_visits_ = cost;
    }
    const std::size_t turn = ++restarts_ / 2;
    if (restarts_ % 2 == 0 && turn <= starts_.size()) {
      current_ = starts_[turn - 1];
    } else if (restarts_ % 2 == 0 && graph_.size() <= kFewOperations) {
      current_.sequence = by_chance();
    } else {
      current_ = best_;
      move_some();
    }
    settle();
  }

  void move_some() {
    const auto count = static_cast<std::int64_t>(graph_.size());
    for (std::int64_t k = 2 + below(3); k > 0; --k) {
      const auto i = static_cast<std::int32_t>(below(count)), j = static_cast<std::int32_t>(below(count));
      if (graph_.queue(i) != graph_.queue(j)) continue;
      if (!mover_.apply({i, j, true, true}, current_.sequence)) mover_.apply({i, j, false, true}, current_.sequence);
    }
  }

  std::vector<std::int32_t> by_chance() {
    std::vector<double> urgency = urgency_by_next_use(graph_, best_.sequence, best_.period_ns, 2);
    const double chance = 0.01 * static_cast<double>(10 + below(90)) * best_.period_ns;
    for (double& u : urgency) u += chance * 1e-6 * static_cast<double>(below(1'000'000));
    GreedyQueues queues(graph_, std::move(urgency));
    for (std::int64_t k = below(3); k > 0; --k) queues.run_iteration();
    return queues.run_iteration();
  }

  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(bound));
  }
  void shuffle(std::vector<SequenceMove>& moves) {
    for (std::size_t i = moves.size(); i > 1; --i) std::swap(moves[i - 1], moves[random_() % i]);
  }

  const CyclicGraph& graph_;
  const ImproveOptions options_;
  const double bound_, small_;
  PeriodSearch periods_;
  SequenceMover mover_;
  FittedOrder fitted_;
  std::mt19937 random_;
  SequenceFound current_, best_;
  std::vector<std::int32_t> cycle_;  // of the current sequence
  std::vector<Tabu> tabu_;
  std::vector<SequenceFound> starts_;
  std::int64_t steps_ = 0, turns_ = 0, restarts_ = 0, list_visits_ = 0;
};

Improved improve_sequence(const CyclicProblem& problem, const CyclicGraph& graph, std::vector<std::int32_t> sequence,
                          const ImproveOptions& options) {
  OrderSearch search(graph, std::move(sequence), std::max(options.bound_ns, period_bound(problem)), options);
  search.run();
  return {graph.orders_of(search.best().sequence), search.best().period_ns, search.visits(), search.optimal()};
}

}  // namespace

Improved improve_order(const CyclicProblem& problem, const QueueOrders& orders, const ImproveOptions& options) {
  const CyclicGraph graph(problem);
  auto sequence = graph.sequence_of(orders);
  WEFT_CHECK(sequence.has_value());
  return improve_sequence(problem, graph, std::move(*sequence), options);
}

Improved plan_order(const CyclicProblem& problem, const ImproveOptions& options) {
  const CyclicGraph graph(problem);
  return improve_sequence(problem, graph, list_sequence(graph).sequence, options);
}

}  // namespace weft
