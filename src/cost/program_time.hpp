// How long a program takes on a cluster: its steps run as comm/program_run.hpp runs them, its messages flow as
// cluster/flow_network.hpp lets them.
#pragma once

#include <span>
#include <vector>

#include "cluster/cluster.hpp"
#include "collective/lowered.hpp"

namespace weft {

struct ProgramTimeOptions {
  double slowdown = 1;      // of all links
  bool asks = false;        // asking for a message whose turn has come travels too
  double sharing_loss = 0;  // of a link per further flow on it (cluster/flow_network.hpp)
  // What a rank's CPU adds: reductions after arrival; 0: they happen on the way.
  Bandwidth reduce{};
  Bandwidth copy{};     // local copies and reductions of a rank, one after the other; 0: they take no time
  bool after_pause = false;  // links let through at once what they saved up before (LevelSpec::burst), and between
  Nanos per_message{};       // from the end of a message to what it sets off, on top of the link's latency
};

// `members[i]` is the device of the program's rank i. All ranks start at 0; the time is that of the last step.
Nanos program_time(const std::vector<LoweredRank>& program, const Cluster& cluster, std::span<const Rank> members,
                   const ProgramTimeOptions& options = {});

}  // namespace weft
