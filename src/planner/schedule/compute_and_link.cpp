#include "planner/schedule/compute_and_link.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "planner/schedule/next_use.hpp"

namespace weft {
namespace {

bool is_job(const Operation& op) {
  return op.is_transfer() && !op.per_micro_batch &&
         (op.role == Role::grad_reduce || op.role == Role::shard_reduce || op.role == Role::grad_exchange ||
          op.role == Role::grad_gather || op.role == Role::node_reduce || op.role == Role::node_gather ||
          op.role == Role::param_gather);
}

}  // namespace

ComputeAndLink::ComputeAndLink(const Plan& plan, const CostModel& cost, std::size_t rank_class)
    : plan_(plan),
      c_(plan.classes[rank_class]),
      forward_(block_of(c_, BlockKind::forward).operations),
      writers_(writers_by_value(plan.graph)) {
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
  std::vector<OpId> visited_for(plan.graph.operations.size());
  for (const OpId id : jobs_) {
    use_.push_back(use[id.index()]);
    needs_of_job_.push_back(
        jobs_before(id, [&](OpId visited) { return std::exchange(visited_for[visited.index()], id) != id; }));
  }
  readers_.resize(jobs_.size());
  for (std::size_t j = 0; j < jobs_.size(); ++j) {
    for (const std::int32_t before : needs_of_job_[j]) {
      readers_[before].push_back(static_cast<std::int32_t>(j));
      ++waits_;
    }
  }
  // What an operation of forward waited for those behind it need not: one update of all parameters would else make
  // every operation wait for every transfer again.
  std::vector<char> waited_for(plan.graph.operations.size(), false);
  std::vector<bool> updated(plan.graph.operations.size(), false);
  for (const OpId id : forward_) {
    needs_of_forward_.push_back(
        jobs_before(id, [&](OpId visited) { return !std::exchange(waited_for[visited.index()], true); }));
    updates_of_forward_.push_back(updates_before(id, updated));
  }
  between_ = 0;
  for (const OpId id : forward_) between_ += time_[id.index()];
  for (const OpId id : block_of(c_, BlockKind::backward).operations) between_ += time_[id.index()];
  between_ *= static_cast<double>(plan.graph.micro_batches - 1);
}

double ComputeAndLink::period(const std::vector<OpId>& backward) {
  double now = 0, started = 0, link = 0, period = 0;
  constexpr int kIterations = 5;
  for (int i = 0; i < kIterations; ++i) {
    period = now - started;
    started = now;
    for (std::size_t f = 0; f < needs_of_forward_.size(); ++f) {
      if (i > 0) now = std::max(now, wait_for(needs_of_forward_[f], link));
      now += updates_of_forward_[f] + time_[forward_[f].index()];
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

std::vector<std::int32_t> ComputeAndLink::jobs_before(OpId id, const FirstVisit& first_visit) const {
  std::vector<std::int32_t> found;
  std::vector<OpId> open{id};
  while (!open.empty()) {
    const Operation& op = plan_.graph.op(open.back());
    open.pop_back();
    for (const Read& read : op.reads) {
      if (!op.per_micro_batch && read.distance == 1) continue;  // its own state
      for (const OpId writer : writers_[read.value.index()]) {
        if (plan_.graph.op(writer).per_micro_batch || !first_visit(writer)) continue;
        const std::int32_t job = job_at_[writer.index()];
        if (job < 0) {
          open.push_back(writer);
        } else {
          found.push_back(job);
        }
      }
    }
  }
  return found;
}

double ComputeAndLink::updates_before(OpId id, std::vector<bool>& updated) const {
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

double ComputeAndLink::ready(OpId id) const {
  double latest = 0;
  for (const Read& read : plan_.graph.op(id).reads) {
    if (read.distance == 1) continue;  // of the step before
    for (const OpId writer : writers_[read.value.index()]) {
      latest = std::max(latest, plan_.graph.op(writer).per_micro_batch ? ended_[writer.index()] : ready(writer));
    }
  }
  return latest;
}

void ComputeAndLink::begin_step() {
  ended_.assign(plan_.graph.operations.size(), 0);
  end_.assign(jobs_.size(), -1);
  missing_.clear();
  for (const std::vector<std::int32_t>& needs : needs_of_job_) missing_.push_back(needs.size());
  available_.clear();
  now_ready_.clear();
}

double ComputeAndLink::wait_for(const std::vector<std::int32_t>& needs, double& link) {
  double latest = 0;
  for (const std::int32_t need : needs) {
    double& end = end_[need];
    while (end < 0) next_job(link);
    latest = std::max(latest, end);
  }
  return latest;
}

void ComputeAndLink::next_job(double& link) {
  WEFT_CHECK(!now_ready_.empty() || !available_.empty());
  if (now_ready_.empty()) link = std::max(link, available_.begin()->first);
  while (!available_.empty() && available_.begin()->first <= link) {
    const std::int32_t job = available_.begin()->second;
    available_.erase(available_.begin());
    now_ready_.insert({use_[job], job});
  }
  const std::size_t job = now_ready_.begin()->second;
  now_ready_.erase(now_ready_.begin());
  link += time_[jobs_[job].index()];
  end_[job] = link;
  for (const std::int32_t reader : readers_[job]) {
    if (--missing_[reader] > 0) continue;
    // Between a reduction and a gather lies an update, which runs when compute waits.
    const bool reduces = plan_.graph.op(jobs_[reader]).role == Role::shard_reduce;
    available_.insert({reduces ? link : std::max(link, backward_end_), reader});
  }
}

}  // namespace weft
