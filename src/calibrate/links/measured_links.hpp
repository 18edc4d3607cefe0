// Links and hosts as this run measured them, and the time of programs on them.
#pragma once

#include "cost/choose_program.hpp"

namespace weft {

struct MeasuredLink {
  double goodput = 0;  // bytes a second of a plain TCP stream
  Nanos latency;       // of a small message
  Bytes burst;         // that goes through at once after a pause
};

// The time that ranks themselves need while all of them are at work.
struct HostWork {
  Nanos call;         // from its start until the caller knows of its end, without messages
  Nanos latency;      // of a message, until whoever waits for it can go on
  Nanos per_message;  // of the work that both ends do
  Bandwidth rate{};   // at which a rank handles the bytes that it sends and receives; 0: unknown, too few pass at once
  Bandwidth copies{}, reductions{};  // in a rank's own memory
  Bytes burst;                       // that goes through links at once after a pause, seen by messages
};

// Returns a cluster of `ranks` devices joined by such links.
ClusterSpec cluster_of(const MeasuredLink& link, std::int64_t ranks);

std::vector<Rank> members_up_to(std::int64_t ranks);

// Returns the time from the call until all callers know of its end, on links that were idle.
Nanos time_over_tcp(Algorithm algorithm, std::int64_t parts, const ProgramQuestion& question, const MeasuredLink& link,
                    const HostWork& host);

}  // namespace weft
