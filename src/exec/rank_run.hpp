// Executes one rank's part of a plan, step after step: its queues and dependencies and nothing else.
//
// The calling thread is the worker of `compute` and `extra`. Transfers are handed to the communicator the moment their
// dependencies are done, by whoever finished the last of them: the worker, or the communication thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include "comm/communicator.hpp"
#include "exec/bind_compute.hpp"
#include "exec/bind_transfer.hpp"
#include "exec/plan_run.hpp"

namespace weft {

class RankRun final : public PlanRun {
 public:
  using Clock = Transport::Clock;

  // Prepares every collective: all ranks must do so in the same order. All must outlive it.
  RankRun(const RankView& view, Communicator& communicator, Kernels& kernels, const ComputeBinder& compute,
          const TransferBinder& transfers);

  void end_after(std::int64_t last) override;
  StepGlance glance(std::int64_t step) override;

 private:
  struct RunOperation {
    OpId operation;
    MicroBatch micro_batch = kOncePerStep;
    std::vector<Dependency> waits;
    BoundOperation compute;  // of the worker's
    // Of a transfer:
    BoundTransfer places;
    Communicator::Prepared* prepared = nullptr;
    bool late = false;                         // Issue::late
    std::size_t running = 0;                   // index into running_
    bool validates = false;                    // it is of the forward part, ...
    std::vector<Dependency> validation_waits;  // ... and waits for these too where that alone runs

    std::int64_t done = 0;  // passes that it has ended
    std::int64_t ended_at = 0;
  };
  struct RunQueue {
    std::vector<std::int32_t> operations;
    std::size_t next = 0;
    std::int64_t step = 0;  // pass over the plan's order: a step, but for late operations
  };

  void run_stretch(const OnStep& on_step) override;
  void set_forward_part(std::size_t index, bool validates, std::vector<Dependency> waits) override;
  // Steps that follow each other make one pass more than there are where some operations are late (plan/late.hpp).
  std::int64_t passes() const { return now_.steps + (has_late_ && !validating_ ? 1 : 0); }
  bool does_nothing(const RunOperation& op, std::int64_t pass) const {
    if (validating_) return !op.validates;
    return pass == (op.late ? 0 : now_.steps);
  }
  // The step of the training that an operation is of in a pass.
  std::int64_t step_of(const RunOperation& op, std::int64_t pass) const {
    return op.late && !validating_ ? pass - 1 : pass;
  }
  void pass_ended(std::int64_t pass, const OnStep& on_step, std::unique_lock<std::mutex>& lock);
  void bind(const ComputeBinder& compute);
  void prepare(const TransferBinder& transfers);
  bool is_ready(const RunOperation& op, std::int64_t step) const;
  std::int64_t ready_at(const RunOperation& op) const;
  // The first operation of a queue if it can start now.
  RunOperation* startable(const RunQueue& queue);
  static void pop(RunQueue& queue);
  bool over(const RunQueue& queue) const { return queue.operations.empty() || queue.step == passes(); }
  void start_transfers();
  bool start_transfers_once();
  void transfer_ended(std::size_t prepared, Clock::time_point began, Clock::time_point ended);
  void compute_one(RunQueue& queue, std::unique_lock<std::mutex>& lock);
  void wait_for_change(std::unique_lock<std::mutex>& lock);
  void end(RunOperation& op, const RankSpan& span);
  RankPlace place() const;
  RankSpan& span_of(const RunOperation& op) {
    if (op.done >= now_.steps) return unmeasured_;
    return now_.spans.at(op.done, static_cast<std::size_t>(&op - operations_.data()));
  }

  Communicator& communicator_;
  Kernels& kernels_;
  std::vector<RunOperation> operations_;
  bool has_late_ = false;
  RankSpan unmeasured_;  // of the pass behind the last step
  RunQueue compute_, extra_;
  IdVector<QueueId, RunQueue> transfers_;

  std::mutex mutex_;  // guards all progress
  std::condition_variable changed_;
  std::vector<RunOperation*> running_;  // by prepared collective: whom it serves now

  // For messages, which any thread may need at any time.
  std::atomic<std::int64_t> at_step_ = 0;
  std::atomic<const RunOperation*> computing_ = nullptr;
};

}  // namespace weft
