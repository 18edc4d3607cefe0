// Executes one rank's part of a plan, step after step: its queues and dependencies and nothing else.
//
// The calling thread is the worker of `compute` and `extra`. Transfers are handed to the communicator the moment their
// dependencies are done, by whoever finished the last of them: the worker, or the communication thread. A queue of
// streams with events between them could take the place of both.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "comm/communicator.hpp"
#include "exec/bind_compute.hpp"
#include "exec/bind_transfer.hpp"
#include "exec/span_ring.hpp"
#include "exec/step_glance.hpp"

namespace weft {

class RankRun {
 public:
  using Clock = Transport::Clock;

  // Prepares every collective: all ranks must do so in the same order. All must outlive it.
  RankRun(const RankView& view, Communicator& communicator, Kernels& kernels, const ComputeBinder& compute,
          const TransferBinder& transfers);

  // Called by the worker when the compute queue has ended a step. No operation of the step after the next can have
  // begun then.
  using OnStep = std::function<void(std::int64_t step)>;
  // Runs steps first .. end - 1, and returns when all their operations have ended. Throws RunFailed naming step and
  // operation.
  void run(std::int64_t first, std::int64_t end, const OnStep& on_step = {});
  // From OnStep of a step: the one after it shall be the last. All ranks must say so at the same step.
  void end_after(std::int64_t last);
  std::int64_t end() const { return now_.first + now_.steps; }  // of the last run(), or what it will have been
  // Runs the forward part of so many batches of validation with the weights as they are; every other operation of the
  // step takes its turn and does nothing. Not during run(). All ranks must do so after the same step.
  void validate(std::int64_t batches);

  // Of a step after which another has ended its compute, or of the last when all is over.
  StepGlance glance(std::int64_t step);

  // How many instances this rank's class has, in issue order as Unfolded has them.
  std::size_t instances() const { return operations_.size(); }
  // Of several calls of run() the longest is measured, of equal ones the last; of a long one the last steps alone are
  // kept, as many on every rank: [step * instances() + instance].
  std::int64_t measured_steps() const { return SpanRing::steps_kept(measured().steps, most_instances_); }
  std::int64_t first_measured_step() const { return measured().first + measured().steps - measured_steps(); }
  std::vector<RankSpan> spans() const { return measured().spans.in_order(measured().steps); }

 private:
  struct Dependency {
    std::int32_t on = 0;
    std::int8_t distance = 0;
    bool order = false;  // only decides when it is issued
  };
  struct RunOperation {
    OpId operation;
    MicroBatch micro_batch = kOncePerStep;
    std::vector<Dependency> waits;
    BoundOperation compute;  // of the worker's
    // Of a transfer:
    BoundTransfer places;
    Communicator::Prepared* prepared = nullptr;
    std::size_t running = 0;                   // index into running_
    bool validates = false;                    // it is of the forward part, ...
    std::vector<Dependency> validation_waits;  // ... and waits for these too where that alone runs

    std::int64_t done = 0;  // steps that it has ended
    std::int64_t ended_at = 0;
  };
  struct RunQueue {
    std::vector<std::int32_t> operations;
    std::size_t next = 0;
    std::int64_t step = 0;
  };

  // Steps that followed each other without a break: what the run counts from 0 is step `first` of the training.
  struct Stretch {
    std::int64_t first = 0, steps = 0;
    SpanRing spans;
  };
  const Stretch& measured() const { return now_.steps >= longest_.steps ? now_ : longest_; }

  void prepare_validation();
  void run_stretch(const OnStep& on_step);
  bool does_nothing(const RunOperation& op) const { return validating_ && !op.validates; }
  std::string step_in_words(std::int64_t step) const;
  void bind(const ComputeBinder& compute);
  void prepare(const TransferBinder& transfers);
  bool is_ready(const RunOperation& op, std::int64_t step) const;
  std::int64_t ready_at(const RunOperation& op) const;
  // The first operation of a queue if it can start now.
  RunOperation* startable(const RunQueue& queue);
  static void pop(RunQueue& queue);
  bool over(const RunQueue& queue) const { return queue.operations.empty() || queue.step == now_.steps; }
  void start_transfers();
  bool start_transfers_once();
  void transfer_ended(std::size_t prepared, Clock::time_point began, Clock::time_point ended);
  void compute_one(RunQueue& queue, std::unique_lock<std::mutex>& lock);
  void wait_for_change(std::unique_lock<std::mutex>& lock);
  void end(RunOperation& op, const RankSpan& span);
  RankPlace place() const;
  RankSpan& span_of(const RunOperation& op) {
    return now_.spans.at(op.done, static_cast<std::size_t>(&op - operations_.data()));
  }

  const RankView& view_;
  Communicator& communicator_;
  Kernels& kernels_;
  IdRange<InstanceId> instances_;  // of this rank's class
  std::vector<RunOperation> operations_;
  RunQueue compute_, extra_;
  IdVector<QueueId, RunQueue> transfers_;
  Stretch now_, longest_;  // the longest before this one
  bool prepared_validation_ = false, validating_ = false;
  std::size_t most_instances_ = 0;  // of any class
  std::optional<StepGlancer> glancer_;

  std::mutex mutex_;  // guards all progress
  std::condition_variable changed_;
  std::vector<RunOperation*> running_;  // by prepared collective: whom it serves now
  std::optional<Communicator::Handle> last_started_;

  // For messages, which any thread may need at any time.
  std::atomic<std::int64_t> at_step_ = 0;
  std::atomic<const RunOperation*> computing_ = nullptr;
};

}  // namespace weft
