#include "calls.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace weft_c10d {
namespace {

constexpr std::size_t kMostIdleCalls = 256;           // jobs whose shapes keep changing would fill memory otherwise
constexpr std::int64_t kPipelinedBytes = 256 * 1024;  // of a message; smaller parts cost more than they hide
constexpr std::int64_t kMostParts = 8;

void check(WeftResult result) {
  if (result != weft_done_well) throw std::runtime_error(std::string("weft: ") + weft_last_error());
}

std::int64_t size_of(WeftType type) {
  switch (type) {
    case weft_bytes:
      return 1;
    case weft_bf16:
    case weft_fp16:
      return 2;
    case weft_i64:
      return 8;
    default:
      return 4;
  }
}

const char* name_of(WeftCollective collective) {
  static const char* const kNames[] = {"all_reduce", "broadcast", "reduce",     "all_gather", "reduce_scatter",
                                       "gather",     "scatter",   "all_to_all", "send_recv",  "barrier"};
  return kNames[collective];
}

}  // namespace

Calls::Calls(const Joining& joining) : ranks_(joining.ranks) {
  WeftJoin options{};
  options.rank = joining.rank;
  options.ranks = joining.ranks;
  options.root = joining.root.c_str();
  options.secret = joining.secret.c_str();
  options.root_listener = joining.root_listener;
  options.join_timeout_seconds = joining.timeout_seconds;
  options.timeout_seconds = joining.timeout_seconds;
  options.silence_seconds = 60;
  options.check = joining.check ? 1 : 0;
  options.context = this;
  options.ended = [](void* self, std::int64_t number) {
    auto& calls = *static_cast<Calls*>(self);
    const std::lock_guard<std::mutex> lock(calls.news_mutex_);
    calls.ended_.push_back(number);
    calls.news_.notify_one();
  };
  options.failed = [](void* self, const char* words) {
    auto& calls = *static_cast<Calls*>(self);
    const std::lock_guard<std::mutex> lock(calls.news_mutex_);
    calls.failure_ = words;
    calls.news_.notify_one();
  };
  group_ = weft_join(&options);
  if (group_ == nullptr) throw std::runtime_error(std::string("weft: ") + weft_last_error());
  thread_ = std::thread([this] { complete_all(); });
}

Calls::~Calls() {
  leave();
}

void Calls::start(const c10::intrusive_ptr<WeftWork>& work, const CallKind& kind, const std::vector<WeftSegment>& input,
                  const std::vector<WeftSegment>& output) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (group_ == nullptr) throw std::runtime_error("weft: this process has left the group");
  const std::int64_t number = take(kind);
  work->add_call();
  running_[number] = {kind, work};  // before it starts: it may end at once
  try {
    check(weft_start_apart(group_, number, input.data(), static_cast<std::int64_t>(input.size()), output.data(),
                           static_cast<std::int64_t>(output.size())));
  } catch (...) {
    running_.erase(number);
    work->fail(std::current_exception());
    throw;
  }
}

std::int64_t Calls::take(const CallKind& kind) {
  const auto found = std::find_if(idle_.begin(), idle_.end(), [&](const Idle& idle) { return idle.kind == kind; });
  if (found != idle_.end()) {
    const std::int64_t number = found->number;
    idle_.erase(found);
    return number;
  }
  WeftCall call{};
  call.collective = kind.collective;
  call.type = kind.type;
  call.op = kind.op;
  call.elements = kind.elements;
  const std::int64_t messages = kind.collective == weft_all_reduce ? ranks_ : 1;
  call.parts =
      std::clamp(kind.elements * size_of(kind.type) / (kPipelinedBytes * messages), std::int64_t{1}, kMostParts);
  call.segments = kind.segments;
  call.queue = kind.queue;
  call.label = name_of(kind.collective);
  call.root = kind.root;
  call.receiver = kind.receiver;
  call.in_place = kind.in_place ? 1 : 0;
  std::int64_t number = 0;
  check(weft_prepare(group_, &call, &number));
  return number;
}

void Calls::put_back(const Idle& idle) {
  idle_.push_front(idle);
  if (idle_.size() <= kMostIdleCalls || group_ == nullptr) return;
  weft_release(group_, idle_.back().number);  // which fails in a failed group only
  idle_.pop_back();
}

void Calls::complete_all() {
  std::unique_lock<std::mutex> lock(news_mutex_);
  while (true) {
    news_.wait(lock, [&] { return !ended_.empty() || failure_ || leaving_; });
    if (!ended_.empty()) {
      const std::int64_t number = ended_.front();
      ended_.pop_front();
      lock.unlock();
      complete(number);
    } else {
      const bool leaving = leaving_;
      const std::string words = leaving ? "this process left the group" : *std::exchange(failure_, std::nullopt);
      lock.unlock();
      fail_all(words);
      if (leaving) return;
    }
    lock.lock();
  }
}

void Calls::complete(std::int64_t number) {
  Running running;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = running_.find(number);
    if (found == running_.end()) return;
    running = std::move(found->second);
    running_.erase(found);
    put_back({running.kind, number});
  }
  running.work->call_ended();
}

void Calls::fail_all(const std::string& words) {
  std::map<std::int64_t, Running> failed;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    failed.swap(running_);
  }
  const std::exception_ptr error = std::make_exception_ptr(std::runtime_error("weft: " + words));
  for (auto& entry : failed) entry.second.work->fail(error);
}

void Calls::leave() {
  WeftGroup* group = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    group = std::exchange(group_, nullptr);
  }
  if (group == nullptr) return;
  weft_leave(group);  // after it, nothing of the group writes into memory of works
  {
    const std::lock_guard<std::mutex> lock(news_mutex_);
    leaving_ = true;
  }
  news_.notify_one();
  thread_.join();
}

}  // namespace weft_c10d
