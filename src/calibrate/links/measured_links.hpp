// The links and hosts as this run found them, and what programs take on them.
#pragma once

#include "cost/choose_program.hpp"

namespace weft {

struct MeasuredLink {
  double goodput = 0;  // bytes a second of a plain TCP stream
  Nanos latency;       // of a small message
  Bytes burst;         // that goes through at once after a pause
};

// What ranks themselves take while all of them are at work.
struct HostWork {
  Nanos call;                        // from its start until the caller knows of its end, without messages
  Nanos latency;                     // of a message on its way to what waits for it
  Nanos per_message;                 // of work of both ends
  Bandwidth rate{};                  // of work on bytes that a rank sends and receives; 0: too few pass at once to tell
  Bandwidth copies{}, reductions{};  // in a rank's own memory
  Bytes burst;                       // that goes through links at once after a pause, as messages find it
};

// `ranks` devices joined by such links.
ClusterSpec cluster_of(const MeasuredLink& link, std::int64_t ranks);

std::vector<Rank> members_up_to(std::int64_t ranks);

// From a call until all callers know of its end, on links that were idle.
Nanos time_over_tcp(Algorithm algorithm, std::int64_t parts, const ProgramQuestion& question, const MeasuredLink& link,
                    const HostWork& host);

}  // namespace weft
