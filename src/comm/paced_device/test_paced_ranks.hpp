// Ranks of paced collectives as threads of one test.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "cluster/presets.hpp"
#include "comm/paced_device/paced_device_collectives.hpp"

namespace weft::paced {

class PacedRanks {
 public:
  explicit PacedRanks(const std::string& cluster) : cluster_(parse_cluster(cluster)) {
    words_.resize(static_cast<std::size_t>(cluster_.device_count()));
  }

  const Cluster& cluster() const { return cluster_; }
  PacedDeviceOptions options(std::int64_t rank) {
    return {.rank = rank, .ranks = cluster_.device_count(), .cluster = &cluster_, .world = &world_};
  }
  Exchange exchange(std::int64_t rank) {
    return [this, rank](const std::string& own) {
      words_[static_cast<std::size_t>(rank)] = own;
      meet();
      std::vector<std::string> all = words_;
      meet();
      return all;
    };
  }

 private:
  void meet() {
    std::unique_lock lock(mutex_);
    const std::uint64_t now = times_;
    if (++arrived_ == words_.size()) {
      arrived_ = 0;
      ++times_;
      all_here_.notify_all();
    } else if (!all_here_.wait_for(lock, std::chrono::seconds(20), [&] { return times_ != now; })) {
      throw RunFailed("the other ranks did not come");
    }
  }

  Cluster cluster_;
  PacedDeviceWorld world_;
  std::vector<std::string> words_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  std::size_t arrived_ = 0;
  std::uint64_t times_ = 0;
};

}  // namespace weft::paced
