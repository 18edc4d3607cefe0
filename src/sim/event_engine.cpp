#include "sim/event_engine.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace weft {
namespace {

// How many iterations may be under way at once. Real steps wait for their own results; one that runs this far ahead
// leaves an operation behind for ever.
constexpr std::size_t kMostAhead = 1000;

}  // namespace

EventEngine::EventEngine(const SimProblem& problem, const SimOptions& options)
    : p_(problem),
      options_(options),
      folding_(fold(problem, options.fold && problem.burst.empty())),
      steady_(folding_) {
  workers_.resize(p_.ranks.size());
  is_marked_.assign(p_.ranks.size(), false);
  const auto resources = static_cast<std::size_t>(p_.resources);
  load_.assign(resources, 0.0);
  for (const Nanos burst : p_.burst) idle_.push_back({static_cast<double>(burst.value), 0});
  runs_on_.assign(resources, 0);
  closed_on_.assign(resources, -1);
  std::int32_t joints = 0;
  for (const FoldedNode& n : folding_.nodes) joints = std::max(joints, n.joint + 1);
  joint_members_.resize(joints);
  for (std::size_t n = 0; n < folding_.nodes.size(); ++n) {
    const std::int32_t joint = folding_.nodes[n].joint;
    if (joint >= 0) joint_members_[joint].push_back(static_cast<std::int32_t>(n));
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
    if (iterations_.size() >= complete_ + kMostAhead) {
      fail("simulation: {} iterations are under way at once: nothing makes the step wait for its last operations",
           kMostAhead);
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
  // Operations that wait for nothing at all. (Queue order makes later iterations wait for earlier ones.)
  for (std::size_t n = 0; n < nodes; ++n) {
    if (iterations_.back().pending[n] == 0) became_ready({static_cast<std::int32_t>(n), k});
  }
}

void EventEngine::became_ready(Ready what) {
  const FoldedNode& n = node(what);
  if (n.is_run()) return begin_run(n.rank, what);
  if (n.lane == SimLane::transfer) {
    if (n.joint >= 0) {
      Iteration& it = iterations_[what.iteration];
      if (--it.joint_pending[n.joint] > 0) return;
    }
    starting_.push_back(what);
    return;
  }
  Ready& slot = n.lane == SimLane::compute ? worker(n.rank).compute : worker(n.rank).extra;
  WEFT_CHECK(!slot.valid());  // queue order lets one operation of a queue be ready at a time
  slot = what;
  mark(n.rank);
}

void EventEngine::ended(Ready what) {
  if (operation(current_operation(what)).chain >= 0) worker(node(what).rank).ended_at = now_;
  if (node(what).is_run()) return operation_of_run_ended(node(what).rank);
  ++work_.simulated;
  finish(what);
}

void EventEngine::finish(Ready what) {
  const auto n = static_cast<std::size_t>(what.node);
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
  if (node(ended).lane != SimLane::transfer || to.lane != SimLane::compute) return false;
  if (operation(first_operation(ended)).chain >= 0) return false;
  const Worker& w = workers_[to.rank];
  const bool idle = !w.running.valid() && !w.run.what.valid() && w.ended_at < now_;
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
  if (w.run.closed) return end_run(event.subject);
  if (!w.running.valid()) return;
  const Ready what = w.running;
  w.running = {};
  w.ended_at = now_;  // `extra` too
  ++w.version;
  mark(event.subject);
  ended(what);
}

// After all events of an instant: start what can start, then let speeds follow.
void EventEngine::settle() {
  for (const Ready& what : starting_) start_transfer(what);
  starting_.clear();
  for (const std::int32_t rank : continuing_) continue_run(rank);
  continuing_.clear();
  dispatch_marked(SimLane::compute);
  if (shares_changed_) reshare();
  shares_changed_ = false;
  // What has no length may still make compute ready within this instant; only then is it extra's turn.
  if (!events_.empty() && events_.top().time == now_) return;
  dispatch_marked(SimLane::extra);
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
  if (!n.is_run()) return n.first;
  return n.first + workers_[n.rank].run.offset;
}

const std::vector<std::int32_t>& EventEngine::resources_of(const ActiveRun& run) const {
  return folding_.resource_sets[node(run.what).resources];
}

void EventEngine::begin_run(std::int32_t rank, Ready what) {
  ActiveRun& run = worker(rank).run;
  WEFT_CHECK(!run.what.valid());
  run = {what, 0, now_, false};
  iterations_[what.iteration].times.start[what.node] = Nanos{now_};
  for (const std::int32_t resource : resources_of(run)) ++runs_on_[resource];
  continuing_.push_back(rank);
}

void EventEngine::continue_run(std::int32_t rank) {
  Worker& w = worker(rank);
  w.run.since = now_;
  const FoldedNode& n = node(w.run.what);
  if (can_close(rank)) {
    w.run.closed = true;
    for (const std::int32_t resource : resources_of(w.run)) closed_on_[resource] = rank;
    push(now_ + alone_before(n.first + n.count) - alone_before(n.first + w.run.offset), rank, ++w.version,
         Happens::worker_ends);
  } else if (operation(n.first + w.run.offset).lane == SimLane::transfer) {
    start_transfer(w.run.what);
  } else {
    w.compute = w.run.what;
    mark(rank);
  }
}

// Two runs that use the same resource stay open: one of them would be opened again and again.
bool EventEngine::can_close(std::int32_t rank) {
  const Worker& w = worker(rank);
  if (!w.transfers.empty()) return false;
  const auto& resources = resources_of(w.run);
  return std::all_of(resources.begin(), resources.end(), [&](std::int32_t resource) {
    const auto r = static_cast<std::size_t>(resource);
    return load_[r] == 0 && runs_on_[r] == 1;
  });
}

void EventEngine::open_run(std::int32_t rank) {
  Worker& w = worker(rank);
  const FoldedNode& n = node(w.run.what);
  const std::int64_t base = alone_before(n.first + w.run.offset), done = base + (now_ - w.run.since);
  // One that ends at this very instant has nothing left to disturb.
  if (done >= alone_before(n.first + n.count)) return;
  const auto alone = folding_.alone_before.begin();
  const auto current = std::upper_bound(alone + n.first + w.run.offset, alone + n.first + n.count, done) - alone - 1;
  if (current > n.first + w.run.offset) ++work_.simulated;
  leave_resources(w.run);
  w.run.closed = false;
  w.run.since += alone_before(static_cast<std::int32_t>(current)) - base;
  w.run.offset = static_cast<std::int32_t>(current) - n.first;
  ++w.version;
  if (operation(static_cast<std::int32_t>(current)).lane == SimLane::transfer) {
    return resume_transfer(rank, w.run.since);
  }
  w.running = w.run.what;
  const Nanos length = cost_of(static_cast<std::int32_t>(current)).fixed;
  w.remaining = static_cast<double>(length.value);
  w.since = w.run.since;
  w.speed = 1;
  push(w.since + length.value, rank, ++w.version, Happens::worker_ends);
}

void EventEngine::operation_of_run_ended(std::int32_t rank) {
  ActiveRun& run = worker(rank).run;
  const FoldedNode& n = node(run.what);
  const std::int32_t index = n.first + run.offset;
  ++work_.simulated;
  if (now_ - run.since != alone_before(index + 1) - alone_before(index)) {
    iterations_[run.what.iteration].times.slowed.push_back({run.what.node, run.offset, Nanos{now_ - run.since}});
  }
  ++run.offset;
  if (run.offset == n.count) return end_run(rank);
  continuing_.push_back(rank);
}

void EventEngine::end_run(std::int32_t rank) {
  ActiveRun& run = worker(rank).run;
  if (run.closed) {
    ++work_.simulated;
    leave_resources(run);
  }
  for (const std::int32_t resource : resources_of(run)) --runs_on_[resource];
  const Ready what = run.what;
  run = {};
  worker(rank).ended_at = now_;
  ++worker(rank).version;
  finish(what);
}

void EventEngine::leave_resources(const ActiveRun& run) {
  for (const std::int32_t resource : resources_of(run)) closed_on_[resource] = -1;
}

FoldedResult simulate_folded(const SimProblem& problem, const SimOptions& options) {
  if (problem.operations.empty()) return {};
  return EventEngine(problem, options).run();
}

}  // namespace weft
