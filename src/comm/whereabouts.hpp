// Where in its work a rank is, for messages: the user of a communicator knows steps, the communicator only calls.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <utility>

namespace weft {

struct RankPlace {
  std::string part;                  // of the run: "step 7", "calibration"
  std::string doing;                 // at this moment, beside its calls: "computing layer 3 mlp forward"; may be empty
  bool waits_outside_calls = false;  // for other ranks, in the streams of a GPU say
};

// A function that returns the place. It is called on any thread, and only when something has gone wrong.
using PlaceTeller = std::function<RankPlace()>;

class Whereabouts {
 public:
  // While a teller is set, the rank is at work and needs all others: see Communicator. Returns the one before.
  PlaceTeller set(PlaceTeller teller) {
    const std::lock_guard lock(mutex_);
    return std::exchange(teller_, std::move(teller));
  }
  bool known() const {
    const std::lock_guard lock(mutex_);
    return static_cast<bool>(teller_);
  }
  // Under the lock, so that what the teller reads is there until set() has returned.
  RankPlace now() const {
    const std::lock_guard lock(mutex_);
    return teller_ ? teller_() : RankPlace{};
  }

 private:
  mutable std::mutex mutex_;
  PlaceTeller teller_;
};

// While it lives the rank is at this place; afterwards it is where it was before.
class Stay {
 public:
  Stay(Whereabouts& whereabouts, PlaceTeller teller)
      : whereabouts_(whereabouts), before_(whereabouts.set(std::move(teller))) {}
  Stay(Whereabouts& whereabouts, std::string part)
      : Stay(whereabouts, [part = std::move(part)] { return RankPlace{part, ""}; }) {}
  ~Stay() { whereabouts_.set(std::move(before_)); }
  Stay(const Stay&) = delete;
  Stay& operator=(const Stay&) = delete;

 private:
  Whereabouts& whereabouts_;
  PlaceTeller before_;
};

}  // namespace weft
