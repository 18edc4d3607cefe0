#include "plan/schedule/postpone.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include "graph/op_lists.hpp"
#include "plan/schedule/next_use.hpp"

namespace weft {
namespace {

// The step of one class on two resources: its compute in a given order, and one link that takes what is ready, the most
// urgent first. An update runs when forward first needs it.
class TwoLanes {
 public:
  TwoLanes(const Plan& plan, const CostModel& cost, std::size_t rank_class)
      : plan_(plan), c_(plan.classes[rank_class]), writers_(writers_by_value(plan.graph)) {
    time_.assign(plan.graph.operations.size(), 0);
    for (const IssueBlock& block : c_.blocks) {
      for (const OpId id : block.operations) {
        const Operation& op = plan.graph.op(id);
        const bool job = is_job(op);
        const bool counts = job || !op.is_transfer() || plan.issues[id.index()].blocking;
        if (counts) time_[id.index()] = static_cast<double>(cost.alone(op).value);
        if (job) jobs_.push_back(id);
      }
    }
    job_at_.assign(plan.graph.operations.size(), -1);
    for (std::size_t j = 0; j < jobs_.size(); ++j) job_at_[jobs_[j].index()] = static_cast<std::int32_t>(j);
    const std::vector<std::int32_t> use = next_use(plan.graph);
    for (const OpId id : jobs_) {
      use_.push_back(use[id.index()]);
      needs_of_job_.push_back(jobs_before(id));
    }
    std::vector<bool> updated(plan.graph.operations.size(), false);
    for (const OpId id : c_.blocks[0].operations) {
      needs_of_forward_.push_back(jobs_before(id));
      updates_of_forward_.push_back(updates_before(id, updated));
    }
    between_ = 0;
    for (std::size_t b = 0; b < 2; ++b) {
      for (const OpId id : c_.blocks[b].operations) between_ += time_[id.index()];
    }
    between_ *= static_cast<double>(plan.graph.micro_batches - 1);
  }

  std::size_t jobs() const { return jobs_.size(); }
  // Nanoseconds a step, with backward in this order.
  double period(const std::vector<OpId>& backward) {
    double now = 0, started = 0, link = 0, period = 0;
    constexpr int kIterations = 5;
    for (int i = 0; i < kIterations; ++i) {
      period = now - started;
      started = now;
      for (std::size_t f = 0; f < needs_of_forward_.size(); ++f) {
        if (i > 0) now = std::max(now, wait_for(needs_of_forward_[f], link));
        now += updates_of_forward_[f] + time_[c_.blocks[0].operations[f].index()];
      }
      now += between_;
      begin_step();
      for (const OpId id : backward) {
        now += time_[id.index()];
        ended_[id.index()] = now;
      }
      backward_end_ = now;
      for (std::size_t j = 0; j < jobs_.size(); ++j) {
        if (needs_of_job_[j].empty()) available_.insert({ready(jobs_[j]), static_cast<std::int32_t>(j)});
      }
    }
    return period;
  }

 private:
  static bool is_job(const Operation& op) {
    return op.is_transfer() && !op.per_micro_batch && (op.role == Role::grad_reduce || op.role == Role::param_gather);
  }

  // The transfers whose results an operation reads, itself or by way of updates and of replicas.
  std::vector<std::int32_t> jobs_before(OpId id) const {
    std::vector<std::int32_t> found;
    std::vector<OpId> open{id};
    while (!open.empty()) {
      const Operation& op = plan_.graph.op(open.back());
      open.pop_back();
      for (const Read& read : op.reads) {
        if (op.role == Role::update && read.distance == 1) continue;  // its own state
        for (const OpId writer : writers_[read.value.index()]) {
          if (plan_.graph.op(writer).per_micro_batch) continue;
          const std::int32_t job = job_at_[writer.index()];
          if (job < 0) {
            open.push_back(writer);
          } else if (std::find(found.begin(), found.end(), job) == found.end()) {
            found.push_back(job);
          }
        }
      }
    }
    return found;
  }

  // The time of the updates that an operation waits for and none before it did.
  double updates_before(OpId id, std::vector<bool>& updated) const {
    double sum = 0;
    for (const Read& read : plan_.graph.op(id).reads) {
      for (const OpId writer : writers_[read.value.index()]) {
        const Operation& op = plan_.graph.op(writer);
        if (op.per_micro_batch || updated[writer.index()]) continue;
        updated[writer.index()] = true;
        sum += op.role == Role::update ? time_[writer.index()] : updates_before(writer, updated);
      }
    }
    return sum;
  }

  // When backward has finished what a reduction reads, by way of replicas too.
  double ready(OpId id) const {
    double latest = 0;
    for (const Read& read : plan_.graph.op(id).reads) {
      for (const OpId writer : writers_[read.value.index()]) {
        latest = std::max(latest, plan_.graph.op(writer).per_micro_batch ? ended_[writer.index()] : ready(writer));
      }
    }
    return latest;
  }

  void begin_step() {
    ended_.assign(plan_.graph.operations.size(), 0);
    end_.assign(jobs_.size(), -1);
    missing_.clear();
    readers_.assign(jobs_.size(), {});
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      missing_.push_back(needs_of_job_[j].size());
      for (const std::int32_t before : needs_of_job_[j]) {
        readers_[static_cast<std::size_t>(before)].push_back(static_cast<std::int32_t>(j));
      }
    }
    available_.clear();
    now_ready_.clear();
  }

  // Lets the link go on until all of them have arrived.
  double wait_for(const std::vector<std::int32_t>& needs, double& link) {
    double latest = 0;
    for (const std::int32_t need : needs) {
      double& end = end_[static_cast<std::size_t>(need)];
      while (end < 0) next_job(link);
      latest = std::max(latest, end);
    }
    return latest;
  }

  void next_job(double& link) {
    if (now_ready_.empty()) link = std::max(link, available_.begin()->first);
    while (!available_.empty() && available_.begin()->first <= link) {
      const std::int32_t job = available_.begin()->second;
      available_.erase(available_.begin());
      now_ready_.insert({use_[static_cast<std::size_t>(job)], job});
    }
    const auto job = static_cast<std::size_t>(now_ready_.begin()->second);
    now_ready_.erase(now_ready_.begin());
    link += time_[jobs_[job].index()];
    end_[job] = link;
    for (const std::int32_t reader : readers_[job]) {
      if (--missing_[static_cast<std::size_t>(reader)] == 0) {
        available_.insert({std::max(link, backward_end_), reader});  // updates run when compute waits
      }
    }
  }

  const Plan& plan_;
  const ClassPlan& c_;
  OpLists writers_;
  std::vector<double> time_;   // by operation
  std::vector<double> ended_;  // by operation of backward, in this step
  std::vector<OpId> jobs_;     // of the link
  std::vector<std::int32_t> job_at_;
  std::vector<std::int32_t> use_;                              // by job
  std::vector<std::vector<std::int32_t>> needs_of_job_;        // by job: jobs
  std::vector<std::vector<std::int32_t>> readers_;             // by job: those that need it
  std::vector<std::vector<std::int32_t>> needs_of_forward_;    // by position in forward: jobs
  std::vector<double> updates_of_forward_;                     // by position in forward: nanoseconds
  std::vector<std::size_t> missing_;                           // by job: of what it needs
  std::vector<double> end_;                                    // by job; -1: has not been sent
  std::set<std::pair<double, std::int32_t>> available_;        // when, job
  std::set<std::pair<std::int32_t, std::int32_t>> now_ready_;  // use, job
  double backward_end_ = 0;
  double between_ = 0;  // the other micro-batches
};

// Weight gradients of the block that only transfers of the step read, in their order.
std::vector<OpId> movable(const Plan& plan, const IssueBlock& backward) {
  const OpLists readers = readers_by_value(plan.graph);
  std::vector<OpId> found;
  for (const OpId id : backward.operations) {
    const Operation& op = plan.graph.op(id);
    if (op.phase != Phase::weight_grad || op.is_transfer() || op.key.kind != OpKind::gemm) continue;
    const bool free = std::all_of(op.writes.begin(), op.writes.end(), [&](ValueId value) {
      const auto list = readers[value.index()];
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
    for (const ValueId value : graph.operations[i].writes) {
      for (const OpId reader : readers[value.index()]) result[i] = std::min(result[i], use[reader.index()]);
    }
  }
  return result;
}

class Postponer {
 public:
  Postponer(Plan& plan, const CostModel& cost, std::size_t rank_class)
      : plan_(plan),
        backward_(plan.classes[rank_class].blocks[1].operations),
        order_(backward_),
        candidates_(movable(plan, plan.classes[rank_class].blocks[1])),
        use_(use_of_gradients(plan.graph)),
        lanes_(plan, cost, rank_class) {
    best_.last.assign(candidates_.size(), false);
    least_ = lanes_.period(order_);
  }

  void run() {
    if (candidates_.empty()) return;
    move_a_run();
    for (bool better = true; better && budget_ > 0;) {
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
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      Moves moves = best_;
      moves.last[i] = !moves.last[i];
      better = try_moves(moves) || better;
    }
    return better;
  }

  bool toggle_two() {
    bool better = false;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      for (std::size_t j = i + 1; j < candidates_.size(); ++j) {
        Moves moves = best_;
        moves.last[i] = !moves.last[i];
        moves.last[j] = !moves.last[j];
        better = try_moves(moves) || better;
      }
    }
    return better;
  }

  bool try_moves(const Moves& moves) {
    if (budget_ <= 0) return false;
    budget_ -= static_cast<std::int64_t>(order_.size() + lanes_.jobs());
    constexpr double kWorthIt = 0.999;  // what waits holds memory
    const double period = lanes_.period(ordered(moves));
    if (period >= least_ * kWorthIt) return false;
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
           std::none_of(b.reads.begin(), b.reads.end(), [&](const Read& read) {
             return std::find(a.writes.begin(), a.writes.end(), read.value) != a.writes.end();
           });
  }

  Plan& plan_;
  std::vector<OpId>& backward_;
  std::vector<OpId> order_;  // of the graph
  std::vector<OpId> candidates_;
  std::vector<std::int32_t> use_;
  TwoLanes lanes_;
  Moves best_;
  double least_ = 0;
  std::int64_t budget_ = 2'000'000;  // operations and transfers to walk through: well under a second
};

}  // namespace

void postpone_weight_grads(Plan& plan, const CostModel& cost) {
  if (plan.layout.pp > 1 || plan.layout.clip_grad > 0 || plan.layout.zero > 1) return;
  for (std::size_t c = 0; c < plan.classes.size(); ++c) Postponer(plan, cost, c).run();
}

}  // namespace weft
