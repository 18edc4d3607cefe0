// Rank classes of one cluster, found once for each arrangement of its ranks: layouts that differ in batch, sharding or
// recomputation share them.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "graph/rank_classes.hpp"

namespace weft {

class RankClassCache {
 public:
  // The cluster must outlive the cache.
  explicit RankClassCache(const Cluster& cluster) : cluster_(cluster) {}

  // What find_rank_classes(cluster, layout, model) returns. May be called from several threads.
  const RankClasses& find(const Layout& layout, const ModelGroups& model);

 private:
  struct Entry {
    std::mutex mutex;  // held while they are searched for; others who want the same wait
    std::optional<RankClasses> classes;
  };
  const Cluster& cluster_;
  std::mutex mutex_;
  std::map<std::vector<std::int64_t>, std::unique_ptr<Entry>> entries_;
};

}  // namespace weft
