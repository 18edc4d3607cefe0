// Reader and writer of timelines (docs/timeline-format.md): predicted and measured ones alike.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <map>
#include <string>

#include "timeline/timeline.hpp"

namespace weft {

inline constexpr std::size_t kMaxTimelineFileBytes = std::size_t{512} << 20;

struct TimelineFile {
  Timeline timeline;
  std::map<std::string, std::string> about;  // in words, e.g. {"policy", "ddp"}, {"links", "emulated"}
};

// Writes out folded spans. Throws Error where check_timeline does; the stream reports whether all was written.
void write_timeline_json(std::ostream& out, const TimelineFile& file);

// Throws Error naming file, place, value and what is allowed; what it returns passes check_timeline.
TimelineFile read_timeline_json(const std::string& text, const std::string& file_name);

}  // namespace weft
