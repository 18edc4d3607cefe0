// Memory that a framework takes beside the values of a plan: what its kernels save besides, buffers of collectives that
// are not freed while the host is ahead, what the allocator reserves.
#pragma once

#include <optional>
#include <vector>

#include "cost/framework.hpp"
#include "plan/memory/use.hpp"

namespace weft {

// Largest first; empty where the framework says nothing of memory. `use` is that of the class.
std::vector<MemoryTerm> framework_memory(const Framework& framework, const Plan& plan, ClassId rank_class,
                                         const MemoryUse& use);

// The chance that a run fits whose fullest device is predicted to need `share` of its memory; none where the
// framework's spread is not known.
std::optional<double> chance_of_fit(const Framework& framework, double share);

}  // namespace weft
