// The way from rank 1 to rank 0 that is measured: a listening socket of its own, which only rank 1 can pass.
#pragma once

#include <string>

#include "calibrate/links/bench_ranks.hpp"
#include "comm/tcp/door.hpp"

namespace weft {

class ProbeDoor {
 public:
  // All ranks call it together. Rank 0 listens, on loopback alone where all ranks are on its machine.
  ProbeDoor(std::int64_t rank, BenchRanks& ranks);

  const std::string& address() const { return address_; }
  // Rank 0: rank 1's connection. Empty where it does not come in time.
  tcp::Socket let_in() { return door_->wait_for_one(deadline()); }
  // Rank 1: the same connection.
  tcp::Socket enter() const;

 private:
  static tcp::Clock::time_point deadline();

  std::string address_, secret_;
  std::optional<tcp::Door> door_;  // rank 0's
};

}  // namespace weft
