// How much of a device's and a link's peak real kernels and transfers reach. There is one set of constants per device;
// a user's own set is a JSON file (docs/profile-format.md).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/machine.hpp"
#include "base/units.hpp"
#include "cluster/cluster.hpp"
#include "collective/carried_program.hpp"
#include "graph/operation.hpp"

namespace weft {

// The efficiency of a collective of this size: bus bandwidth over the link's rate.
struct MeasuredEfficiency {
  Bytes bytes;  // the whole buffer
  double efficiency = 0;
  friend bool operator==(const MeasuredEfficiency&, const MeasuredEfficiency&) = default;
};

struct LinkProfile {
  double efficiency = 0.9;  // of large messages, payload over the link's rate, where nothing was measured
  // By the number of members, ascending in bytes: groups that lie within one domain of this level.
  std::map<std::int64_t, std::vector<MeasuredEfficiency>> measured;

  // The same for all-to-alls, across any number of domains; where empty, all-to-alls are like the others.
  std::map<std::int64_t, std::vector<MeasuredEfficiency>> all_to_all = {};

  // Whole collectives of any group, by kind and by how many domains of the level below it joins (devices, at the
  // innermost level): bus bandwidth over what the links of one such domain carry together. Above 1 where an algorithm
  // moves less than a ring.
  std::map<Collective, std::map<std::int64_t, std::vector<MeasuredEfficiency>>> collectives = {};

  // The most that any size reaches, 1 at most.
  double best() const;
  // Interpolated over the logarithm of size and members; `efficiency` where nothing was measured.
  double at(std::int64_t members, Bytes bytes) const;
  double all_to_all_at(std::int64_t members, Bytes bytes) const;
  // From the collective's own table, or from that of another one with the same steps; none where there is none.
  std::optional<double> collective_at(Collective collective, std::int64_t joined, Bytes bytes) const;
  friend bool operator==(const LinkProfile&, const LinkProfile&) = default;
};

struct DeviceProfile {
  double matrix_efficiency = 0.8;     // of the matrix peak: long products in full tiles, sustained
  double fp8_efficiency = 0.7;        // of the fp8 peak: such products with rounded operands
  double fp4_efficiency = 0.6;        // of the fp4 peak, likewise
  std::int64_t tile_startup = 64;     // what starting and ending a tile costs, as elements of the inner dimension
  bool tiled = true;                  // products are cut into tiles over the compute units, in whole waves
  double batched_efficiency = 0.3;    // of the matrix peak: the score and value products of unfused attention
  double attention_efficiency = 0.5;  // of the matrix peak: inside a fused attention kernel
  double memory_efficiency = 0.8;     // of the memory bandwidth, streaming kernels
  Nanos kernel_gap{5'000};       // ramp-up and drain of a kernel, and small kernels beside it that are not modelled
  Nanos launch{10'000};          // host time to issue one kernel
  Nanos transfer_launch{5'000};  // host time to issue one transfer
  Nanos resync{100'000};         // after a pipeline message: the host waits for it and starts to issue again
  std::map<std::string, LinkProfile, std::less<>> links;  // by level name, e.g. "nvlink"
  // Overheads of a runtime beyond the fields above; zero unless a calibration measured them.
  Nanos operation_overhead{0};  // between two operations of the compute queue
  Nanos handoff{0};  // of a transfer: from ready to its first message plus from its last message to the waiting thread
  Nanos wake{0};     // how much longer a transfer takes where compute waits for it: threads wake, ranks come late
  Nanos message_overhead{0};  // of a message of a simulated program (ProgramTimeOptions::per_message)
  Bandwidth reduce{};         // at which a rank reduces what arrived (ProgramTimeOptions::reduce); 0: on the way
  // Interference (cluster/device.hpp); where stated, it replaces the device's.
  std::optional<double> compute_slowdown, transfer_slowdown;
  std::optional<double> further_slowdown;  // of compute, by every transfer beside it but the first
  std::optional<double> waiting_slowdown;  // of compute, by a transfer beside it that waits for its other ranks
  std::optional<double> copy_slowdown;  // of compute and of the transfer, where copy engines move it (cost/movers.hpp)
  // Measured times of operations with all ranks busy, launch included; positive. If an operation, or one of its kind
  // and phase, is listed, the figures above are only used for scaling (cost/operation_time.hpp).
  std::map<OpKey, Nanos> operations;
  friend bool operator==(const DeviceProfile&, const DeviceProfile&) = default;
};

// How much more than a balanced load a run's gates gave the fullest rank, for which the others wait.
struct ExpertLoad {
  double computed = 1;   // rows that its experts work on
  double exchanged = 1;  // rows that leave it, or come to it from others
  double filled = 1;     // the part of the slots that held rows when whole operations of experts were measured
  friend bool operator==(const ExpertLoad&, const ExpertLoad&) = default;
};

// How long the transport library's own collectives (`native`) took on the ranks of a run.
struct LibraryProfile {
  struct Group {
    Collective collective = Collective::all_reduce;
    std::int64_t members = 0;
    friend auto operator<=>(const Group&, const Group&) = default;
  };
  struct Point {
    Bytes bytes;          // the whole buffer
    Nanos time;           // one after the other
    Nanos after_pause{};  // the same where its links had been idle before; 0: was not measured
    friend bool operator==(const Point&, const Point&) = default;
  };
  std::map<Group, std::vector<Point>> measured;  // ascending in bytes
  // How many times the bytes of one several collectives move that run at once: 1 where one fills the links.
  double at_once = 1;
  std::int32_t thread_blocks = 0;  // of a GPU, that worked on each when it was measured; 0: the library's choice
  bool always = false;  // a user's wish, not stored in files: choose it wherever it was measured, whatever it takes

  // Interpolates linearly between the points, extends the last line, and uses the first point's time below it. Returns
  // nothing where no such group was measured.
  std::optional<Nanos> time(Collective collective, std::int64_t members, Bytes bytes) const;
  // By how much longer it takes where its links had been idle before.
  Nanos added_by_pause(Collective collective, std::int64_t members, Bytes bytes) const;
  // What the smallest measured size took. There must be one.
  Nanos least_time(Collective collective, std::int64_t members) const;
  friend bool operator==(const LibraryProfile&, const LibraryProfile&) = default;
};

// The link of every rank, as the library's collectives show it: no measured sizes moved their bytes faster, at once or
// one after the other.
struct LibraryLink {
  Bandwidth bandwidth;
  Nanos latency;  // of one of the steps that a ring of the group takes
};
// Returns nothing where nothing was measured.
std::optional<LibraryLink> link_of(const LibraryProfile& library);

struct Framework;  // cost/framework.hpp

// What the time of a library's collective is made of, on links whose rate is nominal.
enum class CollectiveModel : std::uint8_t {
  efficiency,  // one efficiency of a level, or a table of them by size
  nccl         // the algorithm and protocol that NCCL's tuning model chooses (cost/nccl_model.hpp)
};

// Who may move the bytes of a library's collectives inside a node.
enum class MoverWish : std::uint8_t {
  library,  // the library's own number of thread blocks
  chosen    // policy weft decides for every transfer (cost/movers.hpp)
};

class ProgramStore;  // cost/program_store.hpp

struct Profile {
  std::map<std::string, DeviceProfile, std::less<>> devices;       // by Device::name
  std::map<std::string, LinkProfile, std::less<>> links;           // by level name; a device's own come first
  std::optional<MachineFacts> machine{};                           // where and how it was measured, if it was
  std::optional<ExpertLoad> expert_load{};                         // none: loads are random (cost/expert_sizes.cpp)
  CollectiveModel collective_model = CollectiveModel::efficiency;  // a user's wish, not stored in files
  MoverWish movers = MoverWish::library;                           // a user's wish, not stored in files
  LibraryProfile library{};                                        // empty: plans leave the library's collectives out
  std::vector<ProgramRef> programs{};            // a user's wish, not stored in files: they carry out whatever they fit
  std::shared_ptr<ProgramStore> store{};         // where programs that were made for a topology are kept; null: nowhere
  std::shared_ptr<const Framework> framework{};  // whose kernels and host run the step; shared by copies of a profile

  const DeviceProfile& device(std::string_view name) const;  // "default" where it has none
  // Applies to nominal links only: paced and measured links reach their stated rate.
  const LinkProfile& link(std::string_view device, std::string_view level, LinkTiming timing) const;
  friend bool operator==(const Profile&, const Profile&) = default;
};

Profile default_profile();

// Removes fixed costs of kernels and transfers, tiles of products and efficiencies of links, so that closed forms hold.
void remove_overheads(Profile& profile);

}  // namespace weft
