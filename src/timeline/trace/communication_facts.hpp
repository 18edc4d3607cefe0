// What a communication kernel was: its collective, group and bytes, from NCCL's arguments where the trace has them,
// else from the kernel's name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "timeline/trace/device_trace.hpp"

namespace weft {

enum class CollectiveOp : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  broadcast,
  reduce,
  gather,
  scatter,
  send_recv,
  barrier,
  other
};
std::string_view name_of(CollectiveOp op);
// "_allgather_base", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "all_to_allv" alike.
CollectiveOp collective_op(std::string_view name);

// Bus bandwidth is algorithm bandwidth times this factor, as nccl-tests define it (its doc/PERFORMANCE.md): what a link
// must carry for each byte of the buffer, whatever the algorithm. 1 for groups of unknown size.
double bus_factor(CollectiveOp op, std::int64_t ranks);

// Size classes of a report: below 64 KiB, 1 MiB, 16 MiB, 256 MiB, above; -1: unknown.
inline constexpr int kSizeClasses = 5;
int size_class(std::int64_t bytes);
std::string_view size_class_name(int size);

// A group as one trace knows it.
struct TraceGroup {
  std::string name;                 // as the process group is called; "" where the trace says nothing
  std::string label = "?";          // for people: "default_pg", "dp"
  std::vector<std::int32_t> ranks;  // empty: unknown
  std::int64_t size = 0;            // 0: unknown
};

struct TracedCommunication {
  CollectiveOp op = CollectiveOp::other;
  std::int32_t label = 0;      // index into CommunicationTable::labels: what reports call it
  std::int32_t group = 0;      // index into CommunicationTable::groups
  std::int64_t bytes = -1;     // of the buffer as nccl-tests count it; -1: unknown
  std::int64_t sequence = -1;  // among the group's collectives; -1: the trace does not say
};

struct CommunicationTable {
  std::vector<std::string> labels;      // "all_reduce"; a name of its own where the operation is not known
  std::vector<TraceGroup> groups;       // group 0 stands for those of which nothing is known
  std::vector<TracedCommunication> of;  // by activity; meaningless for what is no communication
};

CommunicationTable communication_table(const DeviceTrace& trace);

}  // namespace weft
