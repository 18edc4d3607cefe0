#include "sim/fair_share.hpp"

#include <algorithm>
#include <map>

namespace weft {

std::vector<double> fair_speeds(const std::vector<std::span<const ResourceUse>>& uses) {
  struct Load {
    double fixed = 0;   // taken by transfers that no longer rise
    double rising = 0;  // sum of shares of those that still do
    int users = 0;      // how many those are: where none is left, rounding may leave a rest in `rising`
  };
  std::map<std::int32_t, Load> loads;
  for (const auto& use : uses) {
    for (const ResourceUse& u : use) {
      if (u.share <= 0) continue;
      loads[u.resource].rising += u.share;
      ++loads[u.resource].users;
    }
  }
  std::vector<double> speeds(uses.size(), 1.0);
  std::vector<bool> fixed(uses.size(), false);
  std::size_t open = uses.size();
  while (open > 0) {
    double level = 1.0;  // the speed at which the next resource fills up
    for (const auto& [resource, load] : loads) {
      if (load.users > 0) level = std::min(level, (1.0 - load.fixed) / load.rising);
    }
    if (level >= 1.0 - 1e-12) break;  // the rest runs at full speed
    std::vector<std::size_t> stopped;
    for (std::size_t i = 0; i < uses.size(); ++i) {
      if (fixed[i]) continue;
      const bool full = std::any_of(uses[i].begin(), uses[i].end(), [&](const ResourceUse& u) {
        const Load& load = loads[u.resource];
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
        Load& load = loads[u.resource];
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
