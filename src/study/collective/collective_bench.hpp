// A benchmark of collectives, as one rank runs it: checks what every candidate computes, then times them in turn.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/links/stream_probe.hpp"
#include "cluster/cluster.hpp"
#include "comm/communicator.hpp"
#include "cost/choose_program.hpp"

namespace weft {

// A program that is not one of the generators', say from a file.
struct BenchProgram {
  std::string name;
  std::shared_ptr<const Program> program;  // proven, for as many ranks as there are
};

struct BenchOptions {
  std::vector<Collective> kinds = {Collective::all_reduce};
  std::vector<Bytes> sizes = {Bytes{64 << 10}, Bytes{1 << 20}, Bytes{16 << 20}};
  std::vector<Algorithm> algorithms;     // empty: the one that the cost model chooses
  std::int64_t parts = 0;                // 0: the cost model chooses
  std::vector<BenchProgram> programs{};  // run beside these for their collectives
  // Ranks behind the others that do the steps of switches in the only program there is; nothing runs beside it.
  std::int64_t stand_ins = 0;
  ElementType type = ElementType::fp32;
  ReduceOp op = ReduceOp::sum;
  bool in_place = false;
  bool native = false;               // the library's own calls beside ours
  std::optional<int> repeat;         // rounds; none: enough for a stable median
  const Cluster* cluster = nullptr;  // the emulated links of threads; processes measure theirs
  double slowdown = 1;
};

struct BenchRow {
  Collective kind = Collective::all_reduce;
  Bytes size;
  std::string name;  // "ring", "native", the name of a file
  std::int64_t parts = 1;
  Nanos time;                      // of this machine: median over the repeats of the slowest rank
  std::optional<Nanos> link_time;  // with emulated links: the same by the links' clock
  std::optional<Nanos> predicted;  // of our own programs
  // Between processes: the links let the program through at once, so only hosts take time, which is predicted roughly.
  bool within_burst = false;
  double bus_bandwidth = 0;                              // bytes a second; 0: links carry nothing
  std::optional<ProgramRequest> program = std::nullopt;  // of our own programs

  // How long after the emulated links had finished the callers were told.
  Nanos late() const { return link_time ? time - *link_time : Nanos{0}; }
};

struct BenchResult {
  std::int64_t ranks = 1;
  double link_bandwidth = 0;  // bytes a second: paced, or the measured goodput; 0: unpaced memory
  std::optional<MeasuredLink> measured;
  std::optional<HostWork> host;  // likewise measured
  std::vector<BenchRow> rows;
};

// Bus bandwidth as nccl-tests defines it: what a link carries, whatever the algorithm. It is 0 for a barrier and for
// one rank, where links carry nothing.
double bus_bandwidth(Collective kind, std::int64_t ranks, Bytes size, Nanos time);

// All ranks call it; all get the same result.
BenchResult run_bench(Communicator& communicator, const BenchOptions& options, bool processes);

// How much of an all_reduce hides behind matrix products on the calling thread.
struct OverlapResult {
  Bytes size;
  Nanos compute, communication, both;  // medians
  double hidden() const {
    return 1 - static_cast<double>((both - compute).value) / static_cast<double>(communication.value);
  }
};
OverlapResult run_overlap(Communicator& communicator, const BenchOptions& options, bool processes);

}  // namespace weft
