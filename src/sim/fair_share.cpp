#include "sim/fair_share.hpp"

#include <algorithm>

namespace weft {

std::vector<double> fair_speeds(const std::vector<std::span<const ResourceUse>>& uses) {
  struct Load {
    double fixed = 0;   // taken by transfers that no longer rise
    double rising = 0;  // sum of shares of those that still do
    int users = 0;      // how many those are: where none is left, rounding may leave a rest in `rising`
  };
  std::int32_t resources = 0;
  for (const auto& use : uses) {
    for (const ResourceUse& u : use) resources = std::max(resources, u.resource + 1);
  }
  std::vector<Load> loads(resources);
  const auto load_of = [&](const ResourceUse& use) -> Load& { return loads[use.resource]; };
  for (const auto& use : uses) {
    for (const ResourceUse& u : use) {
      if (u.share <= 0) continue;
      load_of(u).rising += u.share;
      ++load_of(u).users;
    }
  }
  std::vector<double> speeds(uses.size(), 1.0);
  std::vector<bool> fixed(uses.size(), false);
  std::vector<std::size_t> stopped;
  std::size_t open = uses.size();
  while (open > 0) {
    double level = 1.0;  // the speed at which the next resource fills up
    for (const Load& load : loads) {
      if (load.users > 0) level = std::min(level, (1.0 - load.fixed) / load.rising);
    }
    if (level >= 1.0 - 1e-12) break;  // the rest runs at full speed
    stopped.clear();
    for (std::size_t i = 0; i < uses.size(); ++i) {
      if (fixed[i]) continue;
      const bool full = std::any_of(uses[i].begin(), uses[i].end(), [&](const ResourceUse& u) {
        const Load& load = load_of(u);
        return u.share > 0 && load.fixed + load.rising * level >= 1.0 - 1e-12;
      });
      if (full) stopped.push_back(i);
    }
    for (const std::size_t i : stopped) {
      fixed[i] = true;
      speeds[i] = level;
      --open;
      for (const ResourceUse& u : uses[i]) {
        if (u.share <= 0) continue;
        Load& load = load_of(u);
        load.rising -= u.share;
        load.fixed += u.share * level;
        --load.users;
      }
    }
    if (stopped.empty()) break;
  }
  return speeds;
}

}  // namespace weft
