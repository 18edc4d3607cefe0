// Which ranks are still there, as far as a transport can tell. All calls may come from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace weft {

// A peer that is gone, and how that was noticed.
struct LostRank {
  std::int64_t rank = -1;
  std::string reason;  // "its connection closed", "no answer for 10 s"
};

class RankHealth {
 public:
  // A rank that is known to be gone; never this one.
  virtual std::optional<LostRank> lost() const = 0;
  // Tells the other ranks, where possible, that this rank cannot continue; they see it as lost for this reason. Called
  // on the communication thread it also ends all messages, so their memory is no longer touched.
  virtual void give_up(const std::string& why) = 0;
  // How long a rank has given no sign of life; zero where it is not watched.
  virtual std::chrono::nanoseconds silence(std::int64_t /*rank*/) const { return {}; }
  // Declares a silent rank lost. All ranks are told, and lost() names it, unless another was lost before.
  virtual void declare_lost(const LostRank& /*silent*/) {}

 protected:
  ~RankHealth() = default;
};

}  // namespace weft
