// Whether a plan's passes are woven into each other.
#pragma once

#include "base/ids.hpp"
#include "plan/plan.hpp"

namespace weft {

// Returns whether some block is cut into sections between which more lies than what a step does once.
bool has_woven_passes(const ClassPlan& plan);

// By kind of block: whether sections of one lie between those of the other.
using WovenKinds = EnumArray<BlockKind, EnumArray<BlockKind, bool, kBlockKinds>, kBlockKinds>;
WovenKinds woven_kinds(const ClassPlan& plan);

}  // namespace weft
