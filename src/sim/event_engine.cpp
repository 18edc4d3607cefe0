#include "sim/event_engine.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace weft {
namespace {

// How many iterations may be under way at once. Real steps wait for their own results; one that runs this far ahead
// leaves an operation behind for ever.
constexpr std::size_t kMaxAhead = 1000;

}  // namespace

EventEngine::EventEngine(const SimProblem& problem, const SimOptions& options)
    : p_(problem),
      options_(options),
      folding_(fold(problem, options.fold && problem.burst.empty())),
      steady_(folding_) {
  workers_.resize(p_.ranks.size());
  is_marked_.assign(p_.ranks.size(), false);
  const std::size_t resources = p_.resources;
  load_.assign(resources, 0.0);
  for (const Nanos burst : p_.burst) idle_.push_back({static_cast<double>(burst.value), 0});
  folds_on_.assign(resources, 0);
  closed_on_.assign(resources, -1);
  std::int32_t joints = 0;
  for (const FoldedNode& n : folding_.nodes) joints = std::max(joints, n.joint.value + 1);
  joint_members_.resize(joints);
  for (std::size_t n = 0; n < folding_.nodes.size(); ++n) {
    const JointId joint = folding_.nodes[n].joint;
    if (joint.valid()) joint_members_[joint].push_back(static_cast<std::int32_t>(n));
  }
}

FoldedResult EventEngine::run() {
  begin_iteration(0);
  settle();
  while (!done_) {
    WEFT_CHECK(!events_.empty());
    now_ = events_.top().time;
    while (!events_.empty() && events_.top().time == now_ && !done_) {
      const Event event = events_.top();
      events_.pop();
      handle(event);
      if (events_.empty() || events_.top().time != now_) settle();
    }
  }
  std::vector<FoldedIteration> times;
  for (Iteration& it : iterations_) {
    if (it.unfinished > 0) break;
    times.push_back(std::move(it.times));
  }
  FoldedResult result = steady_.result(std::move(times));
  result.folding = std::move(folding_);
  result.work = work_;
  return result;
}

EventEngine::Iteration& EventEngine::iteration(std::int32_t k) {
  while (static_cast<std::int32_t>(iterations_.size()) <= k) {
    if (iterations_.size() >= complete_ + kMaxAhead) {
      fail("simulation: {} iterations are under way at once: nothing makes the step wait for its last operations",
           kMaxAhead);
    }
    begin_iteration(static_cast<std::int32_t>(iterations_.size()));
  }
  return iterations_[k];
}

void EventEngine::begin_iteration(std::int32_t k) {
  Iteration it;
  const std::size_t nodes = folding_.nodes.size();
  it.pending = k == 0 ? folding_.waits_at_first : folding_.waits;
  it.times.start.assign(nodes, {});
  it.times.end.assign(nodes, {});
  for (const auto& members : joint_members_) it.joint_pending.push_back(static_cast<std::int32_t>(members.size()));
  it.unfinished = static_cast<std::int64_t>(nodes);
  iterations_.push_back(std::move(it));
  // These operations wait for nothing at all. (Queue order makes later iterations wait for earlier ones.)
  for (std::size_t n = 0; n < nodes; ++n) {
    if (iterations_.back().pending[n] == 0) became_ready({static_cast<std::int32_t>(n), k});
  }
}

void EventEngine::became_ready(Ready what) {
  const FoldedNode& n = node(what);
  if (n.is_fold()) return begin_fold(n.rank, what);
  if (n.queue == SimQueue::transfer) {
    if (n.joint.valid()) {
      if (slows_while_waiting(n.rank, first_operation({joint_members_[n.joint].front(), what.iteration})))
        arriving_.push_back(n.rank);
      Iteration& it = iterations_[what.iteration];
      if (--it.joint_pending[n.joint] > 0) return;
    }
    starting_.push_back(what);
    return;
  }
  Ready& slot = n.queue == SimQueue::compute ? worker(n.rank).compute : worker(n.rank).extra;
  WEFT_CHECK(!slot.valid());  // queue order lets one operation of a queue be ready at a time
  slot = what;
  mark(n.rank);
}

void EventEngine::ended(Ready what) {
  if (operation(current_operation(what)).chain >= 0) worker(node(what).rank).ended_at = now_;
  if (node(what).is_fold()) return operation_of_fold_ended(node(what).rank);
  ++work_.simulated;
  finish(what);
}

void EventEngine::finish(Ready what) {
  const std::size_t n = what.node;
  work_.operations += node(what).count;
  iterations_[what.iteration].times.end[n] = Nanos{now_};
  for (std::int64_t s = folding_.successor_begin[n]; s < folding_.successor_begin[n + 1]; ++s) {
    const NodeEdge& edge = folding_.successors[s];
    const std::int32_t k = what.iteration + edge.distance;
    if (--iteration(k).pending[edge.to] > 0) continue;
    const Ready next{edge.to, k};
    if (must_wake(what, next)) {
      wake_up(next);
    } else {
      became_ready(next);
    }
  }
  Iteration& it = iterations_[what.iteration];
  if (--it.unfinished == 0) {
    it.pending = {};
    it.joint_pending = {};
    ++complete_;
    std::sort(it.times.slowed.begin(), it.times.slowed.end());
    done_ = steady_.completed(what.iteration, it.times, options_.max_iterations);
  }
}

// A worker with nothing to do sleeps, and the end of a transfer beside its chain wakes it. (What its chain waits for on
// the spot has that in its cost.)
bool EventEngine::must_wake(Ready ended, Ready next) const {
  const FoldedNode& to = node(next);
  if (node(ended).queue != SimQueue::transfer || to.queue != SimQueue::compute) return false;
  if (operation(first_operation(ended)).chain >= 0) return false;
  const Worker& w = workers_[to.rank];
  const bool idle = !w.running.valid() && !w.fold.what.valid() && w.ended_at < now_;
  return idle && p_.ranks[to.rank].wake.value > 0;
}

void EventEngine::wake_up(Ready next) {
  std::int32_t slot = static_cast<std::int32_t>(waking_.size());
  if (free_waking_.empty()) {
    waking_.push_back(next);
  } else {
    slot = free_waking_.back();
    free_waking_.pop_back();
    waking_[slot] = next;
  }
  push(now_ + p_.ranks[node(next).rank].wake.value, slot, 0, Happens::worker_wakes);
}

void EventEngine::handle(const Event& event) {
  if (event.what == Happens::worker_wakes) {
    free_waking_.push_back(event.subject);
    return became_ready(waking_[event.subject]);
  }
  if (event.what == Happens::transfer_goes_on) {
    Transfer& transfer = transfers_[event.subject];
    if (!transfer.live || transfer.version != event.version) return;
    if (!transfer.moving) {
      start_moving(event.subject);
    } else {
      end_transfer(event.subject);
    }
    return;
  }
  Worker& w = worker(event.subject);
  if (w.version != event.version) return;
  if (w.fold.closed) return end_fold(event.subject);
  if (!w.running.valid()) return;
  const Ready what = w.running;
  w.running = {};
  w.ended_at = now_;  // `extra` too
  ++w.version;
  mark(event.subject);
  ended(what);
}

// After all events of an instant, starts what can start, then lets speeds follow.
void EventEngine::settle() {
  for (const std::int32_t rank : arriving_) let_wait(rank);
  arriving_.clear();
  for (const Ready& what : starting_) start_transfer(what);
  starting_.clear();
  for (const std::int32_t rank : continuing_) continue_fold(rank);
  continuing_.clear();
  dispatch_marked(SimQueue::compute);
  if (shares_changed_) reshare();
  shares_changed_ = false;
  // What has no length may still make compute ready within this instant; only then is it extra's turn.
  if (!events_.empty() && events_.top().time == now_) return;
  dispatch_marked(SimQueue::extra);
  for (const std::int32_t rank : marked_) is_marked_[rank] = false;
  marked_.clear();
}

void EventEngine::mark(std::int32_t rank) {
  if (is_marked_[rank]) return;
  is_marked_[rank] = true;
  marked_.push_back(rank);
}

std::int32_t EventEngine::current_operation(Ready what) const {
  const FoldedNode& n = node(what);
  if (!n.is_fold()) return n.first;
  return n.first + workers_[n.rank].fold.offset;
}

const std::vector<std::int32_t>& EventEngine::resources_of(const ActiveFold& fold) const {
  return folding_.resource_sets[node(fold.what).resources];
}

void EventEngine::begin_fold(std::int32_t rank, Ready what) {
  ActiveFold& fold = worker(rank).fold;
  WEFT_CHECK(!fold.what.valid());
  fold = {what, 0, now_, false};
  iterations_[what.iteration].times.start[what.node] = Nanos{now_};
  for (const std::int32_t resource : resources_of(fold)) ++folds_on_[resource];
  continuing_.push_back(rank);
}

void EventEngine::continue_fold(std::int32_t rank) {
  Worker& w = worker(rank);
  w.fold.since = now_;
  const FoldedNode& n = node(w.fold.what);
  if (can_close(rank)) {
    w.fold.closed = true;
    for (const std::int32_t resource : resources_of(w.fold)) closed_on_[resource] = rank;
    push(now_ + alone_before(n.first + n.count) - alone_before(n.first + w.fold.offset), rank, ++w.version,
         Happens::worker_ends);
  } else if (operation(n.first + w.fold.offset).queue == SimQueue::transfer) {
    start_transfer(w.fold.what);
  } else {
    w.compute = w.fold.what;
    mark(rank);
  }
}

// Two folds that use the same resource stay open: one of them would be opened again and again.
bool EventEngine::can_close(std::int32_t rank) {
  const Worker& w = worker(rank);
  if (!w.transfers.empty() || w.waiting > 0) return false;
  const auto& resources = resources_of(w.fold);
  return std::all_of(resources.begin(), resources.end(), [&](std::int32_t resource) {
    const std::size_t r = resource;
    return load_[r] == 0 && folds_on_[r] == 1;
  });
}

void EventEngine::open_fold(std::int32_t rank) {
  Worker& w = worker(rank);
  const FoldedNode& n = node(w.fold.what);
  const std::int64_t base = alone_before(n.first + w.fold.offset), done = base + (now_ - w.fold.since);
  // One that ends at this very instant has nothing left to disturb.
  if (done >= alone_before(n.first + n.count)) return;
  const auto alone = folding_.alone_before.begin();
  const auto current = std::upper_bound(alone + n.first + w.fold.offset, alone + n.first + n.count, done) - alone - 1;
  if (current > n.first + w.fold.offset) ++work_.simulated;
  leave_resources(w.fold);
  w.fold.closed = false;
  w.fold.since += alone_before(static_cast<std::int32_t>(current)) - base;
  w.fold.offset = static_cast<std::int32_t>(current) - n.first;
  ++w.version;
  if (operation(static_cast<std::int32_t>(current)).queue == SimQueue::transfer) {
    return resume_transfer(rank, w.fold.since);
  }
  w.running = w.fold.what;
  const Nanos length = cost_of(static_cast<std::int32_t>(current)).fixed;
  w.remaining = static_cast<double>(length.value);
  w.since = w.fold.since;
  w.speed = 1;
  push(w.since + length.value, rank, ++w.version, Happens::worker_ends);
}

void EventEngine::operation_of_fold_ended(std::int32_t rank) {
  ActiveFold& fold = worker(rank).fold;
  const FoldedNode& n = node(fold.what);
  const std::int32_t index = n.first + fold.offset;
  ++work_.simulated;
  if (now_ - fold.since != alone_before(index + 1) - alone_before(index)) {
    iterations_[fold.what.iteration].times.slowed.push_back({fold.what.node, fold.offset, Nanos{now_ - fold.since}});
  }
  ++fold.offset;
  if (fold.offset == n.count) return end_fold(rank);
  continuing_.push_back(rank);
}

void EventEngine::end_fold(std::int32_t rank) {
  ActiveFold& fold = worker(rank).fold;
  if (fold.closed) {
    ++work_.simulated;
    leave_resources(fold);
  }
  for (const std::int32_t resource : resources_of(fold)) --folds_on_[resource];
  const Ready what = fold.what;
  fold = {};
  worker(rank).ended_at = now_;
  ++worker(rank).version;
  finish(what);
}

void EventEngine::leave_resources(const ActiveFold& fold) {
  for (const std::int32_t resource : resources_of(fold)) closed_on_[resource] = -1;
}

FoldedResult simulate_folded(const SimProblem& problem, const SimOptions& options) {
  if (problem.operations.empty()) return {};
  return EventEngine(problem, options).run();
}

}  // namespace weft
