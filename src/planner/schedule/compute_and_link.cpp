#include "planner/schedule/compute_and_link.hpp"

#include <algorithm>
#include <functional>
#include <limits>
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

// Before all that a step does: what is not of backward has ended then.
constexpr double kLongAgo = std::numeric_limits<double>::lowest();
constexpr double kNotSent = std::numeric_limits<double>::infinity();
// Of repeated steps, the last of which counts.
constexpr int kSteps = 3;

template <class Entry>
void push(std::vector<Entry>& heap, Entry entry) {
  heap.push_back(entry);
  std::push_heap(heap.begin(), heap.end(), std::greater<>());
}

template <class Entry>
Entry pop(std::vector<Entry>& heap) {
  std::pop_heap(heap.begin(), heap.end(), std::greater<>());
  const Entry entry = heap.back();
  heap.pop_back();
  return entry;
}

}  // namespace

ComputeAndLink::ComputeAndLink(const Plan& plan, const CostModel& cost, std::size_t rank_class)
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
  std::vector<OpId> visited_for(plan.graph.operations.size());
  for (const OpId id : jobs_) {
    use_.push_back(use[id.index()]);
    needs_of_job_.push_back(
        jobs_before(id, [&](OpId visited) { return std::exchange(visited_for[visited.index()], id) != id; }));
  }
  missing_.resize(jobs_.size());
  readers_.resize(jobs_.size());
  for (std::size_t j = 0; j < jobs_.size(); ++j) {
    for (const std::int32_t before : needs_of_job_[j]) {
      readers_[before].push_back(static_cast<std::int32_t>(j));
      ++waits_;
    }
  }
  std::fill(visited_for.begin(), visited_for.end(), OpId{});
  for (std::size_t j = 0; j < jobs_.size(); ++j) {
    if (!needs_of_job_[j].empty()) continue;
    const OpId id = jobs_[j];
    first_jobs_.push_back({static_cast<std::int32_t>(j), sources_of(id, [&](OpId visited) {
                             return std::exchange(visited_for[visited.index()], id) != id;
                           })});
  }
  ended_.assign(plan.graph.operations.size(), kLongAgo);
  const std::vector<OpId>& forward = block_of(c_, BlockKind::forward).operations;
  add_forward(forward);
  for (const OpId id : forward) between_ += time_[id.index()];
  for (const OpId id : block_of(c_, BlockKind::backward).operations) between_ += time_[id.index()];
  between_ *= static_cast<double>(plan.graph.micro_batches - 1);
}

// What an operation of forward waited for those behind it need not: one update of all parameters would else make every
// operation wait for every transfer again.
void ComputeAndLink::add_forward(const std::vector<OpId>& forward) {
  std::vector<char> waited_for(plan_.graph.operations.size(), false);
  std::vector<bool> updated(plan_.graph.operations.size(), false);
  forward_.emplace_back();
  for (const OpId id : forward) {
    std::vector<std::int32_t> needs =
        jobs_before(id, [&](OpId visited) { return !std::exchange(waited_for[visited.index()], true); });
    if (!needs.empty()) forward_.push_back({std::move(needs), 0});
    forward_.back().length += updates_before(id, updated) + time_[id.index()];
  }
}

// Times are whole nanoseconds, so that sums are exact and steps that begin alike take equally long. Backward always
// takes the same: all that a step leaves to the next is when the link becomes free.
double ComputeAndLink::period(const std::vector<OpId>& backward) {
  const double after_forward = between_ + walk_backward(backward);
  double first = after_forward;  // without waits
  for (const ForwardStretch& stretch : forward_) first += stretch.length;
  double link = -first, began_with = kNotSent, period = first;
  for (int step = 0; step < kSteps; ++step) {
    // Whatever the link did before the first transfer may begin does not matter.
    if (!first_arrivals_.empty()) link = std::max(link, first_arrivals_.front().first);
    if (link == began_with) break;
    began_with = link;
    period = walk_forward(link) + after_forward;
    link -= period;
  }
  return period;
}

double ComputeAndLink::walk_backward(const std::vector<OpId>& backward) {
  double length = 0;
  for (const OpId id : backward) length += time_[id.index()];
  double now = -length;
  for (const OpId id : backward) {
    now += time_[id.index()];
    ended_[id.index()] = now;
  }
  first_arrivals_.clear();
  for (const FirstJob& first : first_jobs_) {
    double latest = kLongAgo;
    for (const OpId source : first.sources) latest = std::max(latest, ended_[source.index()]);
    first_arrivals_.emplace_back(latest, first.job);
  }
  std::sort(first_arrivals_.begin(), first_arrivals_.end());
  return length;
}

double ComputeAndLink::walk_forward(double& link) {
  available_ = first_arrivals_;  // ascending: a heap
  now_ready_.clear();
  end_.assign(jobs_.size(), kNotSent);
  for (std::size_t j = 0; j < jobs_.size(); ++j) missing_[j] = needs_of_job_[j].size();
  double now = 0;
  for (const ForwardStretch& stretch : forward_) now = std::max(now, wait_for(stretch.needs, link)) + stretch.length;
  return now;
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

std::vector<OpId> ComputeAndLink::sources_of(OpId reduction, const FirstVisit& first_visit) const {
  std::vector<OpId> found, open{reduction};
  while (!open.empty()) {
    const Operation& op = plan_.graph.op(open.back());
    open.pop_back();
    for (const Read& read : op.reads) {
      if (read.distance == 1) continue;  // of the step before
      for (const OpId writer : writers_[read.value.index()]) {
        if (!first_visit(writer)) continue;
        (plan_.graph.op(writer).per_micro_batch ? found : open).push_back(writer);
      }
    }
  }
  return found;
}

double ComputeAndLink::wait_for(const std::vector<std::int32_t>& needs, double& link) {
  double latest = kLongAgo;
  for (const std::int32_t need : needs) {
    while (end_[need] == kNotSent) next_job(link);
    latest = std::max(latest, end_[need]);
  }
  return latest;
}

void ComputeAndLink::next_job(double& link) {
  WEFT_CHECK(!now_ready_.empty() || !available_.empty());
  if (now_ready_.empty()) link = std::max(link, available_.front().first);
  while (!available_.empty() && available_.front().first <= link) {
    const std::int32_t job = pop(available_).second;
    push(now_ready_, {use_[job], job});
  }
  const std::size_t job = pop(now_ready_).second;
  link += time_[jobs_[job].index()];
  end_[job] = link;
  for (const std::int32_t reader : readers_[job]) {
    if (--missing_[reader] > 0) continue;
    // Between a reduction and a gather lies an update, which runs when compute waits.
    const bool reduces = plan_.graph.op(jobs_[reader]).role == Role::shard_reduce;
    push(available_, {reduces ? link : std::max(link, 0.0), reader});
  }
}

}  // namespace weft
