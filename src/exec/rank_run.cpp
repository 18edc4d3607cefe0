#include "exec/rank_run.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

#include "base/error.hpp"
#include "exec/forward_part.hpp"

namespace weft {
namespace {

using Clock = RankRun::Clock;

// How often a waiting worker asks whether the communicator has failed.
constexpr std::chrono::milliseconds kLookForFailure{50};

std::int64_t nanos(Clock::time_point time) {
  return std::chrono::nanoseconds(time.time_since_epoch()).count();
}

}  // namespace

RankRun::RankRun(const RankView& view, Communicator& communicator, Kernels& kernels, const ComputeBinder& compute,
                 const TransferBinder& transfers)
    : view_(view),
      communicator_(communicator),
      kernels_(kernels),
      instances_(view.unfolded().instances_of(view.rank_class())) {
  for (const ClassId c : view.plan().classes.ids()) {
    most_instances_ = std::max(most_instances_, view.unfolded().instances_of(c).size());
  }
  const ClassPlan& plan = view.plan().classes[view.rank_class()];
  transfers_.resize(plan.queues.size());
  operations_.resize(instances_.size());
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    const Instance& instance = view.unfolded().instances()[instances_[i]];
    RunOperation& op = operations_[i];
    op.operation = instance.operation;
    op.micro_batch = instance.micro_batch;
    for (const Edge& edge : view.unfolded().waits_for(instances_[i])) {
      if (edge.kind == EdgeKind::queue) continue;  // queues keep their order by themselves
      op.waits.push_back({instances_.position_of(edge.from), edge.distance, edge.kind == EdgeKind::blocking});
    }
    const QueueKind kind = plan.queues[instance.queue].kind;
    RunQueue& target = kind == QueueKind::compute ? compute_
                       : kind == QueueKind::extra ? extra_
                                                  : transfers_[instance.queue];
    target.operations.push_back(static_cast<std::int32_t>(i));
  }
  bind(compute);
  prepare(transfers);
  // Of a rank's two queues of computations the worker runs one operation at a time.
  std::vector<std::int32_t> computes = compute_.operations, in_flight;
  computes.insert(computes.end(), extra_.operations.begin(), extra_.operations.end());
  for (const RunQueue& queue : transfers_) {
    in_flight.insert(in_flight.end(), queue.operations.begin(), queue.operations.end());
  }
  glancer_.emplace(std::move(computes), std::move(in_flight));
}

void RankRun::bind(const ComputeBinder& compute) {
  for (RunOperation& op : operations_) {
    if (view_.plan().graph.op(op.operation).is_transfer()) continue;
    op.compute = compute.bind(op.operation, op.micro_batch);
  }
}

// Prepares one collective per transfer, or two where its first execution of a step overwrites and the others add.
void RankRun::prepare(const TransferBinder& transfers) {
  struct Known {
    Communicator::Prepared* prepared = nullptr;
    std::size_t running = 0;
    PreparedCall call = {};  // until it is prepared
  };
  std::map<std::pair<OpId, bool>, Known> known;
  std::vector<Known*> in_order;
  for (RunOperation& op : operations_) {
    if (!view_.plan().graph.op(op.operation).is_transfer()) continue;
    op.places = transfers.bind(op.operation, op.micro_batch);
    const auto [found, is_new] = known.try_emplace({op.operation, op.places.accumulate}, Known{});
    if (is_new) {
      TransferCall transfer = transfers.call(op.operation);
      transfer.call.accumulate = op.places.accumulate;
      const std::size_t number = running_.size();
      transfer.call.on_done = [this, number](Clock::time_point began, Clock::time_point ended) {
        transfer_ended(number, began, ended);
      };
      running_.push_back(nullptr);
      found->second = {nullptr, number, std::move(transfer.call)};
      in_order.push_back(&found->second);
    }
    op.running = found->second.running;
  }
  // To prepare a library's own collective all members meet, so all ranks prepare those in one order.
  const auto is_native = [](const Known* k) { return k->call.program == nullptr && !k->call.uneven; };
  const auto programs = std::stable_partition(in_order.begin(), in_order.end(), is_native);
  std::stable_sort(in_order.begin(), programs, [](const Known* a, const Known* b) {
    const auto order = [](const PreparedCall& c) { return std::tie(c.members, c.queue, c.identity, c.accumulate); };
    return order(a->call) < order(b->call);
  });
  for (Known* const k : in_order) k->prepared = &communicator_.prepare(std::move(k->call));
  for (RunOperation& op : operations_) {
    if (!view_.plan().graph.op(op.operation).is_transfer()) continue;
    op.prepared = known.at({op.operation, op.places.accumulate}).prepared;
  }
}

void RankRun::run(std::int64_t first, std::int64_t end, const OnStep& on_step) {
  if (now_.steps >= longest_.steps) longest_ = std::move(now_);
  const std::int64_t steps = end - first;
  now_ = {first, steps, SpanRing(SpanRing::steps_kept(steps, most_instances_), operations_.size())};
  run_stretch(on_step);
}

void RankRun::prepare_validation() {
  if (std::exchange(prepared_validation_, true)) return;
  const ForwardPart part = forward_part(view_.whole());
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    operations_[i].validates = part.needed[instances_[i]];
    for (const Edge& edge : part.waits[instances_[i]]) {
      operations_[i].validation_waits.push_back({instances_.position_of(edge.from), edge.distance, false});
    }
  }
}

void RankRun::validate(std::int64_t batches) {
  prepare_validation();
  Stretch trained = std::exchange(now_, {0, batches, {}});
  now_.spans = SpanRing(SpanRing::steps_kept(batches, most_instances_), operations_.size());
  validating_ = true;
  run_stretch({});
  validating_ = false;
  now_ = std::move(trained);
}

void RankRun::run_stretch(const OnStep& on_step) {
  for (RunOperation& op : operations_) op.done = 0;
  for (RunQueue& queue : transfers_) queue.next = 0, queue.step = 0;
  for (RunQueue* queue : {&compute_, &extra_}) queue->next = 0, queue->step = 0;
  at_step_ = 0;
  const Stay at_this_step(communicator_.whereabouts(), [this] { return place(); });
  std::unique_lock lock(mutex_);
  start_transfers();
  for (;;) {
    if (startable(compute_) != nullptr) {
      const std::int64_t step = compute_.step;
      compute_one(compute_, lock);
      if (compute_.step != step && step + 2 < now_.steps) now_.spans.clear(step + 2);  // none of it can have begun
      if (compute_.step != step && on_step) {
        lock.unlock();
        on_step(now_.first + step);
        lock.lock();
      }
    } else if (startable(extra_) != nullptr) {
      compute_one(extra_, lock);
    } else {
      const auto all_done = [&](const RunOperation& op) { return op.done == now_.steps; };
      if (std::all_of(operations_.begin(), operations_.end(), all_done)) break;
      wait_for_change(lock);
    }
  }
}

void RankRun::end_after(std::int64_t last) {
  const std::lock_guard lock(mutex_);
  const std::int64_t steps = last - now_.first + 1;
  WEFT_CHECK(steps <= now_.steps);
  const auto begun_later = [&](const RunQueue& queue) {
    return queue.step > steps || (queue.step == steps && queue.next > 0);
  };
  WEFT_CHECK(!begun_later(compute_) && !begun_later(extra_) && std::ranges::none_of(transfers_, begun_later));
  now_.steps = steps;
}

StepGlance RankRun::glance(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  step -= now_.first;
  const std::span<const RankSpan> own = now_.spans.of_step(step);
  if (step + 1 < now_.steps) {
    const std::span<const RankSpan> next = now_.spans.of_step(step + 1);
    return glancer_->look(own, next, glancer_->begin_of(next));
  }
  std::int64_t end = 0;
  for (const RankSpan& span : own) end = std::max(end, span.end);
  return glancer_->look(own, {}, end);
}

bool RankRun::is_ready(const RunOperation& op, std::int64_t step) const {
  const auto is_over = [&](const Dependency& wait) { return operations_[wait.on].done >= step + 1 - wait.distance; };
  return std::ranges::all_of(op.waits, is_over) && (!validating_ || std::ranges::all_of(op.validation_waits, is_over));
}

std::int64_t RankRun::ready_at(const RunOperation& op) const {
  std::int64_t at = 0;
  for (const Dependency& wait : op.waits) {
    if (!wait.order) at = std::max(at, operations_[wait.on].ended_at);
  }
  return at;
}

RankRun::RunOperation* RankRun::startable(const RunQueue& queue) {
  if (over(queue)) return nullptr;
  RunOperation& op = operations_[queue.operations[queue.next]];
  return op.done == queue.step && is_ready(op, queue.step) ? &op : nullptr;
}

void RankRun::pop(RunQueue& queue) {
  if (++queue.next < queue.operations.size()) return;
  queue.next = 0;
  ++queue.step;
}

// The communicator keeps the order of a queue, so a transfer is handed over as soon as its own data is there.
void RankRun::start_transfers() {
  while (start_transfers_once()) {
  }
}

// Returns whether one ended at once: others may wait for it.
bool RankRun::start_transfers_once() {
  bool ended = false;
  for (RunQueue& queue : transfers_) {
    for (RunOperation* op = startable(queue); op != nullptr; op = startable(queue)) {
      if (does_nothing(*op)) {
        pop(queue);
        end(*op, {});
        ended = true;
        continue;
      }
      if (running_[op->running] != nullptr) break;  // its last execution has not ended
      running_[op->running] = op;
      span_of(*op).ready = ready_at(*op);
      pop(queue);
      for (const Segment& segment : op->places.clear) std::memset(segment.data, 0, segment.bytes);
      last_started_ = communicator_.start(*op->prepared, op->places.input, op->places.output);
    }
  }
  return ended;
}

void RankRun::transfer_ended(std::size_t prepared, Clock::time_point began, Clock::time_point ended) {
  {
    const std::lock_guard lock(mutex_);
    RunOperation& op = *running_[prepared];
    running_[prepared] = nullptr;
    end(op, {span_of(op).ready, nanos(began), nanos(ended)});
    start_transfers();
  }
  changed_.notify_one();
}

void RankRun::end(RunOperation& op, const RankSpan& span) {
  span_of(op) = span;
  op.ended_at = span.end;
  ++op.done;
}

void RankRun::compute_one(RunQueue& queue, std::unique_lock<std::mutex>& lock) {
  RunOperation& op = *startable(queue);
  const std::int64_t step = queue.step;
  RankSpan span{ready_at(op), 0, 0};
  lock.unlock();
  computing_ = &op;
  span.start = nanos(Clock::now());
  try {
    if (!does_nothing(op)) op.compute.run(kernels_, validating_ ? step_of_validation(step) : now_.first + step);
  } catch (const RunFailed& failure) {
    const std::string words = fmt::format("rank {}, {}, {}: {}", view_.rank().value, step_in_words(step),
                                          describe(view_.plan().graph.op(op.operation)), failure.what());
    communicator_.fail(words);
    throw RunFailed(words);
  }
  span.end = nanos(Clock::now());
  computing_ = nullptr;
  lock.lock();
  end(op, span);
  pop(queue);
  if (!over(compute_)) at_step_ = compute_.step;
  start_transfers();
}

std::string RankRun::step_in_words(std::int64_t step) const {
  return fmt::format("{} {}", validating_ ? "validation batch" : "step", now_.first + step + 1);
}

RankPlace RankRun::place() const {
  const RunOperation* const op = computing_;
  return {step_in_words(at_step_), op == nullptr
                                       ? "between operations"
                                       : fmt::format("computing {}", describe(view_.plan().graph.op(op->operation)))};
}

void RankRun::wait_for_change(std::unique_lock<std::mutex>& lock) {
  if (changed_.wait_for(lock, kLookForFailure) == std::cv_status::no_timeout || !last_started_) return;
  const Communicator::Handle handle = *last_started_;
  lock.unlock();
  communicator_.done(handle);  // throws where the run has failed
  lock.lock();
}

}  // namespace weft
