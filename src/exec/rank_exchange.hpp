// Ranks tell each other more than the plan says: losses, measurements, the difference of their clocks.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace weft {

// No plan uses these queues.
inline constexpr std::int64_t kLossQueue = 1001, kExchangeQueue = 1002;

// Sums a number and a few counts over all ranks in every step. It is started when a rank has ended a step and read a
// step later: nobody waits for it. Sums of fixed-point numbers: the same in any order.
class SharedSum {
 public:
  using Counts = std::array<std::int64_t, 3>;  // what they count is their owner's affair

  explicit SharedSum(Communicator& communicator);
  void start(double own, const Counts& counts = {});
  // Returns the sum of the last start. Waits for the other ranks.
  double take();
  // Returns the counts that came with what was taken last.
  const Counts& counts() const { return counts_; }
  bool is_under_way() const { return under_way_; }

 private:
  Communicator& communicator_;
  Communicator::Prepared* call_;
  Communicator::Handle handle_;
  std::array<std::int64_t, 1 + std::tuple_size_v<Counts>> values_{};
  Counts counts_{};
  bool under_way_ = false;
};

void meet(Communicator& communicator);  // a barrier

// Rank 0 gets the numbers of all ranks, by rank; the others nothing. All ranks know all counts.
std::vector<std::vector<std::int64_t>> gather_numbers(Communicator& communicator, std::span<const std::int64_t> own,
                                                      const std::vector<std::int64_t>& counts);
// Every rank gets rank 0's text.
std::string text_of_rank_0(Communicator& communicator, const std::string& text);
// Every rank gets the texts of all, by rank.
std::vector<std::string> texts_of_all(Communicator& communicator, const std::string& text);

// Returns this rank's time in nanoseconds.
using ClockReader = std::function<std::int64_t()>;
std::int64_t steady_nanos();

// Rank 0 learns what to add to a time of each rank's clock to have it on its own, right to half the shortest of a few
// round trips. The others get zeros.
std::vector<std::int64_t> clock_offsets(Communicator& communicator, const ClockReader& now = steady_nanos);

}  // namespace weft
