#include "planner/schedule/postpone.hpp"

#include <algorithm>
#include <vector>

#include "graph/op_lists.hpp"
#include "planner/schedule/compute_and_link.hpp"
#include "planner/schedule/extra_work.hpp"
#include "planner/schedule/next_use.hpp"

namespace weft {
namespace {

// Weight gradients of backward that only transfers of the step read, in their order.
std::vector<OpId> movable(const Plan& plan, const std::vector<OpId>& backward) {
  const OpLists readers = readers_by_value(plan.graph);
  std::vector<OpId> found;
  for (const OpId id : backward) {
    const Operation& op = plan.graph.op(id);
    if (op.phase != Phase::weight_grad || op.is_transfer() || op.key.kind != OpKind::gemm) continue;
    const bool free = std::all_of(op.writes.begin(), op.writes.end(), [&](const Write& write) {
      const auto list = readers[write.value.index()];
      return std::none_of(list.begin(), list.end(), [&](OpId r) { return plan.graph.op(r).per_micro_batch; });
    });
    if (free) found.push_back(id);
  }
  return found;
}

// Which weight gradients move.
struct Moves {
  std::vector<bool> last;  // by candidate: behind the rest of backward
  std::size_t early = 0;   // so many of the first come before the input gradient beside them, so that the link starts
};

// By weight gradient: when the next forward uses the parameter.
std::vector<std::int32_t> use_of_gradients(const StepGraph& graph) {
  const OpLists readers = readers_by_value(graph);
  const std::vector<std::int32_t> use = next_use(graph);
  std::vector<std::int32_t> result(graph.operations.size(), kNeverUsed);
  for (std::size_t i = 0; i < graph.operations.size(); ++i) {
    for (const Write& write : graph.operations[i].writes) {
      for (const OpId reader : readers[write.value.index()]) result[i] = std::min(result[i], use[reader.index()]);
    }
  }
  return result;
}

class Postponer {
 public:
  Postponer(Plan& plan, const CostModel& cost, std::size_t rank_class)
      : plan_(plan),
        backward_(block_of(plan.classes[rank_class], BlockKind::backward).operations),
        order_(backward_),
        candidates_(movable(plan, backward_)),
        use_(use_of_gradients(plan.graph)),
        estimate_(plan, cost, rank_class) {
    // Steps of thousands of layers are walked through a few times only: the search makes many such plans.
    constexpr std::int64_t kLongStep = 5'000;
    const std::int64_t walk = std::ssize(order_) + static_cast<std::int64_t>(estimate_.jobs());
    if (walk > kLongStep) budget_ = budget_ / walk * kLongStep;
    best_.last.assign(candidates_.size(), false);
    least_ = estimate_.period(order_);
  }

  void run() {
    if (candidates_.empty()) return;
    move_a_run();
    for (bool better = true; better && has_budget();) {
      better = hurry();
      better = toggle_one() || better;
      better = better || toggle_two();
    }
    backward_ = ordered(best_);
  }

 private:
  // The first few keep the link busy; of those behind them a run waits.
  void move_a_run() {
    for (const std::size_t skip : {0, 1, 2, 3, 4, 6, 8}) {
      for (const std::size_t count : {1, 2, 3, 4, 6, 8, 12, 16, 24}) {
        if (skip + count > candidates_.size()) break;
        Moves moves{std::vector<bool>(candidates_.size(), false)};
        for (std::size_t i = skip; i < skip + count; ++i) moves.last[i] = true;
        try_moves(moves);
      }
    }
  }

  bool hurry() {
    bool better = false;
    for (std::size_t early = 0; early <= std::min<std::size_t>(4, candidates_.size()); ++early) {
      Moves moves = best_;
      moves.early = early;
      better = try_moves(moves) || better;
    }
    return better;
  }

  bool toggle_one() {
    bool better = false;
    for (std::size_t i = 0; i < candidates_.size() && has_budget(); ++i) {
      Moves moves = best_;
      moves.last[i] = !moves.last[i];
      better = try_moves(moves) || better;
    }
    return better;
  }

  bool toggle_two() {
    bool better = false;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      for (std::size_t j = i + 1; j < candidates_.size() && has_budget(); ++j) {
        Moves moves = best_;
        moves.last[i] = !moves.last[i];
        moves.last[j] = !moves.last[j];
        better = try_moves(moves) || better;
      }
    }
    return better;
  }

  bool has_budget() const { return budget_ > 0 && waits_budget_ > 0; }

  bool try_moves(const Moves& moves) {
    if (!has_budget()) return false;
    budget_ -= static_cast<std::int64_t>(order_.size() + estimate_.jobs());
    waits_budget_ -= estimate_.waits();
    constexpr double kWorthwhileRatio = 0.999;  // what waits holds memory
    const double period = estimate_.period(ordered(moves));
    if (period >= least_ * kWorthwhileRatio) return false;
    least_ = period;
    best_ = moves;
    return true;
  }

  std::vector<OpId> ordered(const Moves& moves) const {
    std::vector<bool> waits(plan_.graph.operations.size(), false), hurries = waits;
    std::vector<OpId> last;
    std::size_t early = moves.early;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      if (moves.last[i]) {
        waits[candidates_[i].index()] = true;
        last.push_back(candidates_[i]);
      } else if (early > 0) {
        hurries[candidates_[i].index()] = true;
        --early;
      }
    }
    std::vector<OpId> result;
    for (const OpId id : order_) {
      if (waits[id.index()]) continue;
      result.push_back(id);
      if (hurries[id.index()] && result.size() > 1 && may_swap(result[result.size() - 2], id)) {
        std::swap(result[result.size() - 2], result.back());
      }
    }
    std::stable_sort(last.begin(), last.end(), [&](OpId a, OpId b) { return use_[a.index()] < use_[b.index()]; });
    result.insert(result.end(), last.begin(), last.end());
    return result;
  }

  bool may_swap(OpId before, OpId weight_grad) const {
    const Operation &a = plan_.graph.op(before), &b = plan_.graph.op(weight_grad);
    return !a.is_transfer() && a.phase == Phase::input_grad && a.layer == b.layer && a.role == b.role &&
           std::none_of(b.reads.begin(), b.reads.end(), [&](const Read& read) { return writes_value(a, read.value); });
  }

  Plan& plan_;
  std::vector<OpId>& backward_;
  std::vector<OpId> order_;  // of the graph
  std::vector<OpId> candidates_;
  std::vector<std::int32_t> use_;
  ComputeAndLink estimate_;
  Moves best_;
  double least_ = 0;
  std::int64_t budget_ = 2'000'000;         // operations and transfers to walk through: well under a second
  std::int64_t waits_budget_ = 20'000'000;  // and waits of transfers for each other, which are many where parts are
};

}  // namespace

void postpone_weight_grads(Plan& plan, const CostModel& cost) {
  if (plan.layout.pp > 1 || plan.layout.vpp > 1 || plan.layout.clip_grad > 0) return;
  if (plan.layout.zero > 2 || !plan.layout.reduces_once_a_step()) return;
  if (has_extra_work(plan.layout)) return;  // K-FAC's factors are one step old already, and tasks wait for moments
  for (std::size_t c = 0; c < plan.classes.size(); ++c) {
    const bool is_whole = std::any_of(plan.classes[c].blocks.begin(), plan.classes[c].blocks.end(),
                                      [](const IssueBlock& block) { return block.kind == BlockKind::backward; });
    if (is_whole) Postponer(plan, cost, c).run();  // where backward is split, the schedule says when they run
  }
}

}  // namespace weft
