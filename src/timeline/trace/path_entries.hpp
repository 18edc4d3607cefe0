// A critical path summarised by what is on it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "timeline/trace/trace_study.hpp"

namespace weft {

// All that is on the path under one kind and name, over all ranks.
struct PathEntry {
  PathKind kind = PathKind::unknown;
  // The name of the kernel or the call; for `host`, of the outermost operator or call, "" between them (the
  // interpreter, for instance).
  std::string name;
  std::int64_t count = 0;
  Nanos time;
};

// Longest first; ties by kind and name. Their times add up to the path.
std::vector<PathEntry> path_entries(const TraceStudy& study);

}  // namespace weft
