// One queue of a communicator, whose calls run one after the other. Only the communication thread uses it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "comm/idle.hpp"
#include "comm/native_run.hpp"
#include "comm/prepared_run.hpp"
#include "comm/transport.hpp"
#include "comm/trouble.hpp"

namespace weft {

// How often somebody looks whether a rank was lost.
inline constexpr std::chrono::milliseconds kWatchPeriod{50};

// While the communication thread is inside a library call it cannot look for trouble, so threads that wait do.
using CallInLibrary = std::atomic<const Communicator::Prepared*>;
class InLibrary {
 public:
  InLibrary(CallInLibrary& place, const Communicator::Prepared& call) : place_(place) { place_ = &call; }
  ~InLibrary() { place_ = nullptr; }
  InLibrary(const InLibrary&) = delete;
  InLibrary& operator=(const InLibrary&) = delete;

 private:
  CallInLibrary& place_;
};

class CallQueue {
 public:
  using Clock = Transport::Clock;
  using Prepared = Communicator::Prepared;

  // What all queues of a rank share.
  struct Shared {
    Transport& transport;
    Trouble& trouble;
    CallInLibrary& in_library;
    IdleStrategy& library_idle;  // pauses between polls of the library's collectives
    bool check = false;          // calls are compared before they run
  };
  explicit CallQueue(const Shared& shared) : shared_(shared), paced_(shared.transport.features().paced_links) {}

  // The number of calls that a group of members has had on this queue, which several groups may share.
  std::int64_t& turns_of(const std::vector<std::int64_t>& members) { return turns_[members]; }
  NativeStaging& staging() { return staging_; }

  void append(Prepared& call);
  const Prepared* active() const { return active_; }
  // Makes some progress. Returns false where the queue has to wait. Throws RunFailed where a call cannot end.
  bool advance();
  // The call that has just ended, once; null where none has.
  Prepared* take_ended() { return std::exchange(ended_, nullptr); }

 private:
  bool advance_active();
  void begin();
  void run();
  void look_for_trouble();

  Shared shared_;
  const PacedLinks* paced_;
  Prepared *first_ = nullptr, *last_ = nullptr;  // the waiting calls
  Prepared *active_ = nullptr, *ended_ = nullptr;
  bool checking_ = false;
  std::map<std::vector<std::int64_t>, std::int64_t> turns_;
  Clock::time_point last_progress_, last_look_;
  std::uint64_t moved_ = 0;  // by the transport, at the last look
  NativeStaging staging_;
};

}  // namespace weft
