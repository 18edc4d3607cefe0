// What a plan needs of the memory of every class's device: its values and, where the framework that runs it is known,
// what that takes beside them. Whoever asks whether a plan fits asks here.
#pragma once

#include <vector>

#include "cost/profile.hpp"
#include "plan/memory/use.hpp"

namespace weft {

struct MemoryNeed {
  Bytes needed, available;

  bool fits() const { return needed <= available; }
  double share() const { return static_cast<double>(needed.value) / static_cast<double>(available.value); }
};

// Returns the need of every class, by class.
std::vector<MemoryNeed> memory_needs(const Plan& plan, const Profile& profile);

struct MemoryVerdict {
  bool fits = true;       // in every class
  Bytes needed{};         // of the class that needs most
  double share = 0;       // the largest share of a device's memory
  MemoryNeed worst = {};  // of the class that needs this share
};
MemoryVerdict judge_memory(const std::vector<MemoryNeed>& needs);
inline MemoryVerdict judge_memory(const Plan& plan, const Profile& profile) {
  return judge_memory(memory_needs(plan, profile));
}

struct DetailedMemoryNeed : MemoryNeed {
  MemoryUse use;  // its terms, largest first, have those of the framework among them: their sum is what is needed
};
// Returns the same with what the memory is for, which takes longer to find.
std::vector<DetailedMemoryNeed> detailed_memory_needs(const Plan& plan, const Profile& profile);

}  // namespace weft
