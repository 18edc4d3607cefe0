#include "calibrate/program_fit.hpp"

#include <algorithm>

namespace weft {

ProgramOverheads fit_rings(const LibraryLink& link, std::int64_t ranks, const TimedRing& small,
                           const TimedRing& large) {
  const auto of_piece = [&](const TimedRing& ring) {
    return static_cast<double>(ring.bytes.value) / static_cast<double>(ranks);
  };
  const auto on_links = [&](const TimedRing& ring) {
    return seconds(link.latency) + of_piece(ring) / link.bandwidth.bytes_per_second;
  };
  const auto reductions = static_cast<double>(ranks - 1);
  const double overhead = std::max(0.0, seconds(small.time) / (2 * reductions) - on_links(small));
  const double reducing = seconds(large.time) - 2 * reductions * (on_links(large) + overhead);
  ProgramOverheads found{nanos_from_seconds(overhead), {}};
  if (reducing > 0) found.reduce = {reductions * of_piece(large) / reducing};
  return found;
}

}  // namespace weft
