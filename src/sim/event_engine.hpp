// The event loop behind simulate() knows who is ready, what runs and what is closed. How fast things run is in
// event_engine_speed.cpp.
//
// A fold (folding.hpp) that nothing disturbs is *closed*: one event, at its end. A transfer that starts on its rank, or
// begins to move over a resource of its transfers, *opens* it: its current operation is found, set up as if it had been
// simulated all along, and its operations are simulated one by one until one ends and nothing is near any more; then
// the rest closes again. So the times are those of simulating every operation.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "sim/simulate_folded.hpp"
#include "sim/steady_state.hpp"

namespace weft {

class EventEngine {
 public:
  EventEngine(const SimProblem& problem, const SimOptions& options);
  FoldedResult run();

 private:
  enum class Happens : std::uint8_t { worker_ends, transfer_goes_on, worker_wakes };
  // Events are small, because the heap is the simulator's hot path.
  struct Event {
    std::int64_t time;
    std::uint64_t sequence;  // ties are served in the order of scheduling
    std::int32_t subject;    // rank of a compute end or of a closed fold's end, slot of a transfer, or of waking_
    std::uint32_t version;   // stale events carry an old version
    Happens what;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : sequence > other.sequence;
    }
  };

  struct Iteration {
    std::vector<std::int32_t> pending;  // by node
    IdVector<JointId, std::int32_t> joint_pending;
    FoldedIteration times;
    std::int64_t unfinished = 0;
  };

  // A node is ready to start or runs. Of a fold it means the operation that Worker::fold stands at.
  struct Ready {
    std::int32_t node = -1;
    std::int32_t iteration = 0;
    bool valid() const { return node >= 0; }
  };

  // A rank has at most one fold under way, because its chain runs in order.
  struct ActiveFold {
    Ready what;
    std::int32_t offset = 0;  // the operation that runs; closed: the first of the closed stretch
    std::int64_t since = 0;   // when that started
    bool closed = false;
  };

  struct Worker {
    Ready compute, extra;  // at the head of their queue and ready
    Ready running;
    double remaining = 0;  // nanoseconds at full speed
    double speed = 1;
    std::int64_t since = 0;
    std::int64_t ended_at = -1;  // the last that ran
    std::uint32_t version = 0;
    std::vector<std::int32_t> transfers;  // slots of transfers under way on this rank
    std::int32_t waiting = 0;             // transfers that this rank has begun and others have not
    ActiveFold fold;
  };

  struct Transfer {
    Ready what;                     // any member
    std::int32_t operation = 0;     // its own, or that of its first member
    const SimCost* cost = nullptr;  // that operation's
    std::vector<std::int32_t> ranks;
    bool moving = false;
    double remaining = 0;
    double fair = 1;   // share of its full speed that the resources allow
    double speed = 1;  // fair, further slowed by compute beside it
    std::int64_t since = 0;
    std::uint32_t version = 0;
    bool live = false;
  };

  // A resource has saved up so much at a time since which it is idle or in use.
  struct IdleTime {
    double saved_ns = 0;
    std::int64_t since = 0;
  };

  const FoldedNode& node(Ready what) const { return folding_.nodes[what.node]; }
  std::int32_t first_operation(Ready what) const { return node(what).first; }
  std::int32_t current_operation(Ready what) const;
  const SimOperation& operation(std::int32_t index) const { return p_.operations[index]; }
  const SimCost& cost_of(std::int32_t index) const { return p_.costs[operation(index).cost]; }
  Worker& worker(std::int32_t rank) { return workers_[rank]; }
  const std::vector<std::int32_t>& resources_of(const ActiveFold& fold) const;
  std::int64_t alone_before(std::int32_t index) const { return folding_.alone_before[index]; }

  Iteration& iteration(std::int32_t k);
  void begin_iteration(std::int32_t k);
  void became_ready(Ready what);
  void ended(Ready what);
  void finish(Ready what);
  bool must_wake(Ready ended, Ready next) const;
  void wake_up(Ready next);
  void handle(const Event& event);
  void settle();
  void mark(std::int32_t rank);

  void begin_fold(std::int32_t rank, Ready what);
  void continue_fold(std::int32_t rank);
  bool can_close(std::int32_t rank);
  void open_fold(std::int32_t rank);
  void resume_transfer(std::int32_t rank, std::int64_t started);
  void operation_of_fold_ended(std::int32_t rank);
  void end_fold(std::int32_t rank);
  void leave_resources(const ActiveFold& fold);

  void dispatch_marked(SimQueue queue);
  bool dispatch(std::int32_t rank, SimQueue queue);
  double compute_speed(std::int32_t rank) const;
  void follow_transfers(std::int32_t rank);
  void schedule_worker(std::int32_t rank);
  bool slows_while_waiting(std::int32_t rank, std::int32_t operation) const;
  void let_wait(std::int32_t rank);
  std::int32_t new_transfer(Ready what);
  void start_transfer(Ready what);
  void start_moving(std::int32_t slot);
  void use_resources(std::int32_t slot);
  double saved_for(const SimCost& cost);
  void end_transfer(std::int32_t slot);
  double interference(const Transfer& transfer) const;
  void follow_compute(std::int32_t rank);
  void reshare();
  void change_speed(std::int32_t slot);
  void schedule_transfer(std::int32_t slot);
  std::int64_t time_left(double remaining, double speed) const;
  void push(std::int64_t time, std::int32_t subject, std::uint32_t version, Happens what) {
    events_.push({time, sequence_++, subject, version, what});
  }

  const SimProblem& p_;
  SimOptions options_;
  Folding folding_;
  SteadyState steady_;
  SimWork work_;
  IdVector<JointId, std::vector<std::int32_t>> joint_members_;  // nodes
  std::vector<Iteration> iterations_;
  std::size_t complete_ = 0;  // of them
  std::vector<Worker> workers_;
  std::vector<Transfer> transfers_;
  std::vector<std::int32_t> free_slots_, moving_, marked_;
  std::vector<Ready> waking_;  // what workers will start when they are awake
  std::vector<std::int32_t> free_waking_;
  std::vector<bool> is_marked_;
  std::vector<Ready> starting_;         // transfers
  std::vector<std::int32_t> arriving_;  // ranks that have begun a transfer of several ranks, which slows their compute
  std::vector<std::int32_t> continuing_;  // ranks whose fold is to start its next operation
  std::vector<double> load_;              // by resource
  std::vector<IdleTime> idle_;            // by resource, where bursts are saved up
  std::vector<std::int32_t> folds_on_;    // by resource: folds under way that use it, open and closed
  std::vector<std::int32_t> closed_on_;   // by resource: the rank whose closed fold uses it, or -1
  bool shares_changed_ = false;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t sequence_ = 0;
  std::int64_t now_ = 0;
  bool done_ = false;
};

}  // namespace weft
