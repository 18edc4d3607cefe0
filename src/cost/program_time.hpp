// Predicts how long a program takes on a cluster. Its steps run as in comm/program_run.hpp, and its messages move as in
// cluster/flow_network.hpp or cluster/packet_network.hpp.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "cluster/cluster.hpp"
#include "collective/lowered.hpp"

namespace weft {

// How comm/tcp carries messages (cluster/packet_network.hpp).
struct TcpTraffic {
  Bytes window{40 << 10};            // of a connection, without what waits to be read (comm/tcp/receive_window.cpp)
  Bytes window_of_small{96 << 10};   // of messages that are sent unasked: about the congestion window
  Bytes packet{8 << 10};             // as they leave a host; its network card cuts them
  Bytes header{24};                  // of a message
  Bytes unasked{32 << 10};           // larger messages wait until the receiver asks (comm/tcp/link.hpp)
  Bandwidth host_rate{};             // of a rank's own work on what it sends and receives; 0: none
  Nanos per_message{};               // of that work for every message, at both ends together
  Bandwidth copies{}, reductions{};  // in a rank's own memory; 0: they take no time
  Bytes spare{256 << 10};            // beyond the window the system buffers this much, which counts as sent
};

struct ProgramTimeOptions {
  double slowdown = 1;      // of all links
  double sharing_loss = 0;  // of a link per further flow on it (cluster/flow_network.hpp)
  // Rate at which a rank's CPU reduces messages after their arrival; 0: they are reduced on the way.
  Bandwidth reduce{};
  // Whether copies and reductions in a rank's own memory take the time that its device needs for them, one after the
  // other. Otherwise they take no time.
  bool own_work = false;
  Nanos per_message{};  // from the end of a message to its successor, beside the link's latency
  // Simulates packets over links that have been idle instead of flows; takes longer.
  std::optional<TcpTraffic> tcp = std::nullopt;
};

// `members[i]` is the device of the program's rank i. All ranks start at 0; the time is that of the last step.
Nanos program_time(const std::vector<LoweredRank>& program, const Cluster& cluster, std::span<const Rank> members,
                   const ProgramTimeOptions& options = {});

}  // namespace weft
