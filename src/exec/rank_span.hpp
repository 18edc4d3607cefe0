// One execution of an operation on one rank.
#pragma once

#include <cstdint>

namespace weft {

// Times are nanoseconds of the rank's steady clock.
struct RankSpan {
  std::int64_t ready = 0;  // its dependencies were done
  std::int64_t start = 0;  // of a transfer: it became the first of its queue, and its data was there
  std::int64_t end = 0;
};

}  // namespace weft
