// Folded spans written out, for those who want every execution by itself: traces, comparisons, tests.
#pragma once

#include <limits>

#include "timeline/timeline.hpp"

namespace weft {

// The same timeline with every execution of iterations first..last as a span, and no other. The timeline must pass
// check_timeline.
Timeline expanded(const Timeline& timeline, std::int32_t first_iteration = std::numeric_limits<std::int32_t>::min(),
                  std::int32_t last_iteration = std::numeric_limits<std::int32_t>::max());

// Sets `issued` and `ready` of every span: the end of what orders it in its queue, and of all else that it waited for;
// 0 where that is nothing. For predicted timelines; expanded() does it where something is folded.
void add_waits(Timeline& timeline);

}  // namespace weft
