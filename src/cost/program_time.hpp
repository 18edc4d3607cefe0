// How long a program takes on a cluster: its steps run as comm/program_run.hpp runs them, its messages flow as
// cluster/flow_network.hpp lets them.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "cluster/cluster.hpp"
#include "collective/lowered.hpp"

namespace weft {

// How comm/tcp carries messages (cluster/packet_network.hpp).
struct TcpTraffic {
  Bytes window{40 << 10};            // of a connection, less what waits to be read (comm/tcp/receive_window.cpp)
  Bytes window_of_small{96 << 10};   // of messages that set out unasked: about what congestion control lets through
  Bytes packet{8 << 10};             // as they leave a host, whose card cuts them
  Bytes header{24};                  // of a message
  Bytes unasked{32 << 10};           // larger messages set out when the receiver has asked for them (comm/tcp/link.cpp)
  Bandwidth host_rate{};             // of a rank's own work on what it sends and receives; 0: none
  Nanos per_message{};               // of that work for every message, at both ends together
  Bandwidth copies{}, reductions{};  // in a rank's own memory; 0: they take no time
  Bytes spare{256 << 10};            // what the system takes beyond the window: for the program, it has been sent
};

struct ProgramTimeOptions {
  double slowdown = 1;      // of all links
  double sharing_loss = 0;  // of a link per further flow on it (cluster/flow_network.hpp)
  // What a rank's CPU adds: reductions after arrival; 0: they happen on the way.
  Bandwidth reduce{};
  // Whether copies and reductions in a rank's own memory take what its device needs for them, one after the other.
  // Otherwise they take no time.
  bool own_work = false;
  Nanos per_message{};  // from the end of a message to what it sets off, on top of the link's latency
  // In packets, over links that have been idle, in place of flows; takes longer to predict.
  std::optional<TcpTraffic> tcp = std::nullopt;
};

// `members[i]` is the device of the program's rank i. All ranks start at 0; the time is that of the last step.
Nanos program_time(const std::vector<LoweredRank>& program, const Cluster& cluster, std::span<const Rank> members,
                   const ProgramTimeOptions& options = {});

}  // namespace weft
