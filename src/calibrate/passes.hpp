// The computation of a step on a rank, run pass after pass without its transfers: on this processor one operation after
// the other, on a device enqueued as a whole and timed by events.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/mix.hpp"
#include "calibrate/calibrate.hpp"
#include "exec/bind_compute.hpp"
#include "exec/initial_weights.hpp"
#include "graph/kfac.hpp"

namespace weft {

// Returns whether it is a forward gate. Of those of slices, which go on where the one before them ended, the last.
inline bool has_load_of_all_tokens(const Plan& plan, const Operation& op) {
  if (op.role != Role::gate || op.phase != Phase::forward) return false;
  return !plan.layout.has_slices() || op.turn + 1 == plan.layout.slices();
}

class CalibrationPasses {
 public:
  using Clock = Transport::Clock;
  static double in_seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

  // `step`: one of the job's.
  CalibrationPasses(const CalibrationJob& job, const WholePlan& step, Rank rank, const Processor& processor)
      : kernels_(processor.kernels),
        device_(processor.device),
        view_(step, rank, device_),
        parameters_(view_),
        batches_(job.corpus, shape_of(step.plan()), 1),
        compute_(view_, parameters_, settings_, batches_, training_) {
    if (step.plan().layout.kfac_interval > 0) settings_.optimizer = Optimizer::kfac;
    training_.curvature.known.assign(parameters_.factors().size(), true);  // steps with inverses are what is measured
    for (const Instance& instance : step.unfolded().instances()) {
      const Operation& op = step.plan().graph.op(instance.operation);
      if (instance.rank_class != view_.rank_class()) continue;
      if (op.is_transfer()) {
        stand_in(step.plan().graph, op, instance.micro_batch);
      } else {
        operations_.push_back(
            {op.key, compute_.bind(instance.operation, instance.micro_batch), choices_of(op, instance.micro_batch)});
        find_turn(op, operations_.back());
      }
    }
    std::vector<float> numbers;
    for (const ParameterState& p : parameters_.all()) {
      parameters_.set_weights(p, [&](ElementRange range) {
        numbers.resize(range.size());
        initial_weights(p.tensors, 1, range.begin, numbers, kFewDistinct);
        return std::span<const float>(numbers);
      });
    }
    if (device_ != nullptr) prepare_stream();
  }

  const RankView& view() const { return view_; }

  // Runs until one pass is over or `over` says so. Reports every execution with its key and its seconds.
  template <class OnExecution, class Over>
  void run(const OnExecution& on_execution, const Over& over) {
    if (device_ != nullptr) return run_in_stream(on_execution);
    for (const Bound& operation : operations_) {
      const Clock::time_point begin = Clock::now();
      operation.compute.run(kernels_, operation.step);
      const Clock::time_point end = begin + (Clock::now() - begin) / operation.interval;
      if (over()) return;
      if (operation.key) on_execution(*operation.key, begin, end);
    }
  }

  // Runs one pass and reports, for every forward gate of a micro-batch, how many choices each expert got.
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
    // It does something in this one of so many steps. What is reported is the mean over them.
    std::int64_t step = 0, interval = 1;
  };
  void find_turn(const Operation& op, Bound& bound) const {
    if (op.role != Role::curvature && op.role != Role::inversion) return;
    bound.interval = view_.plan().layout.kfac_interval;
    bound.step = kfac_turn(op.layer, op.subject, bound.interval);
  }
  void prepare_stream() {
    stream_ = device_->make_stream(StreamPriority::usual);
    for (std::size_t i = 0; i <= operations_.size(); ++i) ended_.push_back(device_->make_event());
    for (const Queue& queue : view_.plan().classes[view_.rank_class()].queues) {
      if (queue.kind != QueueKind::communication) continue;
      waiting_.push_back({device_->make_stream(StreamPriority::high), device_->make_event()});
    }
  }
  // A device works on while the host enqueues, so the executions of a pass are known when all of it is over.
  template <class OnExecution>
  void run_in_stream(const OnExecution& on_execution) {
    device_->use(stream_);
    const std::uint64_t first_result = device_->results_asked_for();
    device_->record(ended_.front(), stream_);
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      operations_[i].compute.enqueue(kernels_, operations_[i].step);
      device_->record(ended_[i + 1], stream_);
      for (std::size_t w = 0; w < waiting_.size(); ++w) {
        if ((i + w) % kBetweenWaits != 0) continue;
        device_->wait(waiting_[w].stream, ended_[i + 1]);
        device_->record(waiting_[w].over, waiting_[w].stream);
      }
    }
    while (!device_->is_over(ended_.back())) std::this_thread::sleep_for(kPause);
    device_->deliver({first_result, device_->results_asked_for()});
    const auto time_of = [&](std::size_t event) {
      return Clock::time_point(std::chrono::nanoseconds(device_->time_of(ended_[event])));
    };
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      if (!operations_[i].key) continue;
      on_execution(*operations_[i].key, time_of(i),
                   time_of(i) + (time_of(i + 1) - time_of(i)) / operations_[i].interval);
    }
  }
  std::span<const float> choices_of(const Operation& op, MicroBatch micro_batch) const {
    if (!has_load_of_all_tokens(view_.plan(), op) || device_ != nullptr) return {};
    return floats_of({view_.data(write_of(op, Operand::loads), micro_batch), op.key.dims[1]});
  }
  // Nothing is transferred, so the memory for data of other ranks is filled with harmless values: no result may
  // overflow, and a loss of zeros has no logarithm.
  void stand_in(const StepGraph& graph, const Operation& transfer, MicroBatch micro_batch) {
    if (!transfer.per_micro_batch) return;
    struct Result {
      Vector numbers;
      float number;
      Vector noise;  // empty: all are the number
    };
    std::vector<Result> results;
    for (const Write& write : transfer.writes) {
      const Value& value = graph.value(write.value);
      if (!value.per_micro_batch) continue;
      Result& result = results.emplace_back();
      result.numbers = {view_.data(write.value, micro_batch), value.elements()};
      result.number = value.kind == ValueKind::scalar ? 1.0F : 0.0F;
      if (device_ != nullptr && value.kind == ValueKind::parameter) result.noise = noise_like(graph, result.numbers);
    }
    operations_.push_back({std::nullopt,
                           [results](Kernels& kernels, std::int64_t) {
                             for (const auto& [numbers, number, noise] : results) {
                               if (noise.empty()) {
                                 kernels.fill(numbers, number);
                               } else {
                                 kernels.copy(Matrix::dense(noise.data, 1, noise.size),
                                              Matrix::dense(numbers.data, 1, numbers.size));
                               }
                             }
                           },
                           {}});
  }
  // Products of a GPU are faster with weights of zeros, because it needs less power and keeps its clock.
  Vector noise_like(const StepGraph& graph, const Vector& weights) {
    if (!noise_) {
      std::int64_t most = 0;
      for (const Value& value : graph.values) {
        if (value.kind == ValueKind::parameter) most = std::max(most, value.elements());
      }
      noise_ = std::make_unique<RankMemory>(most * size_of(weights.data.type), device_);
      std::vector<float> numbers(static_cast<std::size_t>(most));
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        numbers[i] = static_cast<float>(static_cast<double>(mix_bits(i) >> 11) * 0x1p-53 - 0.5) * kWeightSize;
      }
      noise_->write(numbers, {{noise_->data(), weights.data.type}, most});
    }
    return {{noise_->data(), weights.data.type}, weights.size};
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

  static constexpr std::chrono::microseconds kPause{50};
  static constexpr std::size_t kBetweenWaits = 32;  // operations; the host is further ahead than that
  static constexpr float kWeightSize = 0.04F;

  Kernels& kernels_;
  Accelerator* device_;
  TrainSettings settings_ = still();
  RankTraining training_;
  RankView view_;
  ParameterStates parameters_;
  Batches batches_;
  ComputeBinder compute_;
  std::vector<Bound> operations_;
  StreamId stream_;             // of a device
  std::vector<EventId> ended_;  // there: before the first operation, and after each
  struct WaitingStream {
    StreamId stream;
    EventId over;
  };
  // The queues of transfers. While they wait for compute, as they do in a run, every operation takes some microseconds
  // longer: the device looks in turn at what its streams wait for.
  std::vector<WaitingStream> waiting_;
  std::unique_ptr<RankMemory> noise_;
};

}  // namespace weft
