// How long the transport library's own collectives take on the groups of a step, so that plans may choose them.
#pragma once

#include <map>

#include "comm/communicator.hpp"
#include "cost/profile.hpp"
#include "exec/rank_view.hpp"

namespace weft {

// Which group of ranks each (collective, members) is timed on: the same on all ranks. An all_reduce may be carried out
// as reduce_scatter and all_gather (planner/partition), so those are asked for too.
std::map<LibraryProfile::Group, GroupKind> groups_to_time(const StepGraph& graph);

// Whether this rank is a member of such a group.
bool is_timed_on(const RankView& view, LibraryProfile::Group group, GroupKind kind);

// All ranks call it, and get the same. Nothing where the transport has no library.
LibraryProfile measure_library(const RankView& view, Communicator& communicator);

}  // namespace weft
