#include "comm/communication_thread.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "comm/paced_links.hpp"
#include "comm/prepared_call.hpp"
#include "comm/prepared_run.hpp"
#include "comm/rank_health.hpp"

namespace weft {
namespace {

constexpr std::int64_t kChannelsPerQueue = 1024;
constexpr std::int64_t kCheckChannel = kChannelsPerQueue - 1;  // of a queue; programs have the others
// Limit on the steps of a queue before the others have their turn, because calls that start each other could continue
// for ever.
constexpr int kMaxStepsPerTurn = 64;

}  // namespace

CommunicationThread::CommunicationThread(std::unique_ptr<Transport> transport, CommunicatorOptions options)
    : transport_(std::move(transport)),
      features_(transport_->features()),
      paced_(features_.paced_links),
      options_(std::move(options)),
      trouble_(*transport_, {options_.timeout, options_.silence}),
      thread_(launch()) {}

CommunicationThread::~CommunicationThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  if (paced_ != nullptr) paced_->drive(nullptr);
  transport_->wake();
  thread_.join();
}

std::thread CommunicationThread::launch() {
  if (paced_ != nullptr) paced_->drive([this] { drive(); });
  return std::thread([this] { main(); });
}

CommunicationThread::Prepared& CommunicationThread::prepare(PreparedCall call) {
  auto prepared = std::make_unique<Prepared>();
  prepared->call = std::move(call);
  Prepared* const result = prepared.get();
  prepared_.push_back(std::move(prepared));  // before it is built: the library may never return from that
  {
    const std::lock_guard lock(mutex_);
    submitted_.reserve(prepared_.size());
  }
  run_on_thread([this, result] { build(*result); });
  return *result;
}

// On the communication thread, because it may still be in the call's on_done when a waiting thread knows of the end.
void CommunicationThread::release(Prepared& prepared) {
  run_on_thread([&] {
    {
      const std::lock_guard lock(mutex_);
      WEFT_CHECK(prepared.started == prepared.ended);
    }
    const auto found = std::find_if(prepared_.begin(), prepared_.end(),
                                    [&](const std::unique_ptr<Prepared>& other) { return other.get() == &prepared; });
    WEFT_CHECK(found != prepared_.end());
    prepared_.erase(found);
  });
}

// A thread that is awake looks at what was submitted before it rests: most starts wake nobody.
CommunicationThread::Handle CommunicationThread::start(Prepared& prepared, std::span<const Segment> input,
                                                       std::span<const Segment> output) {
  const auto most = static_cast<std::size_t>(prepared.call.segments);
  WEFT_CHECK(input.size() <= most && output.size() <= most);
  Handle handle{&prepared, 0};
  bool asleep = false;
  {
    const std::lock_guard lock(mutex_);
    rethrow();
    WEFT_CHECK(prepared.started == prepared.ended);
    handle.turn = ++prepared.started;
    prepared.input.assign(input.begin(), input.end());
    prepared.output.assign(output.begin(), output.end());
    prepared.issued = paced_ != nullptr ? issue_time() : Clock::time_point();
    submitted_.push_back(&prepared);
    asleep = std::exchange(resting_, false);
  }
  if (paced_ == nullptr) {
    if (asleep) transport_->wake();
  } else if (!on_own_thread()) {
    paced_->request_round(prepared.issued);
  }
  return handle;
}

bool CommunicationThread::done(Handle handle) {
  const std::lock_guard lock(mutex_);
  rethrow();
  return handle.call->ended >= handle.turn;
}

void CommunicationThread::require_alive() {
  const std::lock_guard lock(mutex_);
  rethrow();
}

void CommunicationThread::wait(Handle handle) {
  WEFT_CHECK(!on_own_thread());  // it would wait for itself
  std::unique_lock lock(mutex_);
  const auto over = [&] { return failed_ || handle.call->ended >= handle.turn; };
  wait_and_watch(lock, over);
  if (handle.call->ended < handle.turn) rethrow();
}

// The communication thread says it, because what it does with the callers' memory must have ended; unless it is inside
// the library, which may never return.
void CommunicationThread::fail(const std::string& why) {
  if (on_own_thread()) return fail_all(why);
  std::unique_lock lock(mutex_);
  if (!reason_to_fail_) reason_to_fail_ = why;
  lock.unlock();
  transport_->wake();
  lock.lock();
  while (!failed_) {
    if (in_library_ != nullptr) {
      lock.unlock();
      fail_all(why);
      lock.lock();
    }
    ended_.wait_for(lock, kWatchPeriod, [&] { return failed_; });
  }
}

void CommunicationThread::main() {
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);  // short sleeps end when they should
  try {
    while (goes_on()) {
      if (!work()) rest();
    }
  } catch (const std::exception& error) {
    fail_all(error.what());
  }
  // Preparations that come now must not wait for ever.
  while (!stopping()) transport_->pause(Clock::now() + kWatchPeriod);
}

bool CommunicationThread::goes_on() {
  const std::lock_guard lock(mutex_);
  if (reason_to_fail_) throw RunFailed(*reason_to_fail_);
  return !stopping_ && !failed_;
}

bool CommunicationThread::stopping() {
  const std::lock_guard lock(mutex_);
  if (failed_ && job_) finish_job(std::make_exception_ptr(RunFailed(failure_)));
  return stopping_;
}

bool CommunicationThread::work() {
  if (paced_ == nullptr) {
    do_job();
    return round();
  }
  paced_->exclusively([this] { do_job(); });
  return false;
}

// By a thread of the paced links. What goes wrong is kept here: that thread works for other ranks too.
void CommunicationThread::drive() {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || failed_) return;
  }
  driver_ = std::this_thread::get_id();
  try {
    int rounds = 0;
    while (round()) {
      if (++rounds < kMaxStepsPerTurn) continue;
      paced_->request_round(paced_->now());  // other ranks have their turn
      break;
    }
  } catch (const std::exception& error) {
    fail_all(error.what());
  }
  driver_ = std::thread::id();
}

bool CommunicationThread::round() {
  take_submitted();
  bool moved = false;
  for (auto& [number, queue] : queues_) {
    for (int steps = 0; steps < kMaxStepsPerTurn && advance(queue); ++steps) moved = true;
  }
  return moved;
}

bool CommunicationThread::advance(CallQueue& queue) {
  const bool moved = queue.advance();
  if (Prepared* const ended = queue.take_ended()) finish(*ended);
  return moved;
}

void CommunicationThread::finish(Prepared& call) {
  const Clock::time_point now = time_on(paced_);
  {
    const std::lock_guard lock(mutex_);
    ++call.ended;
  }
  ended_.notify_all();
  if (!call.call.on_done) return;
  call.call.on_done(call.began, now);
  take_submitted();  // what it started need not wait for the next round
}

// Over paced links, a call that was issued later than what is worked on has its time later, and so have those behind it
// on its queue; others, which the end of a call has just set off, need not wait for it.
void CommunicationThread::take_submitted() {
  const std::lock_guard lock(mutex_);
  const auto is_later = [&](const Prepared* call) { return paced_ != nullptr && call->issued > paced_->now(); };
  auto kept = submitted_.begin();
  for (Prepared* const prepared : submitted_) {
    const std::int64_t number = prepared->call.queue;
    const bool is_behind =
        std::any_of(submitted_.begin(), kept, [&](const Prepared* other) { return other->call.queue == number; });
    if (is_behind || is_later(prepared)) {
      *kept++ = prepared;
      continue;
    }
    queues_.at(number).append(*prepared);
  }
  submitted_.erase(kept, submitted_.end());
  for (const Prepared* const call : submitted_) {
    if (is_later(call)) paced_->request_round(call->issued);
  }
}

// A call that another call's end sets off is issued at the time of that end.
CommunicationThread::Clock::time_point CommunicationThread::issue_time() const {
  return on_own_thread() ? time_on(paced_) : Clock::now();
}

template <class Condition>
bool CommunicationThread::any_active(const Condition& condition) {
  bool any = false;
  const auto look = [&] {
    any = std::any_of(queues_.begin(), queues_.end(), [&](const auto& queue) {
      return queue.second.active() != nullptr && condition(*queue.second.active());
    });
  };
  if (paced_ == nullptr) {
    look();
  } else {
    paced_->exclusively(std::ref(look));  // by value it would not fit into a std::function without memory
  }
  return any;
}

// When to look again at the latest. A library that is asked gives no sign when it has something to say.
CommunicationThread::Clock::time_point CommunicationThread::next_look(bool busy) {
  const Clock::time_point now = Clock::now();
  if (!busy) return now + std::chrono::milliseconds(500);
  if (!any_active([](const Prepared& call) { return call.native != nullptr; })) return now + kWatchPeriod;
  const IdleStep step = library_idle_.next(now);
  if (step == IdleStep::yield) std::this_thread::yield();
  return step == IdleStep::sleep ? now + library_idle_.sleep() : now;
}

void CommunicationThread::rest() {
  const bool busy = any_active([](const Prepared&) { return true; });
  const Clock::time_point until = next_look(busy);
  {
    const std::lock_guard lock(mutex_);
    if (paced_ == nullptr && !submitted_.empty()) return;
    resting_ = true;
  }
  if (until > Clock::now()) transport_->pause(until);
  {
    const std::lock_guard lock(mutex_);
    resting_ = false;
  }
  if (paced_ != nullptr && busy && Clock::now() - last_request_ >= kWatchPeriod) {
    last_request_ = Clock::now();
    paced_->request_round(last_request_);
  }
  if (busy) return;  // then the queues look for trouble
  if (const auto words = trouble_.of_idle()) throw RunFailed(*words);
}

// On the communication thread: transports are used there alone.
void CommunicationThread::build(Prepared& prepared) {
  const PreparedCall& call = prepared.call;
  const std::int64_t member = member_of(call, transport_->rank());
  const std::int64_t first_channel = call.queue * kChannelsPerQueue;
  prepared.note = note_of(call);
  if (options_.check) {
    prepared.check = std::make_unique<CallCheck>(call.members, first_channel + kCheckChannel, *transport_);
  }
  const CallQueue::Shared shared{*transport_, trouble_, in_library_, library_idle_, options_.check};
  CallQueue& queue = queues_.try_emplace(call.queue, shared).first->second;
  prepared.turns = &queue.turns_of(call.members);
  prepared.input.reserve(call.segments);
  prepared.output.reserve(call.segments);
  if (call.uneven) {
    prepared.exchange = std::make_unique<UnevenRun>(*call.uneven, call.members, first_channel, *transport_);
  } else if (call.program == nullptr) {
    const InLibrary inside(in_library_, prepared);
    prepared.build_native(features_.library, member, queue.staging());
  } else {
    prepared.build_program(*transport_, member, first_channel, options_.credit);
  }
}

void CommunicationThread::run_on_thread(std::function<void()> job) {
  WEFT_CHECK(!on_own_thread());
  std::unique_lock lock(mutex_);
  rethrow();
  job_ = std::move(job);
  lock.unlock();
  transport_->wake();
  lock.lock();
  wait_and_watch(lock, [&] { return !job_ || (failed_ && in_library_ != nullptr); });
  if (job_) rethrow();
  if (job_error_) std::rethrow_exception(std::exchange(job_error_, nullptr));
}

// Without the lock: the library may be slow, or never return.
void CommunicationThread::do_job() {
  std::unique_lock lock(mutex_);
  if (!job_) return;
  const std::function<void()> job = job_;
  lock.unlock();
  std::exception_ptr error;
  try {
    job();
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  finish_job(error);
}

void CommunicationThread::finish_job(std::exception_ptr error) {
  job_ = nullptr;
  job_error_ = std::move(error);
  ended_.notify_all();
}

bool CommunicationThread::on_own_thread() const {
  const std::thread::id self = std::this_thread::get_id();
  return self == thread_.get_id() || self == driver_.load();
}

template <class Condition>
void CommunicationThread::wait_and_watch(std::unique_lock<std::mutex>& lock, const Condition& over) {
  while (!ended_.wait_for(lock, kWatchPeriod, over)) {
    const Prepared* const call = in_library_;
    if (call == nullptr) continue;
    lock.unlock();
    if (const auto words = trouble_.of_library(call->in_words())) fail_all(*words);
    lock.lock();
  }
}

// All is said, here and to the others, before any waiting thread can act on it and end the process.
void CommunicationThread::fail_all(const std::string& words) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(failing_, true)) return;
  }
  if (options_.on_failure) options_.on_failure(words);
  if (features_.health != nullptr) features_.health->give_up(words);
  {
    const std::lock_guard lock(mutex_);
    failed_ = true;
    failure_ = words;
  }
  ended_.notify_all();
  if (options_.after_failure) options_.after_failure(words);
}

void CommunicationThread::rethrow() const {
  if (failed_) throw RunFailed(failure_);
}

}  // namespace weft
