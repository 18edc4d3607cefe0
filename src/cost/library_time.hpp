// How long a library's collective takes alone where more is known than one efficiency: what a job measured of its
// links, or what NCCL's tuning model says.
#pragma once

#include <optional>

#include "cluster/cluster.hpp"
#include "collective/collective.hpp"
#include "cost/profile.hpp"
#include "graph/step_graph.hpp"

namespace weft {

struct LibraryTime {
  Nanos latency;
  double moving_seconds = 0;  // after that
};

// A collective over links with a nominal rate: its group as a member sees it, the traffic of its ring, and what links
// take for that traffic at their best rate.
struct LibraryCall {
  const Communication& communication;
  const GroupView& view;
  const CollectiveTraffic& traffic;
  Nanos latency;                 // of the ring's messages
  double ring_seconds = 0;       // of the slowest link
  double outermost_seconds = 0;  // of the links of the outermost fabric
};

// None where an efficiency is all that is known.
std::optional<LibraryTime> library_time(const Cluster& cluster, const Profile& profile, const LibraryCall& call);

}  // namespace weft
