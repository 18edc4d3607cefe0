// Knows which of Megatron's overlap flags (PolicyOptions) a layout allows.
#pragma once

#include "planner/plan_request.hpp"

namespace weft {

// Throws Error for a flag that is not for this layout, mostly because Megatron refuses it there.
void require_applicable(const PolicyOptions& options, const Layout& layout);
// Returns the options without those flags that this layout does not allow.
PolicyOptions applicable_options(const PolicyOptions& options, const Layout& layout);

}  // namespace weft
