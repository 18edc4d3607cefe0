#include "comm/landing.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.hpp"
#include "comm/reduce_kernels.hpp"

namespace weft {

std::int64_t LandingWork::advance(std::int64_t limit) {
  // Whole elements; segments are whole elements too.
  limit = std::max<std::int64_t>(64, limit / 64 * 64);
  std::int64_t left = limit;
  while (!done() && left > 0) {
    WEFT_CHECK(to_.contiguous() > 0);
    std::int64_t bytes = std::min({from_.contiguous(), to_.contiguous(), left});
    if (landing_.operand.empty()) {
      std::memcpy(to_.data(), from_.data(), static_cast<std::size_t>(bytes));
    } else {
      bytes = std::min(bytes, operand_.contiguous());
      reduce_into(landing_.type, landing_.op, to_.data(), operand_.data(), from_.data(),
                  bytes / size_of(landing_.type).value, landing_.scale);
      operand_.advance(bytes);
    }
    from_.advance(bytes);
    to_.advance(bytes);
    left -= bytes;
  }
  return limit - left;
}

void land(std::span<const Segment> arrived, const Landing& landing) {
  LandingWork(arrived, landing).advance(std::numeric_limits<std::int64_t>::max());
}

}  // namespace weft
