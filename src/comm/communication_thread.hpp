// The thread that carries out a rank's collectives while the rank computes. It takes the calls that were started, makes
// progress on every queue in turn and looks for trouble when nothing moves. With paced links a thread of the links runs
// the rounds, and this one only prepares calls and watches.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "comm/call_queue.hpp"
#include "comm/communicator.hpp"
#include "comm/idle.hpp"
#include "comm/trouble.hpp"

namespace weft {

// Its public calls are those of Communicator.
class CommunicationThread {
 public:
  using Clock = Transport::Clock;
  using Handle = Communicator::Handle;
  using Prepared = Communicator::Prepared;

  CommunicationThread(std::unique_ptr<Transport> transport, CommunicatorOptions options);
  ~CommunicationThread();
  CommunicationThread(const CommunicationThread&) = delete;
  CommunicationThread& operator=(const CommunicationThread&) = delete;

  const Transport& transport() const { return *transport_; }
  const TransportFeatures& features() const { return features_; }
  const CommunicatorOptions& options() const { return options_; }
  Whereabouts& whereabouts() { return trouble_.whereabouts(); }

  Prepared& prepare(PreparedCall call);
  void release(Prepared& prepared);
  Handle start(Prepared& prepared, std::span<const Segment> input, std::span<const Segment> output);
  bool done(Handle handle);
  void wait(Handle handle);
  void require_alive();
  void fail(const std::string& why);

 private:
  std::thread launch();
  void main();
  bool goes_on();
  bool stopping();
  bool work();
  void drive();
  bool round();
  bool advance(CallQueue& queue);
  void finish(Prepared& call);
  void take_submitted();
  Clock::time_point issue_time() const;

  template <class Condition>
  bool any_active(const Condition& condition);
  Clock::time_point next_look(bool busy);
  void rest();

  void build(Prepared& prepared);
  void run_on_thread(std::function<void()> job);
  void do_job();
  void finish_job(std::exception_ptr error);

  bool on_own_thread() const;
  template <class Condition>
  void wait_and_watch(std::unique_lock<std::mutex>& lock, const Condition& over);
  void fail_all(const std::string& words);
  void rethrow() const;

  std::unique_ptr<Transport> transport_;
  TransportFeatures features_;
  PacedLinks* paced_;  // null: this thread runs the rounds
  CommunicatorOptions options_;
  Trouble trouble_;
  std::atomic<std::thread::id> driver_;              // the thread of paced links, while it works for this rank
  std::map<std::int64_t, CallQueue> queues_;         // the communication thread's own; paced, exclusively
  std::vector<std::unique_ptr<Prepared>> prepared_;  // the caller's
  CallInLibrary in_library_ = nullptr;
  IdleStrategy library_idle_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable ended_;
  std::vector<Prepared*> submitted_;
  std::function<void()> job_;
  std::exception_ptr job_error_;
  bool stopping_ = false;
  bool resting_ = false;  // the thread pauses and nobody has woken it
  std::optional<std::string> reason_to_fail_;
  bool failing_ = false;  // a thread is reporting the failure
  bool failed_ = false;
  std::string failure_;
  Clock::time_point last_request_;  // when a round over paced links was last requested, to look for trouble
  std::thread thread_;              // last: it uses all of the above
};

}  // namespace weft
