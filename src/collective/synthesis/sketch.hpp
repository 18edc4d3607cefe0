// A communication sketch, as TACCL's users write them (Shah et al., "TACCL", NSDI 2023): what a person knows about a
// machine, which leaves the synthesis less to try. And the logical topology that it leaves: which ranks may send to
// which.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cluster/topology.hpp"

namespace weft {

// How many connections a rank should have through switches, beside the time: TACCL's "uc-min" and "uc-max".
enum class SwitchConnections : std::uint8_t { any, few, many };

// Rank r of a block of `size` ranks is like rank r + offset of it, and so on round the block.
struct RankRotation {
  std::int64_t offset = 0, size = 0;
  friend bool operator==(const RankRotation&, const RankRotation&) = default;
};

struct Sketch {
  std::string name;
  std::int64_t nodes = 1;
  SwitchConnections switch_connections = SwitchConnections::any;
  // By place of a sender in its node, the places in other nodes to which it may send. Empty: all that are joined, or
  // those of the sender's own place.
  std::map<std::int64_t, std::vector<std::int64_t>> crossings = {};
  bool crosses_to_same_place = false;
  // By place of a sender, whose chunks it sends to other nodes (their places). Empty: anybody's.
  std::map<std::int64_t, std::vector<std::int64_t>> sends_for = {};
  std::vector<RankRotation> rotations = {};  // chunks take the turned way of their like
  std::int64_t chunks = 1;                   // of a rank
  // Whether the latency of a message keeps its links busy, as TACCL counts it, or messages follow each other at once,
  // as in our simulation.
  bool blocking_latency = true;
  friend bool operator==(const Sketch&, const Sketch&) = default;
};

struct LogicalEdge {
  std::int32_t from = 0, to = 0;  // ranks
  double latency = 0;             // seconds, once for every message
  double busy_latency = 0;        // the part of it for which links are busy: all or nothing (Sketch::blocking_latency)
  // The links of a message, and for how long a byte keeps each busy. Edges that share a link (the ports of a switch, a
  // NIC) are TACCL's hyperedges.
  std::vector<std::pair<std::int32_t, double>> links;
  // Seconds of a message alone.
  double alone(double bytes) const;
  friend bool operator==(const LogicalEdge&, const LogicalEdge&) = default;
};

struct LogicalTopology {
  std::int32_t ranks = 0, links = 0;
  std::vector<LogicalEdge> edges;
  std::vector<std::vector<std::int32_t>> out, in;  // by rank
  std::vector<std::int64_t> node, place;           // of every rank
  // The number of an edge, or -1.
  std::int32_t edge(std::int32_t from, std::int32_t to) const;
  bool crosses(std::int32_t edge) const { return node[edges[edge].from] != node[edges[edge].to]; }
};

// Throws Error, opened by the sketch's name, where the sketch is for another number of nodes, names a place that nodes
// do not have, leaves a rank that another cannot reach, or rotates an edge onto ranks that have none.
LogicalTopology logical_topology(const Topology& topology, const Sketch& sketch);

}  // namespace weft
