#include "graph/rank_class_cache.hpp"

namespace weft {

const RankClasses& RankClassCache::find(const Layout& layout, const ModelGroups& model) {
  // All that find_rank_classes reads of a layout. ZeRO only says whether data-parallel ranks take part in the norm, and
  // which of them share its shards.
  std::vector<std::int64_t> key{layout.tp,
                                layout.cp,
                                layout.dp,
                                layout.pp,
                                layout.zero > 0,
                                layout.ep,
                                layout.etp,
                                model.experts ? 1 : 0,
                                model.key_copies,
                                layout.shards(),
                                layout.zero_secondary,
                                layout.ends_meet() ? layout.directions() : 0};
  for (const Axis axis : layout.mesh_order) key.push_back(axis.number);
  Entry* entry = nullptr;
  {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Entry>& slot = entries_[key];
    if (!slot) slot = std::make_unique<Entry>();
    entry = slot.get();
  }
  const std::lock_guard lock(entry->mutex);
  if (!entry->classes) entry->classes = find_rank_classes(cluster_, layout, model);
  return *entry->classes;
}

}  // namespace weft
