// The flags about collectives as programs: --program, --topology, --cache.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/flags.hpp"
#include "cluster/cluster.hpp"
#include "collective/carried_program.hpp"
#include "cost/program_store.hpp"

namespace weft {

void declare_program_flags(Flags& flags, const std::string& group);

// "all_reduce=ring.xml,all_gather=trees.xml": reads the files and proves the programs. Throws Error naming the file,
// and why a program is not taken.
std::vector<ProgramRef> read_programs(const Flags& flags);
// What --topology says of the cluster's wiring; nothing where it is not given.
SharedTopology read_topology(const Flags& flags);
// --cache, or the user's folder for caches (XDG_CACHE_HOME, else ~/.cache); null for "none" and where no topology is
// given.
std::shared_ptr<ProgramStore> read_program_store(const Flags& flags, const ClusterSpec& cluster);

}  // namespace weft
