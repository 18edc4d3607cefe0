// Notices that a device has ended nothing for too long. Collectives of several communicators may wait for each other
// for ever, and whoever waits for an event of theirs sees no error.
#pragma once

#include <chrono>
#include <cstdint>

namespace weft {

class Standstill {
 public:
  using Clock = std::chrono::steady_clock;

  Standstill(std::chrono::nanoseconds limit, Clock::time_point now) : limit_(limit), changed_(now), looked_(now) {}

  // A look costs a question for every operation under way, so it is seldom worth one.
  bool is_time_to_look(Clock::time_point now) const { return now - looked_ >= limit_ / kLooksWithinLimit; }

  // `ended`: a number that changes when an operation ends. True where it has not changed for the limit.
  bool lasts(std::uint64_t ended, Clock::time_point now) {
    looked_ = now;
    if (ended != ended_) {
      ended_ = ended;
      changed_ = now;
    }
    return now - changed_ >= limit_;
  }

 private:
  static constexpr int kLooksWithinLimit = 32;
  std::chrono::nanoseconds limit_;
  Clock::time_point changed_, looked_;
  std::uint64_t ended_ = 0;
};

}  // namespace weft
