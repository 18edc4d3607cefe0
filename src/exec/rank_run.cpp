#include "exec/rank_run.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

#include "base/error.hpp"

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
    : PlanRun(view), communicator_(communicator), kernels_(kernels) {
  transfers_.resize(view.plan().classes[view.rank_class()].queues.size());
  operations_.resize(instances());
  for (std::size_t i = 0; i < instances(); ++i) {
    const Instance& of = instance(i);
    RunOperation& op = operations_[i];
    op.operation = of.operation;
    op.micro_batch = of.micro_batch;
    op.late = view.plan().issues[of.operation].late;
    has_late_ = has_late_ || op.late;
    op.waits = waits_of(i);
    RunQueue& target = queue_kind(of) == QueueKind::compute ? compute_
                       : queue_kind(of) == QueueKind::extra ? extra_
                                                            : transfers_[of.queue];
    target.operations.push_back(static_cast<std::int32_t>(i));
  }
  bind(compute);
  prepare(transfers);
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

void RankRun::set_forward_part(std::size_t index, bool validates, std::vector<Dependency> waits) {
  operations_[index].validates = validates;
  operations_[index].validation_waits = std::move(waits);
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
      if (compute_.step != step) pass_ended(step, on_step, lock);
    } else if (startable(extra_) != nullptr) {
      compute_one(extra_, lock);
    } else {
      const auto all_done = [&](const RunOperation& op) { return op.done == passes(); };
      if (std::all_of(operations_.begin(), operations_.end(), all_done)) break;
      wait_for_change(lock);
    }
  }
}

// A step with late operations ends in the pass after its own; that shows at the last step alone, behind which nothing
// of the training may be under way.
void RankRun::pass_ended(std::int64_t pass, const OnStep& on_step, std::unique_lock<std::mutex>& lock) {
  if (pass + 2 < now_.steps) now_.spans.clear(pass + 2);  // none of it can have begun
  const std::int64_t last = now_.steps - 1;
  if (!on_step || (has_late_ && pass == last)) return;
  const std::int64_t step = std::min(pass, last);
  lock.unlock();
  on_step(now_.first + step);
  lock.lock();
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
  return PlanRun::glance(step);
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
      if (does_nothing(*op, queue.step)) {
        const std::int64_t now = validating_ ? 0 : nanos(Clock::now());
        pop(queue);
        end(*op, {now, now, now});
        ended = true;
        continue;
      }
      if (running_[op->running] != nullptr) break;  // its last execution has not ended
      running_[op->running] = op;
      span_of(*op).ready = ready_at(*op);
      pop(queue);
      for (const Segment& segment : op->places.clear) std::memset(segment.data, 0, segment.bytes);
      communicator_.start(*op->prepared, op->places.input, op->places.output);
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
    if (!does_nothing(op, step)) op.compute.run(kernels_, number_of(step_of(op, step)));
  } catch (const RunFailed& failure) {
    const std::string words = fmt::format("rank {}, {}, {}: {}", view_.rank().value, step_in_words(step_of(op, step)),
                                          describe(view_.plan().graph.op(op.operation)), failure.what());
    communicator_.fail(words);
    throw RunFailed(words);
  }
  span.end = nanos(Clock::now());
  computing_ = nullptr;
  lock.lock();
  end(op, span);
  pop(queue);
  if (!over(compute_)) at_step_ = std::min(compute_.step, now_.steps - 1);
  start_transfers();
}

RankPlace RankRun::place() const {
  const RunOperation* const op = computing_;
  return {step_in_words(at_step_), op == nullptr
                                       ? "between operations"
                                       : fmt::format("computing {}", describe(view_.plan().graph.op(op->operation)))};
}

void RankRun::wait_for_change(std::unique_lock<std::mutex>& lock) {
  if (changed_.wait_for(lock, kLookForFailure) == std::cv_status::no_timeout) return;
  lock.unlock();
  communicator_.require_alive();
  lock.lock();
}

}  // namespace weft
