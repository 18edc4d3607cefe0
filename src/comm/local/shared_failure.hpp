// The first rank of a world of threads that gave up: all others see it as lost.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "comm/rank_health.hpp"

namespace weft {

class SharedFailure {
 public:
  bool happened() const { return happened_; }

  // No effect where another rank was first.
  void note(std::int64_t rank, const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (!first_) first_ = LostRank{rank, "it gave up: " + why};
    happened_ = true;
  }

  // Whom `rank` sees as lost; never itself.
  std::optional<LostRank> seen_by(std::int64_t rank) const {
    if (!happened_) return std::nullopt;
    const std::lock_guard lock(mutex_);
    return first_->rank == rank ? std::nullopt : first_;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<LostRank> first_;
  std::atomic<bool> happened_{false};
};

}  // namespace weft
