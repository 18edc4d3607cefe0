// How processes that know their rank, their number and the address of rank 0 find each other.
//
// Rank 0 listens at that address; the others try to connect until it is there. Both sides of every connection prove
// that they know the job's secret (comm/tcp/handshake.hpp), so no stranger, and no rank of another job on the same
// port, gets in, learns the secret, or is taken for rank 0.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/tcp/socket.hpp"

namespace weft::tcp {

struct RendezvousOptions {
  std::int64_t rank = 0;
  std::int64_t size = 1;
  std::string root;        // of rank 0: "node01:29500"
  std::string secret;      // of the job: the same on all ranks, and known to nobody else
  int root_listener = -1;  // rank 0: a listening socket it was given; it owns it now
  std::chrono::milliseconds timeout = std::chrono::minutes(1);  // for all to come, and for each exchange
};

class Rendezvous {
 public:
  // Returns when all ranks are here. Throws RunFailed naming the ranks that did not come, and Error on every rank where
  // two claim one rank or they disagree on their number.
  explicit Rendezvous(RendezvousOptions options);

  // Each rank gives a string of up to 16 MiB and gets those of all ranks.
  std::vector<std::string> exchange(const std::string& mine);

  // The address of this machine that reaches rank 0, and so probably the others; empty where rank 0 is alone.
  const std::string& own_address() const { return own_address_; }

 private:
  void serve();
  void request_entry();
  Outcome try_entry(const Address& root, Clock::time_point deadline);
  std::vector<std::string> tell_all(const std::string& mine, Clock::time_point deadline);
  std::vector<std::string> ask_rank_0(const std::string& mine, Clock::time_point deadline);
  std::vector<std::string> gather(const std::string& mine, Clock::time_point deadline);
  [[noreturn]] void abandon(bool bad_input, const std::string& why);

  RendezvousOptions options_;
  std::vector<Socket> members_;  // of rank 0: by rank; of the others: only [0]
  std::string own_address_;
};

}  // namespace weft::tcp
