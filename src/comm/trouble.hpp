// Finds out why something does not move (a rank was lost, a rank stands still, or nothing happens for too long) and
// words the message.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "comm/rank_health.hpp"
#include "comm/transport.hpp"
#include "comm/whereabouts.hpp"

namespace weft {

struct Patience {
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);  // without progress
  std::chrono::nanoseconds silence{0};  // of a rank, while others wait; zero: no limit but the timeout
};

// From any thread.
class Trouble {
 public:
  Trouble(Transport& transport, const Patience& patience)
      : rank_(transport.rank()), size_(transport.size()), health_(transport.features().health), patience_(patience) {}

  Whereabouts& whereabouts() { return whereabouts_; }
  // A call with the place in front: "step 7, all_reduce 'loss' (...)".
  std::string at(const std::string& call) const;

  // Each says what is wrong, if anything is. First for a call that has not moved for so long and waits for `awaited`:
  std::optional<std::string> of_waiting(const std::string& call, const std::string& awaited,
                                        std::chrono::nanoseconds waited);
  // for a call inside the library, whose progress cannot be seen, so that only a silent rank counts as standing still;
  std::optional<std::string> of_library(const std::string& call);
  // and for the case that no call is under way, because a rank at work will need those that are lost. A silent rank is
  // lost then where this one waits outside of calls.
  std::optional<std::string> of_idle();

 private:
  std::optional<LostRank> lost() const;
  std::chrono::nanoseconds silence(std::int64_t rank) const;
  std::optional<LostRank> silent_rank() const;  // that has been silent for too long
  void give_up_silent();
  std::optional<std::string> loss(const std::string& where, const std::string& awaited);
  std::string silent_words() const;

  std::int64_t rank_, size_;
  RankHealth* health_;  // null: nobody is watched
  Patience patience_;
  Whereabouts whereabouts_;
};

}  // namespace weft
