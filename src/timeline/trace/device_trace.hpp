// What a profiler saw on one rank: device activities, the host's launches of them, and synchronisation. Unlike a
// Timeline it has no graph, so who waited for whom must be inferred. Names are interned, times are nanoseconds, and the
// lists are sorted by start, so that a million events stay small and fast.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"

namespace weft {

// The purpose of a kernel by its name, as Holistic Trace Analysis (HTA) distinguishes them. `other` is synchronisation,
// and names with Memcpy, Memset or Sync inside.
enum class KernelKind : std::uint8_t { computation, communication, memory, other };
inline constexpr int kKernelKinds = 4;
std::string_view name_of(KernelKind kind);
KernelKind kernel_kind(std::string_view kernel_name);

// Indices that a trace may lack are kAbsent; times that it may lack are kNoTime.
inline constexpr std::int32_t kAbsent = -1;
inline constexpr Nanos kNoTime{INT64_MIN};

// One kernel, copy or fill on a stream.
struct DeviceActivity {
  Nanos start, end;
  Nanos issued = kNoTime;         // when the host began the call that launched it; our own traces say it themselves
  Nanos ready = kNoTime;          // our own traces: when all that it waits for on its rank was done
  std::int64_t correlation = -1;  // with the host's call; unique to a launch (a CUDA graph launches many at once)
  std::int64_t bytes = -1;        // moved by a copy or fill; whole buffer of a transfer in our own traces
  std::int32_t name = 0;          // index into DeviceTrace::names
  std::int32_t stream = 0;        // as the trace numbers it; unique within `device`
  std::int32_t device = 0;
  std::int32_t launch = kAbsent;      // index into DeviceTrace::host: the call that launched it
  std::int32_t collective = kAbsent;  // index into DeviceTrace::collectives
  std::int32_t step = kAbsent;        // index into DeviceTrace::steps: the one in which it was launched
  std::int32_t position = 0;          // among the file's events
  KernelKind kind = KernelKind::computation;
  Nanos duration() const { return end - start; }
};

enum class HostKind : std::uint8_t {
  runtime,     // a CUDA runtime or driver call
  op,          // an operator of the framework (aten::mm)
  annotation,  // what the user or the framework marked (nccl:all_reduce, ProfilerStep#3)
  other
};

// How a runtime call orders work, by its name; for runtime and driver calls alike.
enum class HostCall : std::uint8_t {
  none,
  launch,              // kernel, graph, copy, fill: has a correlation with the device's activity
  event_record,        // cudaEventRecord
  stream_wait_event,   // cudaStreamWaitEvent: a stream waits, the host does not
  event_synchronize,   // cudaEventSynchronize
  stream_synchronize,  // cudaStreamSynchronize
  device_synchronize,  // cudaDeviceSynchronize, cuCtxSynchronize
  other
};
HostCall host_call(std::string_view runtime_name);

struct HostActivity {
  Nanos start, end;
  std::int64_t correlation = -1;      // of runtime calls
  std::int64_t external = -1;         // the profiler's id of the operator; runtime calls carry that of their operator
  std::int32_t name = 0;              // index into DeviceTrace::names
  std::int32_t thread = 0;            // index into DeviceTrace::threads
  std::int32_t collective = kAbsent;  // index into DeviceTrace::collectives: record_param_comms, nccl:all_reduce
  HostKind kind = HostKind::other;
  HostCall call = HostCall::none;  // of runtime calls
};

struct HostThread {
  std::string process, thread;  // ids as the trace writes them
};

enum class SyncKind : std::uint8_t { stream_wait_event, event_sync, stream_sync, context_sync, other };

// What Kineto's category cuda_sync says. Only newer profilers write it; without it waits are inferred from the calls.
struct SyncActivity {
  Nanos start, end;
  std::int64_t correlation = -1;         // of the runtime call
  std::int64_t event = -1;               // the CUDA event waited for
  std::int64_t record_correlation = -1;  // of the cudaEventRecord call waited for
  std::int32_t name = 0;
  std::int32_t device = 0;
  std::int32_t stream = -1;            // that waits; -1: the host
  std::int32_t wait_on_stream = -1;    // on which the event was recorded
  std::int32_t call = kAbsent;         // index into DeviceTrace::host: the runtime call with this correlation
  std::int32_t record_call = kAbsent;  // index into DeviceTrace::host: the cudaEventRecord
  std::int32_t position = 0;           // among the file's events
  SyncKind kind = SyncKind::other;
  bool names_stream = false;  // as HTA reads it: older profilers write 4294967295 for the host, and HTA counts those
};

// What a collective says of itself. Equal facts are stored once.
struct CollectiveFacts {
  std::int32_t name = 0;              // index into names: "allreduce", "_reduce_scatter_base", "all_to_all", "tp"
  std::int32_t dtype = kAbsent;       // index into names: "Float", "BFloat16"
  std::int32_t group_name = kAbsent;  // index into names: "0", "default_pg", "dp"
  std::int32_t group_description = kAbsent;  // index into names
  std::int32_t group_ranks = kAbsent;        // index into DeviceTrace::rank_lists; kAbsent: the trace does not say
  std::int32_t group_size = 0;               // 0: unknown
  std::int32_t element_bytes = 0;            // of dtype; 0: unknown
  std::int64_t in_elements = -1, out_elements = -1;  // per rank, as PyTorch records them; -1: unknown
  // Position among the group's collectives, where written ("Seq"). Our own traces: the number that members of one
  // transfer share within an iteration; -1: no other rank of the trace takes part.
  std::int64_t sequence = -1;
  friend bool operator==(const CollectiveFacts&, const CollectiveFacts&) = default;
};
// Size of an element of a type as PyTorch names it ("BFloat16", "float", "c10::Half"); 0: unknown.
std::int32_t element_bytes(std::string_view dtype);

// ProfilerStep#n, or an iteration of our own traces.
struct StepMark {
  std::int64_t number = 0;
  Nanos start, end;
};

// What the trace says of the devices it saw.
struct TraceDevice {
  std::int32_t id = 0;
  std::string name;
  Bytes memory;
  std::int32_t multiprocessors = 0;
  std::int32_t compute_major = 0, compute_minor = 0;
};

// A dependency that an arrow of our own traces shows: indices into `device`.
struct DeviceDependency {
  std::int32_t before = 0, after = 0;
  friend bool operator==(const DeviceDependency&, const DeviceDependency&) = default;
};

enum class TraceSource : std::uint8_t { kineto, weft };

struct DeviceTrace {
  std::string file;
  std::string label;  // of one of several traces in a file: "predicted"
  TraceSource source = TraceSource::kineto;
  Rank rank;                    // invalid: the trace does not say
  std::int64_t world_size = 0;  // 0: the trace does not say
  std::string backend;          // "nccl"
  // Nanoseconds since 1970 of time 0, where the trace says so (baseTimeNanoseconds): makes ranks comparable. Traces of
  // older profilers count from 1970 and have 0 here.
  std::int64_t base_time_ns = 0;

  Nanos step_time;  // our own predictions: of a step in the steady state, where steps may overlap; 0: unknown

  std::vector<std::string> names;
  std::vector<DeviceActivity> device;  // by start, then longer first, then as in the file
  std::vector<HostActivity> host;      // in the same order: on one thread an enclosing activity precedes its parts
  std::vector<SyncActivity> syncs;     // by start
  std::vector<StepMark> steps;         // as the host marked them; by start
  std::vector<StepMark> device_steps;  // the same as the profiler drew them on streams; by start
  // Other events that name a stream (operators of Triton, annotations). They are no work of the device, but HTA counts
  // them. By start.
  std::vector<DeviceActivity> stream_marks;
  std::vector<CollectiveFacts> collectives;
  std::vector<std::vector<std::int32_t>> rank_lists;
  std::vector<HostThread> threads;
  std::vector<TraceDevice> devices;
  std::vector<DeviceDependency> dependencies;  // of our own traces; sorted

  // Some time stamp had a fraction: then HTA rounds starts up and ends down to whole microseconds.
  bool fractional = false;
  std::int64_t events = 0;            // in the file, of all kinds
  std::vector<std::string> warnings;  // what was odd or missing, in words; no file name
};

// Sorts the lists, then fills in what follows from them: launch, issued and step of device activities, the calls of
// synchronisations and, for communication kernels without facts of their collective, the facts of the innermost host
// activity around their launch that has some.
void connect_launches(DeviceTrace& trace);

// For traces that say themselves which step an activity belongs to: `step` of a device activity is an index into
// `marks`, in any order; the marks become trace.steps, by start.
void set_steps(DeviceTrace& trace, std::vector<StepMark> marks);

}  // namespace weft
