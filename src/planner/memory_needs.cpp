#include "planner/memory_needs.hpp"

#include <algorithm>

#include "planner/framework_memory.hpp"

namespace weft {

std::vector<DetailedMemoryNeed> detailed_memory_needs(const Plan& plan, const Profile& profile) {
  std::vector<DetailedMemoryNeed> needs;
  std::vector<MemoryUse> use = memory_use(plan);
  for (const ClassId c : plan.classes.ids()) {
    DetailedMemoryNeed need{{plan.classes[c].memory, plan.graph.classes[c].device.memory}, std::move(use[c.index()])};
    if (profile.framework != nullptr) {
      for (MemoryTerm& term : framework_memory(*profile.framework, plan, c, need.use)) {
        need.needed += term.bytes;
        need.use.terms.push_back(std::move(term));
      }
      std::stable_sort(need.use.terms.begin(), need.use.terms.end(),
                       [](const MemoryTerm& a, const MemoryTerm& b) { return a.bytes > b.bytes; });
    }
    needs.push_back(std::move(need));
  }
  return needs;
}

std::vector<MemoryNeed> memory_needs(const Plan& plan, const Profile& profile) {
  std::vector<MemoryNeed> needs;
  if (profile.framework != nullptr && profile.framework->memory.takes_any()) {
    for (const DetailedMemoryNeed& need : detailed_memory_needs(plan, profile)) needs.push_back(need);
    return needs;
  }
  for (const ClassId c : plan.classes.ids()) {
    needs.push_back({plan.classes[c].memory, plan.graph.classes[c].device.memory});
  }
  return needs;
}

MemoryVerdict judge_memory(const std::vector<MemoryNeed>& needs) {
  MemoryVerdict verdict;
  for (const MemoryNeed& need : needs) {
    verdict.fits = verdict.fits && need.fits();
    verdict.needed = std::max(verdict.needed, need.needed);
    if (need.share() <= verdict.share) continue;
    verdict.share = need.share();
    verdict.worst = need;
  }
  return verdict;
}

}  // namespace weft
