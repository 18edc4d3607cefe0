// What happened when: the one type that simulation predicts and execution measures. A timeline stands alone: it
// carries what the accounting needs, no graph or plan beside it. Facts that hold in every iteration are stored once,
// in `operations`; a span is one execution of one of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"

namespace weft {

// What exposed communication is reported by. `other`: clipping's norm, tied embeddings.
enum class TrafficKind : std::uint8_t { dp_grad, param_gather, tp, pp, cp, ep, other };
inline constexpr int kTrafficKinds = 7;
std::string_view name_of(TrafficKind kind);

enum class Activity : std::uint8_t { compute, transfer };

// One rank, or one representative of several equal ranks.
struct TimelineRank {
  std::string name;                       // "stage 0"
  Rank rank;                              // the rank shown
  std::int64_t ranks = 1;                 // how many ranks it stands for: the weight in means
  IdVector<QueueId, std::string> queues;  // queue 0 is `compute`
};

struct TimelineOperation {
  std::int32_t name = 0;  // index into Timeline::names, e.g. "layer 3 qkv forward"
  MicroBatch micro_batch = kOncePerStep;
  std::int32_t rank = 0;  // index into Timeline::ranks
  QueueId queue{0};
  Activity activity = Activity::compute;
  TrafficKind traffic = TrafficKind::other;  // of a transfer
  std::int32_t phase = 0;                    // index into Timeline::names: "forward", "input_grad", ...
  std::int32_t group = -1;                   // index into Timeline::names: "tp", "dp", ... of a transfer
  Bytes bytes;                               // the whole buffer of a transfer, as its collective takes it
  Nanos alone;                               // duration without interference or sharing
  // Operations of several ranks that are one transfer share this number; -1: no other rank of this timeline takes
  // part (a compute operation, or a collective among the ranks that this rank stands for).
  std::int32_t transfer = -1;
  bool receives = false;         // the receiving end of a message; the other members of the transfer send
  std::int32_t collective = -1;  // index into Timeline::names: "all_reduce", ... of a transfer; -1: unknown
  std::int32_t group_size = 0;   // ranks that take part in the transfer; 0: unknown
};

// `distance` iterations earlier: 0 or 1.
struct Dependency {
  std::int32_t operation = 0;
  std::int16_t distance = 0;
  bool order = false;   // decides when the operation is issued; all others, when it is ready
  bool memory = false;  // not for data: for memory that the one waited for uses
  friend bool operator==(const Dependency&, const Dependency&) = default;
};

struct Span {
  std::int32_t operation = 0;  // index into Timeline::operations
  std::int32_t iteration = 0;
  Nanos issued;  // its queue reached it
  Nanos ready;   // its own dependencies were done
  Nanos start;   // of a transfer: when its last member had issued it and was ready
  Nanos end;
};

// Consecutive operations of one rank that ran back to back from `start`, each exactly `alone` long and longer than
// nothing, none of them part of a transfer with other ranks. Each waited for the one before and for nothing that ended
// later, and the rank computed nothing else meanwhile. Simulation keeps this way what it did not have to look into;
// folded_spans.hpp writes it out, and only then are `issued` and `ready` of the other spans known too.
struct FoldedSpan {
  std::int32_t first = 0;  // operations first .. first + count - 1
  std::int32_t count = 1;
  std::int32_t iteration = 0;
  Nanos start;
};

struct MemorySample {
  Nanos at;
  Bytes bytes;
};

struct Timeline {
  std::vector<std::string> names;
  std::vector<TimelineRank> ranks;
  std::vector<TimelineOperation> operations;
  // What operation i waits for (data, queue order and control alike): dependencies[dependency_begin[i] ..
  // dependency_begin[i + 1]). Empty dependency_begin: unknown (a trace from elsewhere).
  std::vector<std::int32_t> dependency_begin;
  std::vector<Dependency> dependencies;
  std::vector<Span> spans;                        // by iteration, then operation
  std::vector<FoldedSpan> folded;                 // the executions that `spans` does not hold; in the same order
  std::vector<std::vector<MemorySample>> memory;  // by rank, ascending in time; may be empty
  // The steady state: the accounting measures [steady_begin, steady_begin + periods * period), which begins with
  // iteration steady_first.
  std::int32_t steady_first = 0;
  Nanos steady_begin;
  double period_ns = 0;  // step time; whole where the steady state repeats exactly
  std::int32_t periods = 1;
  bool measured = false;  // false: predicted
};

// Throws Error naming the first thing that cannot be: an index out of range, a span that ends before it starts.
void check_timeline(const Timeline& timeline);

}  // namespace weft
