// Chooses which excerpts of a long timeline a trace shows: its begin, its steady middle and its end. Viewers take
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

// `starts` has the starts of all spans in any order, `end` is the end of the last one. Up to `most` spans, all are
// shown; of more, the first, the middle and the last third of `most` by their starts. Spans that start together are
// never separated.
TraceExcerpts choose_excerpts(std::vector<Nanos> starts, Nanos end, std::int64_t most);

}  // namespace weft
