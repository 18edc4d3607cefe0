// Chakra traces of several ranks as one step: transfers that belong together are one operation, and what waits for what
// is known across ranks (docs/chakra.md). Such a step has no layers and no values, so it is not a StepGraph; its
// operations can be ordered, simulated and bounded all the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/chakra/chakra_file.hpp"

namespace weft {

struct TracedRank {
  Rank rank;
  std::string file;
  bool has_host = false;  // some of its operations run on the host
};

enum class TracedKind : std::uint8_t { compute, host, collective, message, memory };

// A queue takes one operation at a time. Compute and host queues belong to a rank. A communicator is one queue on all
// of its ranks, as NCCL runs its collectives in one order; so are the messages from one rank to another.
struct TracedQueue {
  TracedKind kind = TracedKind::compute;
  std::string name;           // "compute", "host", or the communicator's
  std::vector<Rank> members;  // of a communicator, all ranks that take part, with a file or without
};

struct TracedMember {
  std::int32_t rank = 0;  // index into TracedStep::ranks
  std::int32_t node = 0;  // index into the nodes of its file
  bool receives = false;
};

struct TracedOperation {
  std::string name;
  TracedKind kind = TracedKind::compute;
  std::int32_t queue = 0;  // index into TracedStep::queues
  std::optional<Collective> collective;
  Bytes bytes;
  Nanos duration;                     // the shortest that a member took: others may have waited for it
  std::vector<TracedMember> members;  // by rank
};

// `to` waits for `from`: indices into TracedStep::operations.
struct TracedEdge {
  std::int32_t from = 0, to = 0;
  friend auto operator<=>(const TracedEdge&, const TracedEdge&) = default;
};

struct TracedStep {
  std::vector<TracedRank> ranks;  // ascending
  std::vector<TracedQueue> queues;
  std::vector<TracedOperation> operations;
  std::vector<TracedEdge> data, control;  // sorted, each once
  // By rank: its operations in the trace's own order, which respects its dependencies: by start, then by id.
  std::vector<std::vector<std::int32_t>> order;
  std::vector<std::vector<std::int32_t>> operation_of;  // by rank and node
  std::vector<std::string> warnings;
};

// Throws Error with file and node where dependencies of a file form a cycle, members of a collective disagree on what
// it is, or a message has no other end though its rank has a file.
TracedStep join_traces(const std::vector<ChakraFile>& files, const std::vector<ChakraGroup>& groups);

// What of the trace's own order holds beside data dependencies.
struct OrderRules {
  bool control = true;      // control dependencies
  bool in_order = true;     // every queue takes a rank's operations in the trace's order
  bool one_by_one = false;  // a rank's device does one thing at a time, in the trace's order
};
std::vector<TracedEdge> edges_of(const TracedStep& step, const OrderRules& rules);

// Returns the operations in an order that respects the edges, the earlier ones of the trace first; shorter than
// `operations` where the edges form a cycle.
std::vector<std::int32_t> run_order(const TracedStep& step, const std::vector<TracedEdge>& edges);
// Describes a cycle of the edges in words: "rank 0: a waits for b; ...". There must be one.
std::string describe_cycle(const TracedStep& step, const std::vector<TracedEdge>& edges);

}  // namespace weft
