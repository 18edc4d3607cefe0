// Folded spans written out, for those who want every execution by itself: traces, comparisons, tests.
#pragma once

#include <limits>

#include "timeline/timeline.hpp"

namespace weft {

// The same timeline with every execution of iterations first..last as a span, and no other. The timeline must pass
// check_timeline; an operation's folded execution was issued and ready when what it waited for had ended.
Timeline expanded(const Timeline& timeline, std::int32_t first_iteration = std::numeric_limits<std::int32_t>::min(),
                  std::int32_t last_iteration = std::numeric_limits<std::int32_t>::max());

}  // namespace weft
