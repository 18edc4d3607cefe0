// A rank's part of a plan, run step after step: what all ways to execute it have in common. Threads and a communicator
// execute it on this processor (exec/rank_run.hpp), streams and events on a device (exec/stream_run.hpp).
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "exec/graph_choice.hpp"
#include "exec/rank_view.hpp"
#include "exec/span_ring.hpp"
#include "exec/step_glance.hpp"

namespace weft {

class PlanRun {
 public:
  virtual ~PlanRun() = default;

  // Called by the worker when the compute queue has ended a step. No operation of the step after the next can have
  // begun then.
  using OnStep = std::function<void(std::int64_t step)>;
  // Runs steps first .. end - 1, and returns when all their operations have ended. Throws RunFailed naming step and
  // operation.
  void run(std::int64_t first, std::int64_t end, const OnStep& on_step = {});
  // From OnStep of a step: the one after it shall be the last. All ranks must say so at the same step.
  virtual void end_after(std::int64_t last) = 0;
  std::int64_t end() const { return now_.first + now_.steps; }  // of the last run(), or what it will have been
  // Runs the forward part of so many batches of validation with the weights as they are; every other operation of the
  // step takes its turn and does nothing. Not during run(). All ranks must do so after the same step.
  void validate(std::int64_t batches);
  // Does what a first step does for the first time, where ranks cannot wait for that while they run. All memory of the
  // plan is zeros afterwards, so it comes before the weights. `validates`: there will be validation.
  void rehearse(bool validates);

  // What steps cost the host of this rank, where it only enqueues them.
  virtual std::optional<HostReport> host_report() const { return std::nullopt; }
  // Of a step after which another has ended its compute, or of the last when all is over.
  virtual StepGlance glance(std::int64_t step);

  // Returns how many instances this rank's class has, in issue order as Unfolded has them.
  std::size_t instances() const { return instances_.size(); }
  // Of several calls of run() the longest is measured, of equal ones the last; of a long one the last steps alone are
  // kept, as many on every rank: [step * instances() + instance].
  std::int64_t measured_steps() const { return SpanRing::steps_kept(measured().steps, most_instances_); }
  std::int64_t first_measured_step() const { return measured().first + measured().steps - measured_steps(); }
  std::vector<RankSpan> spans() const { return measured().spans.in_order(measured().steps); }

 protected:
  // What an operation waits for, beside the operation before it in its queue. `on` counts from the first of its class.
  struct Dependency {
    std::int32_t on = 0;
    std::int8_t distance = 0;
    bool order = false;  // only decides when it is issued
  };
  // Steps that followed each other without a break: what the run counts from 0 is step `first` of the training.
  struct Stretch {
    std::int64_t first = 0, steps = 0;
    SpanRing spans;
  };

  explicit PlanRun(const RankView& view);
  const Instance& instance(std::size_t index) const { return view_.unfolded().instances()[instances_[index]]; }
  QueueKind queue_kind(const Instance& instance) const;
  std::vector<Dependency> waits_of(std::size_t index) const;
  virtual void run_stretch(const OnStep& on_step) = 0;
  virtual bool needs_rehearsal() const { return false; }
  virtual void rehearse_stretch() {}
  // Told before the first validation, by instance: whether it is of the forward part, and what it waits for in addition
  // where that alone runs.
  virtual void set_forward_part(std::size_t index, bool validates, std::vector<Dependency> waits) = 0;
  std::string step_in_words(std::int64_t step) const;
  // The number by which operations know a step of this stretch.
  std::int64_t number_of(std::int64_t step) const { return validating_ ? step_of_validation(step) : now_.first + step; }

  const RankView& view_;
  Stretch now_;
  bool validating_ = false;

 private:
  const Stretch& measured() const { return now_.steps >= longest_.steps ? now_ : longest_; }
  void prepare_validation();

  IdRange<InstanceId> instances_;   // of this rank's class
  std::size_t most_instances_ = 0;  // of any class
  Stretch longest_;                 // before this one
  bool prepared_validation_ = false;
  std::optional<StepGlancer> glancer_;
};

}  // namespace weft
