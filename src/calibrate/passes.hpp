// The computation of a step on a rank, run pass after pass without its transfers.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "calibrate/calibrate.hpp"
#include "exec/bind_compute.hpp"
#include "exec/initial_weights.hpp"

namespace weft {

class CalibrationPasses {
 public:
  using Clock = Transport::Clock;
  static double in_seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

  // `step`: one of the job's.
  CalibrationPasses(const CalibrationJob& job, const WholePlan& step, Rank rank, Kernels& kernels)
      : kernels_(kernels),
        view_(step, rank),
        parameters_(view_),
        batches_(job.corpus, shape_of(step.plan()), 1),
        compute_(view_, parameters_, settings_, batches_, training_) {
    for (const Instance& instance : step.unfolded().instances()) {
      const Operation& op = step.plan().graph.op(instance.operation);
      if (instance.rank_class != view_.rank_class()) continue;
      if (op.is_transfer()) {
        stand_in(step.plan().graph, op, instance.micro_batch);
      } else {
        operations_.push_back(
            {op.key, compute_.bind(instance.operation, instance.micro_batch), choices_of(op, instance.micro_batch)});
      }
    }
    for (const ParameterState& p : parameters_.all()) {
      const ElementRange all{0, parameters_.holds_whole(p, p.weight) ? p.elements : parameters_.own(p).size()};
      initial_weights(p.tensors, 1, 0, floats_of({view_.data(p.weight), all.size()}));
    }
  }

  const RankView& view() const { return view_; }

  // Runs until one pass is over or `over` says so. Reports every execution with its key and its seconds.
  template <class OnExecution, class Over>
  void run(const OnExecution& on_execution, const Over& over) {
    for (const Bound& operation : operations_) {
      const Clock::time_point begin = Clock::now();
      operation.compute.run(kernels_, 0);
      const Clock::time_point end = Clock::now();
      if (over()) return;
      if (operation.key) on_execution(*operation.key, begin, end);
    }
  }

  // Runs one pass and reports, for every forward gate, how many choices each expert got.
  template <class OnGate>
  void run_gates(const OnGate& on_gate) {
    for (const Bound& operation : operations_) {
      operation.compute.run(kernels_, 0);
      if (!operation.choices.empty()) on_gate(operation.choices);
    }
  }

  // The transfers of micro-batches.
  std::int64_t transfers() const {
    return std::count_if(operations_.begin(), operations_.end(), [](const Bound& o) { return !o.key; });
  }
  // Runs one pass with `on_transfer` in place of each of them. Returns its seconds.
  template <class OnTransfer>
  double run_with(const OnTransfer& on_transfer) {
    const Clock::time_point begin = Clock::now();
    Clock::duration standing_in{};
    for (const Bound& operation : operations_) {
      const Clock::time_point start = Clock::now();
      operation.compute.run(kernels_, 0);
      if (operation.key) continue;
      standing_in += Clock::now() - start;
      on_transfer();
    }
    return in_seconds(Clock::now() - begin - standing_in);
  }
  // What its operations should take, one after the other.
  double expected(const std::map<OpKey, Nanos>& times, Nanos between) const {
    double sum = 0;
    for (const Bound& operation : operations_) {
      if (operation.key) sum += seconds(times.at(*operation.key) + between);
    }
    return sum;
  }

 private:
  struct Bound {
    std::optional<OpKey> key;  // none: it is not measured
    BoundOperation compute;
    std::span<const float> choices = {};  // of a forward gate, by expert
  };
  std::span<const float> choices_of(const Operation& op, MicroBatch micro_batch) const {
    if (op.role != Role::gate || op.phase != Phase::forward) return {};
    return floats_of({view_.data(write_of(op, Operand::loads), micro_batch), op.key.dims[1]});
  }
  // Nothing is transferred, so the memory for data of other ranks is filled with harmless values: no result may
  // overflow, and a loss of zeros has no logarithm.
  void stand_in(const StepGraph& graph, const Operation& transfer, MicroBatch micro_batch) {
    if (!transfer.per_micro_batch) return;
    std::vector<std::pair<Vector, float>> results;
    for (const Write& write : transfer.writes) {
      const Value& value = graph.value(write.value);
      if (!value.per_micro_batch) continue;
      results.push_back(
          {{view_.data(write.value, micro_batch), value.elements()}, value.kind == ValueKind::scalar ? 1.0F : 0.0F});
    }
    operations_.push_back({std::nullopt,
                           [results](Kernels& kernels, std::int64_t) {
                             for (const auto& [numbers, number] : results) kernels.fill(numbers, number);
                           },
                           {}});
  }
  static BatchShape shape_of(const Plan& plan) {
    const Layout& l = plan.layout;
    return {l.global_batch, l.micro_batch, l.seq, l.dp, plan.model.vocab};
  }
  // Weights stay as they are, pass after pass.
  static TrainSettings still() {
    TrainSettings settings;
    settings.steps = 1;
    settings.adam.learning_rate = 0;
    return settings;
  }

  Kernels& kernels_;
  TrainSettings settings_ = still();
  RankTraining training_;
  RankView view_;
  ParameterStates parameters_;
  Batches batches_;
  ComputeBinder compute_;
  std::vector<Bound> operations_;
};

}  // namespace weft
