// Writes a timeline as a Chrome trace (JSON), for Perfetto and chrome://tracing: a process per rank, a thread per
// queue, arrows for dependencies, counters for memory and exposed communication.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "timeline/accounting.hpp"
#include "timeline/timeline.hpp"

namespace weft {

struct TraceOptions {
  // Iterations written, both included. Counters and exposed stretches are cut to the time these cover.
  std::int32_t first_iteration = std::numeric_limits<std::int32_t>::min();
  std::int32_t last_iteration = std::numeric_limits<std::int32_t>::max();
  // Arrows make a trace large and slow to draw. Each rank has a share of them; messages from other ranks come first,
  // then arrows from the predecessor that decided a start.
  std::int64_t max_flows = 20'000;
  // A timeline of more spans is written in three stretches, its begin, middle and end (io/trace/trace_excerpts.hpp),
  // for one timeline in a file. What is left out is drawn as a process of its own and stated in otherData as
  // "left_out".
  std::int64_t max_spans = std::numeric_limits<std::int64_t>::max();
  std::string how_to_get_all = {};  // for "left_out": "weft plan --trace-spans all"
  // Written in this order under "otherData", e.g. {"title", "..."}, {"emulated", "links paced to 200 Mb/s"}.
  std::vector<std::pair<std::string, std::string>> metadata;
};

// A rank is a process, a queue a thread; arrows lead from the sender of a message to its receiver, from the member of a
// collective that was ready last to the others, and from what an operation waited for. Times are exact: microseconds
// with three decimals. Where the timeline begins before zero (Perfetto rejects negative times) all are moved by the
// same amount, stated in otherData as "moved_us". Throws Error where check_timeline does, on a name out of range, where
// no span lies in the iterations asked for, and where the stream fails.
// Returns how many spans are left out.
std::int64_t write_chrome_trace(std::ostream& out, const Timeline& timeline, const Accounting& accounting,
                                const TraceOptions& options = {});

// One of several timelines in one file.
struct TracePart {
  const Timeline* timeline = nullptr;
  const Accounting* accounting = nullptr;
  std::string label;  // before the name of each of its processes: "predicted", "measured"
  // As in TraceOptions.
  std::int32_t first_iteration = std::numeric_limits<std::int32_t>::min();
  std::int32_t last_iteration = std::numeric_limits<std::int32_t>::max();
};

// Side by side: each part's first span starts at time 0. `options` say how many arrows each part may have, and the
// metadata; the iterations are the parts' own.
void write_chrome_traces(std::ostream& out, const std::vector<TracePart>& parts, const TraceOptions& options = {});

}  // namespace weft
