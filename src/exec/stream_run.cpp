#include "exec/stream_run.hpp"

#include <algorithm>
#include <map>
#include <thread>
#include <tuple>

#include "base/error.hpp"
#include "exec/rank_exchange.hpp"
#include "plan/late.hpp"

namespace weft {
namespace {

// A waiting host looks again so soon at first, and then ever later, so that it neither misses the end of a short step
// nor takes a processor from the threads that carry out collectives.
constexpr std::chrono::microseconds kFirstPause{5}, kLongestPause{200};
// When a rank is lost, collectives often fail before this rank hears who it was: a process that is killed gives back
// its memory on the GPU before its connections close. On an H200 beside other jobs that took up to 2.2 s.
constexpr std::chrono::seconds kTimeToHearOfALoss{5};

// How many operations a host enqueues ahead where ranks of one process share a device. A stream takes about a thousand
// calls; a host that waits inside the driver for room might keep another from what the first one's device waits for.
constexpr std::size_t kMostAhead = 96, kBetweenLooks = 32;
// Far fewer than a stream takes, and a few times as long as it takes a device to say that an operation has ended.
constexpr std::size_t kLastFew = 8;

}  // namespace

StreamRun::StreamRun(const RankView& view, Communicator& communicator, Accelerator& device,
                     StreamCollectives* collectives, const ComputeBinder& compute, const TransferBinder& transfers,
                     StreamRunOptions options)
    : PlanRun(view),
      communicator_(communicator),
      device_(device),
      collectives_(collectives),
      options_(std::move(options)) {
  if (has_late(view.plan())) {
    fail("the plan has late operations, which only ranks on processors run; plans made for GPUs have none");
  }
  const ClassPlan& plan = view.plan().classes[view.rank_class()];
  for (const Queue& queue : plan.queues) {
    const bool communicates = queue.kind == QueueKind::communication;
    streams_.push_back(device.make_stream(communicates ? StreamPriority::high : StreamPriority::usual));
  }
  if (options_.graphs == GraphWish::never) report_.why = "--graphs off";
  if (report_.why.empty()) report_.why = why_no_recording();
  if (options_.graphs == GraphWish::always && !report_.why.empty()) fail("--graphs on: {}", report_.why);
  if (!report_.why.empty()) graph_state_ = GraphState::decided;
  stream_length_.assign(streams_.size(), 0);
  last_of_stream_.assign(streams_.size(), 0);
  operations_.resize(instances());
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    const Instance& of = instance(i);
    StreamOperation& op = operations_[i];
    op.stream = of.queue.index();
    op.place = stream_length_[op.stream]++;
    last_of_stream_[op.stream] = i;
    op.waits = waits_of(i);
    op.is_transfer = view.plan().graph.op(of.operation).is_transfer();
    if (!op.is_transfer) op.compute = compute.bind(of.operation, of.micro_batch);
  }
  for (StreamOperation& op : operations_) {
    const auto is_foreign = [&](const Dependency& wait) { return operations_[wait.on].stream != op.stream; };
    op.has_begin_event = op.place == 0 || op.is_transfer || std::ranges::any_of(op.waits, is_foreign);
  }
  find_enqueue_order();
  prepare(transfers);
  under_way_.resize(kStepsUnderWay * operations_.size());
  for (std::size_t i = 0; i < under_way_.size(); ++i) {
    under_way_[i].ended = device.make_event();
    if (operations_[i % operations_.size()].has_begin_event) under_way_[i].begun = device.make_event();
    under_way_[i].known.resize(streams_.size());
  }
}

// A stream cannot wait for an event that nobody has recorded yet: whatever an operation waits for in its own step is
// enqueued before it. Otherwise the order of issue is kept.
void StreamRun::find_enqueue_order() {
  std::vector<bool> enqueued(operations_.size(), false);
  std::vector<std::int64_t> next_place(streams_.size(), 0);
  const auto can_be_next = [&](std::size_t i) {
    const StreamOperation& op = operations_[i];
    const auto is_there = [&](const Dependency& wait) { return wait.distance > 0 || enqueued[wait.on]; };
    return !enqueued[i] && op.place == next_place[op.stream] && std::ranges::all_of(op.waits, is_there);
  };
  std::size_t first = 0;
  while (enqueue_order_.size() < operations_.size()) {
    while (enqueued[first]) ++first;
    std::size_t i = first;
    while (i < operations_.size() && !can_be_next(i)) ++i;
    WEFT_CHECK(i < operations_.size());  // the plan was verified: no operation waits for itself
    enqueue_order_.push_back(i);
    enqueued[i] = true;
    ++next_place[operations_[i].stream];
  }
}

// One prepared collective per transfer, or two where its first execution of a step overwrites and the others add.
void StreamRun::prepare(const TransferBinder& transfers) {
  struct Known {
    PreparedCall call;
    const BoundTransfer* places = nullptr;
    std::size_t number = 0;
  };
  std::map<std::pair<OpId, bool>, Known> known;
  std::vector<Known*> in_order;
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    StreamOperation& op = operations_[i];
    if (!op.is_transfer) continue;
    WEFT_CHECK(collectives_ != nullptr);
    const OpId id = instance(i).operation;
    op.places = transfers.bind(id, instance(i).micro_batch);
    const auto [found, is_new] = known.try_emplace({id, op.places.accumulate});
    if (!is_new) continue;
    found->second.call = transfers.call(id).call;
    found->second.call.accumulate = op.places.accumulate;
    found->second.places = &op.places;
    in_order.push_back(&found->second);
  }
  if (collectives_ == nullptr) return;
  // Members compare what they prepared, so all ranks prepare theirs in one order.
  std::ranges::stable_sort(in_order, {}, [](const Known* k) {
    return std::tuple(k->call.members, k->call.queue, k->call.identity, k->call.accumulate);
  });
  for (Known* k : in_order) k->number = collectives_->prepare(k->call, k->places->input, k->places->output);
  collectives_->connect();
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    StreamOperation& op = operations_[i];
    if (op.is_transfer) op.prepared = known.at({instance(i).operation, op.places.accumulate}).number;
  }
}

void StreamRun::set_forward_part(std::size_t index, bool validates, std::vector<Dependency> waits) {
  operations_[index].validates = validates;
  operations_[index].validation_waits = std::move(waits);
}

void StreamRun::run_stretch(const OnStep& on_step) {
  begin_stretch();
  const Stay at_this_step(communicator_.whereabouts(), [this]() -> RankPlace {
    return {step_in_words(finished_), "waiting for the device", collectives_ != nullptr};
  });
  try {
    while (finished_ < now_.steps) {
      while (may_enqueue()) enqueue(enqueued_++);
      finish(finished_);
      const std::int64_t ended = finished_++;
      if (!validating_) choose_graphs(ended);
      if (on_step) on_step(now_.first + ended);
    }
  } catch (const std::exception& error) {
    // Streams may wait for a rank that is gone, and whoever frees their memory would wait for them. NCCL ends no
    // communicator that a graph could still use.
    forget_recordings();
    if (collectives_ != nullptr) collectives_->abort(error.what());
    throw;
  }
}

// Steps that are recorded and steps that are not are never under way together.
bool StreamRun::may_enqueue() const {
  if (enqueued_ == now_.steps || enqueued_ == finished_ + kStepsUnderWay) return false;
  if (enqueued_ == finished_) return true;
  if (steps_under_way_[(enqueued_ - 1) % kStepsUnderWay].is_recorded != starts_recordings()) return false;
  return !options_.reads_memory_after || validating_ || !options_.reads_memory_after(now_.first + finished_);
}

// A step without its transfers, on whatever the memory holds.
void StreamRun::rehearse_stretch() {
  begin_stretch();
  rehearsing_ = true;
  enqueue(enqueued_++);
  wait_for_ends(0);
  for (std::size_t i = 0; i < operations_.size(); ++i) device_.deliver(under_way(0, i).results);
  rehearsing_ = false;
  UnderWay& last = under_way_.front();
  device_.clear(streams_.front(), view_.memory().data(), view_.memory().size());
  device_.record(last.ended, streams_.front());
  wait_until_over(last.ended);
}

bool StreamRun::needs_rehearsal() const {
  return collectives_ != nullptr && collectives_->needs_rehearsal();
}

void StreamRun::begin_stretch() {
  enqueued_ = 0;
  finished_ = 0;
  known_.assign(streams_.size(), std::vector<std::int64_t>(streams_.size(), 0));
  last_end_.assign(streams_.size(), 0);
  last_ended_at_ = 0;
}

void StreamRun::end_after(std::int64_t last) {
  const std::int64_t steps = last - now_.first + 1;
  WEFT_CHECK(steps <= now_.steps && enqueued_ <= steps);
  now_.steps = steps;
}

void StreamRun::enqueue(std::int64_t step) {
  if (starts_recordings() && recorded_steps_.empty()) make_recordings(step);
  StepUnderWay& now = steps_under_way_[step % kStepsUnderWay];
  now.is_recorded = starts_recordings();
  const std::int64_t begin = steady_nanos();
  if (now.is_recorded) {
    start_recorded(step);
  } else {
    enqueue_calls(step);
  }
  now.cost.host = Nanos{steady_nanos() - begin};
  now.cost.device_waited = has_caught_up(step);
}

void StreamRun::enqueue_calls(std::int64_t step) {
  for (std::size_t n = 0; n < enqueue_order_.size(); ++n) {
    if (n % kBetweenLooks == 0 && needs_rehearsal()) wait_for_room(step, n);
    enqueue_one(step, enqueue_order_[n]);
  }
}

// Whether the device has ended all but the last few operations when the host has enqueued all of a step.
bool StreamRun::has_caught_up(std::int64_t step) {
  if (graph_state_ != GraphState::measuring || validating_ || rehearsing_) return false;
  const std::size_t place = enqueue_order_.size() - std::min(enqueue_order_.size(), kLastFew + 1);
  return is_over(under_way(step, enqueue_order_[place]).ended);
}

// Before the n-th operation of a step.
void StreamRun::wait_for_room(std::int64_t step, std::size_t n) {
  constexpr std::size_t kBehind = kMostAhead - kBetweenLooks;
  const bool of_this_step = n >= kBehind;
  if (!of_this_step && (step == finished_ || n + enqueue_order_.size() < kBehind)) return;
  const std::size_t place = of_this_step ? n - kBehind : n + enqueue_order_.size() - kBehind;
  wait_until_over(under_way(of_this_step ? step : step - 1, enqueue_order_[place]).ended);
}

void StreamRun::enqueue_one(std::int64_t step, std::size_t index) {
  try {
    enqueue_calls(step, index);
  } catch (const RunFailed& failure) {
    if (recorded_now_ != nullptr) throw;  // all ranks go on without recordings
    hear_of_a_loss();
    fail_at(step, index, failure.what());
  }
}

void StreamRun::enqueue_calls(std::int64_t step, std::size_t index) {
  const StreamOperation& op = operations_[index];
  const StreamId stream = streams_[op.stream];
  UnderWay& now = under_way(step, index);
  for (const Dependency& wait : op.waits) wait_for(step, index, wait);
  if (validating_) {
    for (const Dependency& wait : op.validation_waits) wait_for(step, index, wait);
  }
  if (op.has_begin_event) device_.record(now.begun, stream);
  now.results.begin = device_.results_asked_for();
  if (does_nothing(op)) {
  } else if (op.is_transfer) {
    for (const Segment& segment : op.places.clear) device_.clear(stream, segment.data, Bytes{segment.bytes});
    collectives_->start(op.prepared, op.places.input, op.places.output, device_.native(stream));
  } else {
    device_.use(stream);
    call_kernels(step, index);
  }
  now.results.end = device_.results_asked_for();
  device_.record(now.ended, stream);
  known_[op.stream][op.stream] = count_after(op, step);
  now.known = known_[op.stream];
}

// What a stream has waited for, and what that had waited for in its turn, need not be waited for again.
void StreamRun::wait_for(std::int64_t step, std::size_t index, const Dependency& dependency) {
  const StreamOperation& on = operations_[dependency.on];
  std::vector<std::int64_t>& known = known_[operations_[index].stream];
  const std::int64_t of_step = step - dependency.distance;
  // A recording is started when the one of its turn is over.
  const std::int64_t first_not_over = recorded_now_ != nullptr ? step - kStepsUnderWay + 1 : finished_.load();
  if (of_step < first_not_over || known[on.stream] >= count_after(on, of_step)) return;
  const UnderWay& awaited = under_way(of_step, static_cast<std::size_t>(dependency.on));
  device_.wait(streams_[operations_[index].stream], awaited.ended);
  std::ranges::transform(known, awaited.known, known.begin(), [](auto a, auto b) { return std::max(a, b); });
}

void StreamRun::finish(std::int64_t step) {
  wait_for_ends(step);
  const std::int64_t begin = steady_nanos();
  keep_spans(step);
  read_results(step);
  HostCost& cost = steps_under_way_[static_cast<std::size_t>(step % kStepsUnderWay)].cost;
  cost.host = cost.host + Nanos{steady_nanos() - begin};
}

// Streams keep their order: the last operation of each ends last.
void StreamRun::wait_for_ends(std::int64_t step) {
  const auto turn = static_cast<std::size_t>(step % kStepsUnderWay);
  if (steps_under_way_[turn].is_recorded) return wait_until_over(recorded_steps_[turn].ended);
  for (std::size_t stream = 0; stream < streams_.size(); ++stream) {
    if (stream_length_[stream] > 0) wait_until_over(under_way(step, last_of_stream_[stream]).ended);
  }
}

void StreamRun::wait_until_over(EventId event) {
  auto pause = kFirstPause;
  Standstill standstill(communicator_.timeout(), Standstill::Clock::now());
  while (!is_over(event)) {
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
    communicator_.require_alive();
    if (collectives_ == nullptr) continue;
    if (const std::string why = collectives_->failure(); !why.empty()) fail_of_device(why);
    require_progress(standstill);
  }
}

void StreamRun::require_progress(Standstill& standstill) {
  const Standstill::Clock::time_point now = Standstill::Clock::now();
  if (!standstill.is_time_to_look(now)) return;
  std::uint64_t ended = static_cast<std::uint64_t>(finished_) * operations_.size();
  for (const UnderWay& each : under_way_) ended += is_over(each.ended) ? 1 : 0;
  if (!standstill.lasts(ended, now)) return;
  fail_of_device(fmt::format("{}: nothing has ended on the device for {:g} s (--timeout); under way are {}",
                             step_in_words(finished_), std::chrono::duration<double>(communicator_.timeout()).count(),
                             words_of_what_is_under_way()));
}

// Of every queue the operation that is next to end.
std::string StreamRun::words_of_what_is_under_way() {
  const ClassPlan& plan = view_.plan().classes[view_.rank_class()];
  std::vector<std::string> words(streams_.size());
  for (std::int64_t step = finished_; step < enqueued_; ++step) {
    for (const std::size_t index : enqueue_order_) {
      std::string& of_stream = words[operations_[index].stream];
      if (!of_stream.empty() || is_over(under_way(step, index).ended)) continue;
      of_stream = fmt::format("{} (queue {}, {})", describe(view_.plan().graph.op(instance(index).operation)),
                              plan.queues[make_id<QueueId>(operations_[index].stream)].name, step_in_words(step));
    }
  }
  std::erase(words, "");
  return fmt::format("{}", fmt::join(words, "; "));
}

bool StreamRun::is_over(EventId event) {
  try {
    return device_.is_over(event);
  } catch (const RunFailed& failure) {
    fail_of_device(failure.what());
  }
}

void StreamRun::fail_of_device(const std::string& why) {
  hear_of_a_loss();
  const std::string words = fmt::format("rank {}: {}", view_.rank().value, why);
  communicator_.fail(words);
  throw RunFailed(words);
}

// A rank that is gone takes others with it: NCCL misses it, and ranks that share a GPU see its memory end. Whoever
// hears of the loss throws that instead.
void StreamRun::hear_of_a_loss() {
  if (collectives_ == nullptr) return;
  const auto deadline = std::chrono::steady_clock::now() + kTimeToHearOfALoss;
  while (std::chrono::steady_clock::now() < deadline) {
    communicator_.require_alive();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void StreamRun::keep_spans(std::int64_t step) {
  for (const std::size_t index : enqueue_order_) {
    const StreamOperation& op = operations_[index];
    const UnderWay& was = under_way(step, index);
    RankSpan& span = now_.spans.at(step, index);
    span.end = device_.time_of(was.ended);
    span.start = op.has_begin_event ? device_.time_of(was.begun) : last_end_[op.stream];
    span.ready = 0;
    for (const Dependency& wait : op.waits) {
      if (wait.order || step < wait.distance) continue;
      span.ready = std::max(span.ready, now_.spans.at(step - wait.distance, static_cast<std::size_t>(wait.on)).end);
    }
    last_end_[op.stream] = span.end;
  }
}

void StreamRun::read_results(std::int64_t step) {
  for (const std::size_t index : enqueue_order_) {
    const StreamOperation& op = operations_[index];
    if (op.is_transfer || does_nothing(op)) continue;
    device_.deliver(under_way(step, index).results);
    try {
      op.compute.read_results(device_.kernels(), number_of(step));
    } catch (const RunFailed& failure) {
      fail_at(step, index, failure.what());
    }
  }
}

void StreamRun::fail_at(std::int64_t step, std::size_t index, const std::string& why) {
  const std::string words = fmt::format("rank {}, {}, {}: {}", view_.rank().value, step_in_words(step),
                                        describe(view_.plan().graph.op(instance(index).operation)), why);
  communicator_.fail(words);
  throw RunFailed(words);
}

}  // namespace weft
