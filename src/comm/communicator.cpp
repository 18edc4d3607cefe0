#include "comm/communicator.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.hpp"
#include "collective/lowered.hpp"
#include "collective/verify/verify_program.hpp"
#include "comm/call_check.hpp"
#include "comm/idle.hpp"
#include "comm/native_run.hpp"
#include "comm/prepared_call.hpp"
#include "comm/prepared_run.hpp"
#include "comm/program_run.hpp"
#include "comm/trouble.hpp"

namespace weft {
namespace {

using Clock = Transport::Clock;

constexpr std::int64_t kChannelsPerQueue = 1024;
constexpr std::int64_t kCheckChannel = kChannelsPerQueue - 1;  // of a queue; programs have the others
// What a queue may do before the others have their turn: calls that start each other could go on for ever.
constexpr int kStepsInTurn = 64;
// How often a waiting thread asks whether a rank was lost.
constexpr std::chrono::milliseconds kWatchPeriod{50};

}  // namespace

class Communicator::Thread {
 public:
  Thread(std::unique_ptr<Transport> transport, CommunicatorOptions options)
      : transport_(std::move(transport)),
        options_(std::move(options)),
        trouble_(*transport_, {options_.timeout, options_.silence}),
        driven_(transport_->drives([this] { drive(); })),
        thread_([this] { main(); }) {}

  ~Thread() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    if (driven_) transport_->drives(nullptr);
    transport_->wake();
    thread_.join();
  }

  Transport& transport() { return *transport_; }
  Whereabouts& whereabouts() { return trouble_.whereabouts(); }

  Prepared& prepare(PreparedCall call) {
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

  // A thread that is awake looks at what was submitted before it rests: most starts wake nobody.
  Handle start(Prepared& prepared, std::span<const Segment> input, std::span<const Segment> output) {
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
      prepared.issued = driven_ ? issue_time() : Clock::time_point();
      submitted_.push_back(&prepared);
      asleep = std::exchange(resting_, false);
    }
    if (!driven_) {
      if (asleep) transport_->wake();
    } else if (!on_own_thread()) {
      transport_->call(prepared.issued);
    }
    return handle;
  }

  bool done(Handle handle) {
    const std::lock_guard lock(mutex_);
    rethrow();
    return handle.call->ended >= handle.turn;
  }

  void wait(Handle handle) {
    WEFT_CHECK(!on_own_thread());  // it would wait for itself
    std::unique_lock lock(mutex_);
    const auto over = [&] { return failed_ || handle.call->ended >= handle.turn; };
    wait_and_watch(lock, over);
    if (handle.call->ended < handle.turn) rethrow();
  }

  // The communication thread says it, because what it does with the callers' memory must have ended; unless it is
  // inside the library, which may never return.
  void fail(const std::string& why) {
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

 private:
  struct Queue {
    Prepared *first = nullptr, *last = nullptr;  // the line of those that wait
    Prepared* active = nullptr;
    bool checking = false;
    std::map<std::vector<std::int64_t>, std::int64_t> turns;  // by members: those of several groups may share a queue
    Clock::time_point last_progress, last_look;
    std::uint64_t moved = 0;  // by the transport, at the last look
    NativeStaging staging;
  };

  void main() {
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

  bool goes_on() {
    const std::lock_guard lock(mutex_);
    if (reason_to_fail_) throw RunFailed(*reason_to_fail_);
    return !stopping_ && !failed_;
  }

  bool stopping() {
    const std::lock_guard lock(mutex_);
    if (failed_ && job_) finish_job(std::make_exception_ptr(RunFailed(failure_)));
    return stopping_;
  }

  // Driven, rounds are the transport's.
  bool work() {
    if (!driven_) {
      do_job();
      return round();
    }
    transport_->exclusively([this] { do_job(); });
    return false;
  }

  // By a thread of the transport's. What goes wrong is kept here: that thread works for other ranks too.
  void drive() {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_ || failed_) return;
    }
    driver_ = std::this_thread::get_id();
    try {
      int rounds = 0;
      while (round()) {
        if (++rounds < kStepsInTurn) continue;
        transport_->call(transport_->now());  // other ranks have their turn
        break;
      }
    } catch (const std::exception& error) {
      fail_all(error.what());
    }
    driver_ = std::thread::id();
  }

  bool round() {
    take_submitted();
    bool moved = false;
    for (auto& [id, queue] : queues_) {
      for (int steps = 0; steps < kStepsInTurn && advance(queue); ++steps) moved = true;
    }
    return moved;
  }

  // Without the lock: the library may be slow, or never return.
  void do_job() {
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

  // Driven, a call that was issued later than what is worked on has its time later, and so have those behind it on its
  // queue; others, which the end of a call has just set off, need not wait for it.
  void take_submitted() {
    const std::lock_guard lock(mutex_);
    const auto is_later = [&](const Prepared* call) { return driven_ && call->issued > transport_->now(); };
    auto kept = submitted_.begin();
    for (Prepared* const prepared : submitted_) {
      const std::int64_t number = prepared->call.queue;
      const bool is_behind =
          std::any_of(submitted_.begin(), kept, [&](const Prepared* other) { return other->call.queue == number; });
      if (is_behind || is_later(prepared)) {
        *kept++ = prepared;
        continue;
      }
      Queue& queue = queues_.at(number);
      prepared->next = nullptr;
      (queue.first == nullptr ? queue.first : queue.last->next) = prepared;
      queue.last = prepared;
    }
    submitted_.erase(kept, submitted_.end());
    for (const Prepared* const call : submitted_) {
      if (is_later(call)) transport_->call(call->issued);
    }
  }

  // Of a call that another call's end sets off: the time of that end.
  Clock::time_point issue_time() const { return on_own_thread() ? transport_->now() : Clock::now(); }

  // One bit of progress of a queue: false where it has to wait.
  bool advance(Queue& queue) {
    if (queue.active == nullptr) {
      if (queue.first == nullptr) return false;
      queue.active = std::exchange(queue.first, queue.first->next);
      queue.active->began = transport_->now();
      queue.last_progress = Clock::now();
      begin(queue);
      return true;
    }
    Prepared& active = *queue.active;
    bool moved = false;
    if (queue.checking) {
      moved = named(active, [&] { return active.check->advance(); });
      if (active.check->done()) {
        if (const auto words = active.check->mismatch())
          throw RunFailed(trouble_.at(fmt::format("queue {}: {}", active.call.queue, *words)));
        queue.checking = false;
        run(active);
        moved = true;
      }
    } else {
      moved = named(active, [&] { return active.advance(); });
      if (active.is_over()) {
        if (active.native != nullptr) library_idle_.happened(Clock::now());
        finish(queue);
        moved = true;
      }
    }
    if (moved) {
      queue.last_progress = Clock::now();
    } else {
      look_for_trouble(queue);
    }
    return moved;
  }

  void begin(Queue& queue) {
    Prepared& active = *queue.active;
    active.note.turn = ++*active.turns;
    queue.checking = options_.check;
    if (!queue.checking) return run(active);
    named(active, [&] { active.check->start(active.note); });
  }

  void run(Prepared& active) {
    if (active.native != nullptr) {
      std::optional<InLibrary> inside;
      if (active.native->blocks()) inside.emplace(*this, active);
      named(active, [&] { active.native->start(active.input, active.output); });
    } else if (active.exchange != nullptr) {
      named(active, [&] { active.exchange->start(active.input, active.output); });
    } else {
      named(active, [&] { active.run->start(active.input, active.output); });
    }
  }

  // A transport knows ranks and bytes, but not the operation they belong to.
  template <class Work>
  auto named(const Prepared& active, const Work& work) const -> decltype(work()) {
    try {
      return work();
    } catch (const RunFailed& failure) {
      throw RunFailed(fmt::format("{}: {}", trouble_.at(active.in_words()), failure.what()));
    }
  }

  // While the communication thread is inside a call of the library it cannot look for trouble; whoever waits does.
  class InLibrary {
   public:
    InLibrary(Thread& thread, const Prepared& call) : thread_(thread) { thread_.in_library_ = &call; }
    ~InLibrary() { thread_.in_library_ = nullptr; }
    InLibrary(const InLibrary&) = delete;
    InLibrary& operator=(const InLibrary&) = delete;

   private:
    Thread& thread_;
  };

  template <class Condition>
  void wait_and_watch(std::unique_lock<std::mutex>& lock, const Condition& over) {
    while (!ended_.wait_for(lock, kWatchPeriod, over)) {
      const Prepared* const call = in_library_;
      if (call == nullptr) continue;
      lock.unlock();
      if (const auto words = trouble_.of_library(call->in_words())) fail_all(*words);
      lock.lock();
    }
  }

  void finish(Queue& queue) {
    Prepared& call = *std::exchange(queue.active, nullptr);
    const Clock::time_point now = transport_->now();
    {
      const std::lock_guard lock(mutex_);
      ++call.ended;
    }
    ended_.notify_all();
    if (!call.call.on_done) return;
    call.call.on_done(call.began, now);
    take_submitted();  // what it started need not wait for the next round
  }

  template <class Condition>
  bool any_active(const Condition& condition) {
    bool any = false;
    const auto look = [&] {
      any = std::any_of(queues_.begin(), queues_.end(), [&](const auto& queue) {
        return queue.second.active != nullptr && condition(*queue.second.active);
      });
    };
    transport_->exclusively(std::ref(look));  // by value it would not fit into a std::function without memory
    return any;
  }

  // When to look again at the latest. A library that is asked gives no sign when it has something to say.
  Clock::time_point next_look(bool busy) {
    const Clock::time_point now = Clock::now();
    if (!busy) return now + std::chrono::milliseconds(500);
    if (!any_active([](const Prepared& call) { return call.native != nullptr; })) return now + kWatchPeriod;
    const IdleStep step = library_idle_.next(now);
    if (step == IdleStep::yield) std::this_thread::yield();
    return step == IdleStep::sleep ? now + library_idle_.sleep() : now;
  }

  void rest() {
    const bool busy = any_active([](const Prepared&) { return true; });
    const Clock::time_point until = next_look(busy);
    {
      const std::lock_guard lock(mutex_);
      if (!driven_ && !submitted_.empty()) return;
      resting_ = true;
    }
    if (until > Clock::now()) transport_->pause(until);
    {
      const std::lock_guard lock(mutex_);
      resting_ = false;
    }
    if (driven_ && busy && Clock::now() - last_call_ >= kWatchPeriod) {
      last_call_ = Clock::now();
      transport_->call(last_call_);
    }
    if (busy) return;  // then look_for_trouble
    if (const auto words = trouble_.of_idle()) throw RunFailed(*words);
  }

  void look_for_trouble(Queue& queue) {
    const Clock::time_point now = Clock::now();
    if (now - std::max(queue.last_progress, queue.last_look) < kWatchPeriod) return;
    queue.last_look = now;
    // Somebody may be lost all the same.
    const std::uint64_t moved = transport_->moved();
    if (std::exchange(queue.moved, moved) != moved) queue.last_progress = now;
    const Prepared& active = *queue.active;
    if (active.native != nullptr && !queue.checking) {
      if (const auto words = trouble_.of_library(active.in_words())) throw RunFailed(*words);
      return;
    }
    const std::string awaited =
        queue.checking ? fmt::format("what rank {} calls", active.check->waits_for_rank()) : active.awaited();
    if (const auto words = trouble_.of_waiting(active.in_words(), awaited, now - queue.last_progress))
      throw RunFailed(*words);
  }

  // On the communication thread: transports are used there alone.
  void build(Prepared& prepared) {
    const PreparedCall& call = prepared.call;
    const std::int64_t member = member_of(call, transport_->rank());
    const std::int64_t first_channel = call.queue * kChannelsPerQueue;
    prepared.note = note_of(call);
    if (options_.check) {
      prepared.check = std::make_unique<CallCheck>(call.members, first_channel + kCheckChannel, *transport_);
    }
    Queue& queue = queues_.try_emplace(call.queue).first->second;
    prepared.turns = &queue.turns[call.members];
    prepared.input.reserve(static_cast<std::size_t>(call.segments));
    prepared.output.reserve(static_cast<std::size_t>(call.segments));
    if (call.uneven) {
      prepared.exchange = std::make_unique<UnevenRun>(*call.uneven, call.members, first_channel, *transport_);
      return;
    }
    if (call.program == nullptr) {
      const InLibrary inside(*this, prepared);
      auto native = transport_->native({call.spec, call.type, call.op, call.members, call.sizes, call.queue});
      if (native == nullptr)
        weft::fail("{}: this transport has no {} of its own for {}", call.label, name_of(call.spec.kind),
                   name_of(call.type));
      NativeRun::Settings settings{call.type, call.op, call.blocking};
      if (call.accumulate) settings.accumulated = own_part_of_input(call, member);
      prepared.native = std::make_unique<NativeRun>(std::move(native), settings, queue.staging);
      prepared.input_bytes = input_elements(call.spec, call.sizes, member) * size_of(call.type).value;
      prepared.output_bytes = output_elements(call.spec, call.sizes, member) * size_of(call.type).value;
      return;
    }
    const ProgramVerdict proof = verify_program(*call.program);
    if (!proof.accepted()) weft::fail("program {}: {}", call.program->name, proof.words());
    std::vector<LoweredRank> lowered = lower(*call.program, proof.run, call.sizes, size_of(call.type));
    const double scale = call.op == ReduceOp::average ? 1.0 / static_cast<double>(call.spec.ranks) : 1.0;
    RunSettings settings{call.type, call.op, scale, call.members, first_channel, options_.credit, call.segments};
    if (call.accumulate && member < call.spec.ranks) settings.accumulated = own_part_of_input(call, member);
    prepared.run = std::make_unique<ProgramRun>(std::move(lowered[static_cast<std::size_t>(member)]),
                                                std::move(settings), *transport_);
    prepared.input_bytes = prepared.run->input_bytes();
    prepared.output_bytes = prepared.run->output_bytes();
  }

  bool on_own_thread() const {
    const std::thread::id self = std::this_thread::get_id();
    return self == thread_.get_id() || self == driver_.load();
  }

  void run_on_thread(std::function<void()> job) {
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

  void finish_job(std::exception_ptr error) {
    job_ = nullptr;
    job_error_ = std::move(error);
    ended_.notify_all();
  }

  // All is said, here and to the others, before any waiting thread can act on it and end the process.
  void fail_all(const std::string& words) {
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(failing_, true)) return;
    }
    if (options_.on_failure) options_.on_failure(words);
    transport_->give_up(words);
    {
      const std::lock_guard lock(mutex_);
      failed_ = true;
      failure_ = words;
    }
    ended_.notify_all();
    if (options_.after_failure) options_.after_failure(words);
  }

  void rethrow() const {
    if (failed_) throw RunFailed(failure_);
  }

  std::unique_ptr<Transport> transport_;
  CommunicatorOptions options_;
  Trouble trouble_;
  std::atomic<std::thread::id> driver_;              // while it works for this rank
  std::map<std::int64_t, Queue> queues_;             // the communication thread's own; driven, exclusively
  std::vector<std::unique_ptr<Prepared>> prepared_;  // the caller's
  std::atomic<const Prepared*> in_library_ = nullptr;
  IdleStrategy library_idle_;  // between questions about its collectives
  std::mutex mutex_;           // guards what follows
  std::condition_variable ended_;
  std::vector<Prepared*> submitted_;
  std::function<void()> job_;
  std::exception_ptr job_error_;
  bool stopping_ = false;
  bool resting_ = false;  // and nobody has woken it
  std::optional<std::string> reason_to_fail_;
  bool failing_ = false;  // somebody is telling it
  bool failed_ = false;
  std::string failure_;
  bool driven_;                  // by the transport
  Clock::time_point last_call_;  // for trouble to be looked for
  std::thread thread_;           // last: it uses all of the above
};

Communicator::Communicator(std::unique_ptr<Transport> transport, CommunicatorOptions options)
    : thread_(std::make_unique<Thread>(std::move(transport), std::move(options))) {}

Communicator::~Communicator() = default;

std::int64_t Communicator::rank() const {
  return thread_->transport().rank();
}

std::int64_t Communicator::size() const {
  return thread_->transport().size();
}

bool Communicator::through_memory() const {
  return thread_->transport().through_memory();
}

bool Communicator::has_library() const {
  return thread_->transport().has_library();
}

Communicator::Prepared& Communicator::prepare(PreparedCall call) {
  return thread_->prepare(std::move(call));
}

Communicator::Handle Communicator::start(Prepared& prepared, const void* input, void* output) {
  const bool in_place = prepared.call.program != nullptr && prepared.call.program->in_place;
  const Segment from{static_cast<std::byte*>(const_cast<void*>(input)), prepared.input_bytes};
  const Segment to{static_cast<std::byte*>(output), prepared.output_bytes};
  return thread_->start(prepared, {&from, in_place ? 0U : 1U}, {&to, 1});
}

Communicator::Handle Communicator::start(Prepared& prepared, std::span<const Segment> input,
                                         std::span<const Segment> output) {
  const bool in_place = prepared.call.program != nullptr && prepared.call.program->in_place;
  return thread_->start(prepared, in_place ? std::span<const Segment>{} : input, output);
}

bool Communicator::done(Handle handle) {
  return thread_->done(handle);
}

void Communicator::wait(Handle handle) {
  thread_->wait(handle);
}

void Communicator::fail(const std::string& why) {
  thread_->fail(why);
}

Whereabouts& Communicator::whereabouts() {
  return thread_->whereabouts();
}

}  // namespace weft
