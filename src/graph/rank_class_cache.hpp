// Caches the rank classes of one cluster for each arrangement of its ranks. Layouts that differ only in batch, sharding
// or recomputation share them.
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
    std::mutex mutex;  // held during the search; callers that want the same wait
    std::optional<RankClasses> classes;
  };
  const Cluster& cluster_;
  std::mutex mutex_;
  std::map<std::vector<std::int64_t>, std::unique_ptr<Entry>> entries_;
};

}  // namespace weft
