// The connection from rank 1 to rank 0 that is measured. Rank 0 listens on a socket that admits only rank 1.
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
  // On rank 0: the connection of rank 1, or an empty socket where it does not come in time.
  tcp::Socket admit() { return door_->wait_for_one(deadline()); }
  // On rank 1: the other end of it.
  tcp::Socket enter() const;

 private:
  static tcp::Clock::time_point deadline();

  std::string address_, secret_;
  std::optional<tcp::Door> door_;  // rank 0's
};

}  // namespace weft
