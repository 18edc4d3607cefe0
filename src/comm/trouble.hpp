// What is wrong where something does not move: a rank was lost, stands still, or nothing happens for too long. Finds
// it and has the words for it.
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

  // Each says what is wrong, if anything is. Of a call that has not moved for so long and waits for `awaited`:
  std::optional<std::string> of_waiting(const std::string& call, const std::string& awaited,
                                        std::chrono::nanoseconds waited);
  // of a call inside the library, whose progress cannot be seen: only a rank that is silent counts as standing still;
  std::optional<std::string> of_library(const std::string& call);
  // and where no call is under way: a rank that is at work will need those that are lost.
  std::optional<std::string> of_idle();

 private:
  std::optional<LostRank> lost() const;
  std::chrono::nanoseconds silence(std::int64_t rank) const;
  void give_up_silent();
  std::optional<std::string> loss(const std::string& where, const std::string& awaited);
  std::string silent_words() const;

  std::int64_t rank_, size_;
  RankHealth* health_;  // null: nobody is watched
  Patience patience_;
  Whereabouts whereabouts_;
};

}  // namespace weft
