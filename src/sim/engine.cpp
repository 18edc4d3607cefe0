#include "sim/engine.hpp"

#include <algorithm>
#include <cmath>
#include <queue>

#include "base/error.hpp"
#include "sim/fair_share.hpp"
#include "sim/steady_state.hpp"

namespace weft {
namespace {

// How many iterations may be under way at once. Real steps wait for their own results; one that runs this far ahead
// leaves an operation behind for ever.
constexpr std::size_t kMostAhead = 1000;

// Who an event is about, kept small: the heap is the simulator's hot path.
struct Event {
  std::int64_t time;
  std::uint64_t sequence;  // ties are served in the order of scheduling
  std::int32_t subject;    // rank of a compute end, or slot of a transfer
  std::uint32_t version;   // stale events carry an old version
  bool transfer;
  bool operator>(const Event& other) const {
    return time != other.time ? time > other.time : sequence > other.sequence;
  }
};

struct Iteration {
  std::vector<std::int32_t> pending;
  std::vector<SimTimes> times;
  std::vector<std::int32_t> joint_pending;
  std::int64_t unfinished = 0;
};

struct Ready {
  std::int32_t operation = -1;
  std::int32_t iteration = 0;
  bool valid() const { return operation >= 0; }
};

struct Worker {
  Ready compute, extra;  // at the head of their queue and ready
  Ready running;
  double remaining = 0;  // nanoseconds at full speed
  double speed = 1;
  std::int64_t since = 0;
  std::uint32_t version = 0;
  std::vector<std::int32_t> transfers;  // slots of transfers under way on this rank
};

struct Transfer {
  Ready what;  // any member
  const SimCost* cost = nullptr;
  std::vector<std::int32_t> ranks;
  bool moving = false;
  double remaining = 0;
  double fair = 1;   // share of its full speed that the resources allow
  double speed = 1;  // fair, further slowed by compute beside it
  std::int64_t since = 0;
  std::uint32_t version = 0;
  bool live = false;
};

class Engine {
 public:
  Engine(const SimProblem& problem, const SimOptions& options) : p_(problem), options_(options) {
    workers_.resize(p_.ranks.size());
    load_.assign(static_cast<std::size_t>(p_.resources), 0.0);
    index_successors();
  }

  SimResult run() {
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
    return steady_.result(take_times());
  }

 private:
  // Structure -------------------------------------------------------------------------------------------------------
  void index_successors() {
    const std::size_t n = p_.operations.size();
    std::vector<std::int64_t> count(n + 1, 0);
    first_pending_.assign(n, 0);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::int64_t e = p_.edge_begin[i]; e < p_.edge_begin[i + 1]; ++e) {
        const SimEdge& edge = p_.edges[static_cast<std::size_t>(e)];
        ++count[static_cast<std::size_t>(edge.from) + 1];
        if (edge.distance == 0) ++first_pending_[i];
      }
      all_pending_.push_back(static_cast<std::int32_t>(p_.edge_begin[i + 1] - p_.edge_begin[i]));
    }
    successor_begin_.assign(n + 1, 0);
    for (std::size_t i = 0; i < n; ++i) successor_begin_[i + 1] = successor_begin_[i] + count[i + 1];
    successors_.resize(p_.edges.size());
    std::vector<std::int64_t> fill(successor_begin_.begin(), successor_begin_.end() - 1);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::int64_t e = p_.edge_begin[i]; e < p_.edge_begin[i + 1]; ++e) {
        const SimEdge& edge = p_.edges[static_cast<std::size_t>(e)];
        successors_[static_cast<std::size_t>(fill[static_cast<std::size_t>(edge.from)]++)] =
            SimEdge{static_cast<std::int32_t>(i), edge.distance, edge.queue_order};
      }
    }
    std::int32_t joints = 0;
    for (const SimOperation& op : p_.operations) joints = std::max(joints, op.joint + 1);
    joint_members_.resize(static_cast<std::size_t>(joints));
    for (std::size_t i = 0; i < n; ++i) {
      if (p_.operations[i].joint >= 0) {
        joint_members_[static_cast<std::size_t>(p_.operations[i].joint)].push_back(static_cast<std::int32_t>(i));
      }
    }
  }

  Iteration& iteration(std::int32_t k) {
    while (static_cast<std::int32_t>(iterations_.size()) <= k) {
      if (iterations_.size() >= complete_ + kMostAhead) {
        fail("simulation: {} iterations are under way at once: nothing makes the step wait for its last operations",
             kMostAhead);
      }
      begin_iteration(static_cast<std::int32_t>(iterations_.size()));
    }
    return iterations_[static_cast<std::size_t>(k)];
  }

  void begin_iteration(std::int32_t k) {
    Iteration it;
    it.pending = k == 0 ? first_pending_ : all_pending_;
    it.times.assign(p_.operations.size(), {});
    for (const auto& members : joint_members_) it.joint_pending.push_back(static_cast<std::int32_t>(members.size()));
    it.unfinished = static_cast<std::int64_t>(p_.operations.size());
    iterations_.push_back(std::move(it));
    // Operations that wait for nothing at all. (Queue order makes later iterations wait for earlier ones.)
    for (std::size_t i = 0; i < p_.operations.size(); ++i) {
      if (iterations_.back().pending[i] == 0) became_ready(static_cast<std::int32_t>(i), k);
    }
  }

  // Progress --------------------------------------------------------------------------------------------------------
  void became_ready(std::int32_t operation, std::int32_t k) {
    const SimOperation& op = p_.operations[static_cast<std::size_t>(operation)];
    if (op.lane == SimLane::transfer) {
      if (op.joint >= 0) {
        Iteration& it = iterations_[static_cast<std::size_t>(k)];
        if (--it.joint_pending[static_cast<std::size_t>(op.joint)] > 0) return;
      }
      starting_.push_back({operation, k});
      return;
    }
    Worker& worker = workers_[static_cast<std::size_t>(op.rank)];
    Ready& slot = op.lane == SimLane::compute ? worker.compute : worker.extra;
    WEFT_CHECK(!slot.valid());  // queue order lets one operation of a queue be ready at a time
    slot = {operation, k};
    mark(op.rank);
  }

  void finish(std::int32_t operation, std::int32_t k) {
    const auto index = static_cast<std::size_t>(operation);
    iterations_[static_cast<std::size_t>(k)].times[index].end = Nanos{now_};
    for (std::int64_t s = successor_begin_[index]; s < successor_begin_[index + 1]; ++s) {
      const SimEdge& edge = successors_[static_cast<std::size_t>(s)];
      Iteration& target = iteration(k + edge.distance);
      SimTimes& times = target.times[static_cast<std::size_t>(edge.from)];
      Nanos& moment = edge.queue_order ? times.issued : times.ready;
      moment = std::max(moment, Nanos{now_});
      if (--target.pending[static_cast<std::size_t>(edge.from)] == 0) became_ready(edge.from, k + edge.distance);
    }
    Iteration& it = iterations_[static_cast<std::size_t>(k)];
    if (--it.unfinished == 0) {
      it.pending = {};
      it.joint_pending = {};
      ++complete_;
      done_ = steady_.completed(k, iterations_[static_cast<std::size_t>(k)].times, options_.max_iterations);
    }
  }

  void handle(const Event& event) {
    if (event.transfer) {
      Transfer& transfer = transfers_[static_cast<std::size_t>(event.subject)];
      if (!transfer.live || transfer.version != event.version) return;
      if (!transfer.moving) {
        start_moving(event.subject);
      } else {
        end_transfer(event.subject);
      }
      return;
    }
    Worker& worker = workers_[static_cast<std::size_t>(event.subject)];
    if (!worker.running.valid() || worker.version != event.version) return;
    const Ready ended = worker.running;
    worker.running = {};
    ++worker.version;
    mark(event.subject);
    finish(ended.operation, ended.iteration);
  }

  // After all events of an instant: start what can start, then let speeds follow.
  void settle() {
    for (const Ready& what : starting_) start_transfer(what);
    starting_.clear();
    dispatch_marked(SimLane::compute);
    if (shares_changed_) reshare();
    shares_changed_ = false;
    // What has no length may still make compute ready within this instant; only then is it extra's turn.
    if (!events_.empty() && events_.top().time == now_) return;
    dispatch_marked(SimLane::extra);
    for (const std::int32_t rank : marked_) is_marked_[static_cast<std::size_t>(rank)] = false;
    marked_.clear();
  }

  void dispatch_marked(SimLane lane) {
    for (const std::int32_t rank : marked_) {
      dispatch(rank, lane);
      follow_compute(rank);
    }
  }

  void mark(std::int32_t rank) {
    if (is_marked_.empty()) is_marked_.assign(workers_.size(), false);
    if (is_marked_[static_cast<std::size_t>(rank)]) return;
    is_marked_[static_cast<std::size_t>(rank)] = true;
    marked_.push_back(rank);
  }

  // Compute ---------------------------------------------------------------------------------------------------------
  void dispatch(std::int32_t rank, SimLane lane) {
    Worker& worker = workers_[static_cast<std::size_t>(rank)];
    Ready& next = lane == SimLane::compute ? worker.compute : worker.extra;
    if (worker.running.valid() || !next.valid()) return;
    worker.running = next;
    next = {};
    const SimOperation& op = p_.operations[static_cast<std::size_t>(worker.running.operation)];
    worker.remaining = static_cast<double>(p_.costs[static_cast<std::size_t>(op.cost)].fixed.value);
    worker.since = now_;
    started(worker.running);
    worker.speed = compute_speed(rank);
    schedule_worker(rank);
  }

  double compute_speed(std::int32_t rank) const {
    const bool beside = !workers_[static_cast<std::size_t>(rank)].transfers.empty();
    return beside ? 1.0 / (1.0 + p_.ranks[static_cast<std::size_t>(rank)].compute_slowdown) : 1.0;
  }

  void follow_transfers(std::int32_t rank) {
    Worker& worker = workers_[static_cast<std::size_t>(rank)];
    if (!worker.running.valid()) return;
    const double speed = compute_speed(rank);
    if (speed == worker.speed) return;
    worker.remaining -= static_cast<double>(now_ - worker.since) * worker.speed;
    worker.since = now_;
    worker.speed = speed;
    schedule_worker(rank);
  }

  void schedule_worker(std::int32_t rank) {
    Worker& worker = workers_[static_cast<std::size_t>(rank)];
    push(time_left(worker.remaining, worker.speed), rank, ++worker.version, false);
  }

  // Transfers -------------------------------------------------------------------------------------------------------
  void start_transfer(Ready what) {
    std::int32_t slot;
    if (free_slots_.empty()) {
      slot = static_cast<std::int32_t>(transfers_.size());
      transfers_.emplace_back();
    } else {
      slot = free_slots_.back();
      free_slots_.pop_back();
    }
    Transfer& transfer = transfers_[static_cast<std::size_t>(slot)];
    transfer.what = what;
    transfer.live = true;
    transfer.moving = false;
    transfer.fair = transfer.speed = 1;
    transfer.ranks.clear();
    const SimOperation& op = p_.operations[static_cast<std::size_t>(what.operation)];
    std::int32_t cost = op.cost;
    if (op.joint < 0) {
      transfer.ranks.push_back(op.rank);
      started(what);
    } else {
      const auto& members = joint_members_[static_cast<std::size_t>(op.joint)];
      cost = p_.operations[static_cast<std::size_t>(members.front())].cost;
      for (const std::int32_t member : members) {
        transfer.ranks.push_back(p_.operations[static_cast<std::size_t>(member)].rank);
        started({member, what.iteration});
      }
    }
    transfer.cost = &p_.costs[static_cast<std::size_t>(cost)];
    for (const std::int32_t rank : transfer.ranks) {
      workers_[static_cast<std::size_t>(rank)].transfers.push_back(slot);
      follow_transfers(rank);
    }
    if (transfer.cost->fixed.value > 0) {
      push(now_ + transfer.cost->fixed.value, slot, ++transfer.version, true);
    } else {
      start_moving(slot);
    }
  }

  void start_moving(std::int32_t slot) {
    Transfer& transfer = transfers_[static_cast<std::size_t>(slot)];
    transfer.moving = true;
    transfer.remaining = static_cast<double>(transfer.cost->moving.value);
    transfer.since = now_;
    for (const ResourceUse& use : transfer.cost->use) {
      double& load = load_[static_cast<std::size_t>(use.resource)];
      load += use.share;
      if (load > 1 + 1e-9) shares_changed_ = true;
    }
    moving_.push_back(slot);
    transfer.speed = transfer.fair / interference(transfer);
    schedule_transfer(slot);
  }

  void end_transfer(std::int32_t slot) {
    Transfer& transfer = transfers_[static_cast<std::size_t>(slot)];
    for (const ResourceUse& use : transfer.cost->use) {
      double& load = load_[static_cast<std::size_t>(use.resource)];
      if (load > 1 + 1e-9) shares_changed_ = true;
      load -= use.share;
      if (load < 1e-9) load = 0;
    }
    moving_.erase(std::find(moving_.begin(), moving_.end(), slot));
    transfer.live = false;
    ++transfer.version;
    const Ready ended = transfer.what;
    for (const std::int32_t rank : transfer.ranks) {
      std::erase(workers_[static_cast<std::size_t>(rank)].transfers, slot);
      follow_transfers(rank);
    }
    free_slots_.push_back(slot);
    const std::int32_t joint = p_.operations[static_cast<std::size_t>(ended.operation)].joint;
    if (joint < 0) {
      finish(ended.operation, ended.iteration);
    } else {
      for (const std::int32_t member : joint_members_[static_cast<std::size_t>(joint)]) finish(member, ended.iteration);
    }
  }

  double interference(const Transfer& transfer) const {
    double factor = 1;
    for (const std::int32_t rank : transfer.ranks) {
      if (workers_[static_cast<std::size_t>(rank)].running.valid()) {
        factor = std::max(factor, 1.0 + p_.ranks[static_cast<std::size_t>(rank)].transfer_slowdown);
      }
    }
    return factor;
  }

  // Compute began or ended on this rank: its transfers change speed. A transfer that began at this instant, between
  // the end of one operation and the start of the next, has seen an idle rank and changes too.
  void follow_compute(std::int32_t rank) {
    for (const std::int32_t slot : workers_[static_cast<std::size_t>(rank)].transfers) {
      if (transfers_[static_cast<std::size_t>(slot)].moving) change_speed(slot);
    }
  }

  void reshare() {
    std::vector<std::span<const ResourceUse>> uses;
    for (const std::int32_t slot : moving_) uses.emplace_back(transfers_[static_cast<std::size_t>(slot)].cost->use);
    const std::vector<double> speeds = fair_speeds(uses);
    for (std::size_t i = 0; i < moving_.size(); ++i) {
      transfers_[static_cast<std::size_t>(moving_[i])].fair = speeds[i];
      change_speed(moving_[i]);
    }
  }

  void change_speed(std::int32_t slot) {
    Transfer& transfer = transfers_[static_cast<std::size_t>(slot)];
    const double speed = transfer.fair / interference(transfer);
    if (speed == transfer.speed) return;
    transfer.remaining -= static_cast<double>(now_ - transfer.since) * transfer.speed;
    transfer.since = now_;
    transfer.speed = speed;
    schedule_transfer(slot);
  }

  void schedule_transfer(std::int32_t slot) {
    Transfer& transfer = transfers_[static_cast<std::size_t>(slot)];
    push(time_left(transfer.remaining, transfer.speed), slot, ++transfer.version, true);
  }

  // Common ----------------------------------------------------------------------------------------------------------
  // Ends are rounded up to a nanosecond; work left over below a thousandth of one is rounding, not work.
  std::int64_t time_left(double remaining, double speed) const {
    return now_ + std::max<std::int64_t>(0, static_cast<std::int64_t>(std::ceil(remaining / speed - 1e-3)));
  }

  void started(Ready what) {
    SimTimes& times =
        iterations_[static_cast<std::size_t>(what.iteration)].times[static_cast<std::size_t>(what.operation)];
    times.start = Nanos{now_};
  }

  void push(std::int64_t time, std::int32_t subject, std::uint32_t version, bool transfer) {
    events_.push({time, sequence_++, subject, version, transfer});
  }

  std::vector<std::vector<SimTimes>> take_times() {
    std::vector<std::vector<SimTimes>> times;
    for (Iteration& it : iterations_) {
      if (it.unfinished > 0) break;
      times.push_back(std::move(it.times));
    }
    return times;
  }

  const SimProblem& p_;
  SimOptions options_;
  SteadyState steady_;
  std::vector<std::int32_t> first_pending_, all_pending_;
  std::vector<std::int64_t> successor_begin_;
  std::vector<SimEdge> successors_;  // `from` holds the successor
  std::vector<std::vector<std::int32_t>> joint_members_;
  std::vector<Iteration> iterations_;
  std::size_t complete_ = 0;  // of them
  std::vector<Worker> workers_;
  std::vector<Transfer> transfers_;
  std::vector<std::int32_t> free_slots_, moving_, marked_;
  std::vector<bool> is_marked_;
  std::vector<Ready> starting_;
  std::vector<double> load_;
  bool shares_changed_ = false;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t sequence_ = 0;
  std::int64_t now_ = 0;
  bool done_ = false;
};

}  // namespace

SimResult simulate(const SimProblem& problem, const SimOptions& options) {
  if (problem.operations.empty()) return {};
  return Engine(problem, options).run();
}

}  // namespace weft
