// Which stretches of a long timeline a trace shows: how it begins, its steady middle and how it ends. Viewers take
// minutes for a million slices, and the middle of a step repeats itself.
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.hpp"

namespace weft {

struct TraceExcerpts {
  struct Stretch {
    Nanos begin, end;        // spans belong to the stretch that they start in; `end` is outside
    std::int64_t spans = 0;  // that start in it
  };
  std::vector<Stretch> shown, left_out;  // each ascending
  bool shows(Nanos start) const;
  std::int64_t spans_left_out() const;
};

// `starts`: of all spans, in any order; `end`: of the last one. Up to `most` spans, all are shown. Of more, a third of
// `most` each: the first, the middle and the last by their starts; spans that start together are never parted.
TraceExcerpts choose_excerpts(std::vector<Nanos> starts, Nanos end, std::int64_t most);

}  // namespace weft
