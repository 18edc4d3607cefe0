#include "cost/nccl_model.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "base/enum_name.hpp"

namespace weft {
namespace {

constexpr std::size_t kAlgorithms = 5, kProtocols = 3;
using ByProtocol = std::array<double, kProtocols>;
using ByAlgorithm = std::array<ByProtocol, kAlgorithms>;

// Microseconds, by algorithm (ring, tree, NVLS, NVLSTree, PAT) and protocol (LL, LL128, Simple): of a call, of a step
// over NVLink, of a step between nodes.
constexpr ByAlgorithm kBase{{{6.6, 14.0, 8.4}, {6.8, 14.0, 8.4}, {0, 0, 0}, {0, 0, 0}, {8.0, 8.0, 8.0}}};
constexpr ByAlgorithm kInside{{{0.6, 1.9, 3.4}, {0.6, 1.25, 4.0}, {0, 0, 25}, {0, 0, 25}, {0, 0, 4.0}}};
constexpr ByAlgorithm kAcross{{{2.7, 4.0, 14.0}, {5.0, 8.5, 14.0}, {0, 0, 18}, {0, 0, 20.9}, {0, 0, 14}}};

// By GPU: GB/s that the LL protocol reaches at most, on one node, on two and on more; and microseconds that the
// processor takes to post a step of a ring between nodes, thrice in the Simple protocol. What lies between nodes NCCL
// says by processor; those of NVIDIA's own machines are taken (AMD's in DGX A100, else Intel's or NVIDIA's).
enum class Generation : std::uint8_t { volta, ampere, hopper, blackwell };
struct HostLimits {
  double most_ll_inside, most_ll_on_two, most_ll_on_many, post;
};
constexpr std::array<HostLimits, 4> kHostLimits{
    {{39.0, 39.0, 20.4, 1.0}, {87.7, 22.5, 19.0, 2.0}, {141.0, 39.0, 20.4, 1.0}, {282.0, 39.0, 20.4, 1.0}}};

// Of the buffer in powers of two from 64 bytes: trees fall short of the model at medium sizes, and so do NVLSTrees of
// Blackwell beside x86 processors.
constexpr std::array<std::array<double, 24>, kProtocols> kTreeCorrection{
    {{1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1},
     {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1},
     {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9}}};

// Rings of all-reduces between nodes wait for each other at medium and large sizes.
constexpr double kRingPlateau = 1.4, kRingPlateauVolta = 1.9;
// All-reduces in the switch: 458 GB/s of bus bandwidth on 8 H100 (the Ultra-Scale sweep) where rings reach 360.
constexpr double kSwitchOverRing = 1.27;

std::optional<Generation> generation_of(std::string_view device) {
  if (device.starts_with("v100")) return Generation::volta;
  if (device.starts_with("a100")) return Generation::ampere;
  if (device.starts_with("h100") || device.starts_with("h200") || device.starts_with("h800")) return Generation::hopper;
  if (device.starts_with("b200") || device.starts_with("gb200") || device.starts_with("b300") ||
      device.starts_with("gb300")) {
    return Generation::blackwell;
  }
  return std::nullopt;
}

std::int64_t floor_log2(std::int64_t n) {
  return n <= 1 ? 0 : std::bit_width(static_cast<std::uint64_t>(n)) - 1;
}

struct NcclCall {
  Collective collective;
  NcclGroup group;
  Generation generation;
  bool grace;  // the processor is NVIDIA's own
  Bytes bytes;
  NcclRates rates;

  bool all_reduce() const { return collective == Collective::all_reduce; }
  double ring_steps() const { return static_cast<double>((all_reduce() ? 2 : 1) * (group.ranks - 1)); }
  const HostLimits& limits() const { return kHostLimits[static_cast<std::size_t>(generation)]; }
  double per_node() const { return static_cast<double>(group.ranks) / static_cast<double>(group.nodes); }
};

bool is_allowed(const NcclCall& call, NcclAlgorithm algorithm, NcclProtocol protocol) {
  using enum NcclAlgorithm;
  using enum NcclProtocol;
  const bool has_switch = call.generation >= Generation::hopper && call.per_node() > 1;
  switch (algorithm) {
    case ring:
      return true;
    case tree:
      return call.all_reduce();
    case nvls:
      return has_switch && protocol == simple && call.group.nodes == 1;
    case nvls_tree:
      return has_switch && protocol == simple && call.group.nodes > 1 && call.all_reduce();
    case pat:
      return protocol == simple && !call.all_reduce() && call.group.nodes == call.group.ranks;
  }
  return false;
}

// How much faster the buffer moves than around a ring of the Simple protocol. Trees send the whole buffer where a ring
// leaves out a rank's own part, and NCCL counts gathers other than rings so too.
double bandwidth_share(const NcclCall& call, NcclAlgorithm algorithm, NcclProtocol protocol) {
  using enum NcclAlgorithm;
  using enum NcclProtocol;
  const bool inside = call.group.nodes == 1;
  const double ring_rate = call.ring_steps() / static_cast<double>(call.group.ranks) *
                           static_cast<double>(call.bytes.value) / std::max(1e-12, call.rates.ring_seconds);
  const HostLimits& limits = call.limits();
  const double most_ll = 1e9 / ring_rate *
                         (inside                  ? limits.most_ll_inside
                          : call.group.nodes == 2 ? limits.most_ll_on_two
                                                  : limits.most_ll_on_many);
  const double whole_over_ring = static_cast<double>(call.group.ranks - 1) / static_cast<double>(call.group.ranks);
  if (algorithm == ring) return protocol == ll ? std::min(0.5, most_ll) : protocol == ll128 ? 0.92 : 1.0;
  if (algorithm == tree) {
    const double simple_share = 0.92;
    if (protocol == ll) return whole_over_ring * std::min(simple_share / 3.8, most_ll);
    return whole_over_ring * simple_share * (protocol == simple ? 1 : inside ? 7.0 / 9.0 : 120.0 / 128.0);
  }
  if (algorithm == nvls) {
    const double others = (call.per_node() - 1) / call.per_node();
    return call.all_reduce() ? kSwitchOverRing : kSwitchOverRing / 2 * others * whole_over_ring;
  }
  // Up and down a tree of two nodes the links carry half of what a ring sends.
  if (algorithm == nvls_tree) return call.group.nodes == 2 ? 2.0 : 1.0;
  return 0.75 * whole_over_ring;
}

double correction(const NcclCall& call, NcclAlgorithm algorithm, NcclProtocol protocol) {
  const std::int64_t size = floor_log2(call.bytes.value >> 6);
  const bool tree = algorithm == NcclAlgorithm::tree && size < 23;
  const bool blackwell_tree =
      algorithm == NcclAlgorithm::nvls_tree && call.generation == Generation::blackwell && !call.grace && size < 24;
  if (call.bytes.value < 64 || (!tree && !blackwell_tree)) return 1;
  return kTreeCorrection[static_cast<std::size_t>(protocol)][static_cast<std::size_t>(size)];
}

double latency_us(const NcclCall& call, NcclAlgorithm algorithm, NcclProtocol protocol) {
  using enum NcclAlgorithm;
  using enum NcclProtocol;
  const auto a = static_cast<std::size_t>(algorithm), p = static_cast<std::size_t>(protocol);
  const auto nodes = static_cast<double>(call.group.nodes);
  const double network = seconds(call.rates.network) * 1e6;
  // Where a node has one rank nothing hides the network, and trees' figures hold.
  const double across = (call.per_node() == 1 ? kAcross[static_cast<std::size_t>(tree)][p] : kAcross[a][p]) + network +
                        (protocol == simple ? network : 0);
  const double depth = static_cast<double>(floor_log2(call.group.nodes));
  switch (algorithm) {
    case ring: {
      const double crossing = (call.all_reduce() ? 2 : 1) * (nodes - 1);
      const double post = call.group.nodes > 1 ? call.limits().post * (protocol == simple ? 3 : 1) : 0;
      const double inside = std::max(kInside[a][p], post);
      const double all = kBase[a][p] + (call.ring_steps() - crossing) * inside + crossing * across;
      const bool waits = protocol == simple && call.group.nodes > 1 && call.all_reduce();
      return all * (!waits ? 1 : call.generation == Generation::volta ? kRingPlateauVolta : kRingPlateau);
    }
    case tree:
      return kBase[a][p] + 2 * ((call.per_node() - 1) * kInside[a][p] + depth * across);
    case nvls:
      return kInside[a][p];
    case nvls_tree:
      return kInside[a][p] + 2 * depth * across;
    case pat:
      return kBase[a][p] + depth * across / 3.5 + 2.8 * static_cast<double>(call.group.ranks);
  }
  return 0;
}

}  // namespace

std::string_view name_of(NcclAlgorithm algorithm) {
  static constexpr auto kNames = std::to_array<std::string_view>({"ring", "tree", "NVLS", "NVLSTree", "PAT"});
  return enum_name(kNames, algorithm);
}

std::string_view name_of(NcclProtocol protocol) {
  static constexpr auto kNames = std::to_array<std::string_view>({"LL", "LL128", "Simple"});
  return enum_name(kNames, protocol);
}

std::optional<NcclChoice> choose_nccl(Collective collective, NcclGroup group, std::string_view device, Bytes bytes,
                                      NcclRates rates) {
  const auto generation = generation_of(device);
  using enum Collective;
  if (!generation || (collective != all_reduce && collective != all_gather && collective != reduce_scatter)) {
    return std::nullopt;
  }
  const NcclCall call{collective, group, *generation, device.starts_with("gb"), bytes, rates};
  std::optional<NcclChoice> best;
  for (std::size_t a = 0; a < kAlgorithms; ++a) {
    for (std::size_t p = 0; p < kProtocols; ++p) {
      const auto algorithm = static_cast<NcclAlgorithm>(a);
      const auto protocol = static_cast<NcclProtocol>(p);
      if (!is_allowed(call, algorithm, protocol)) continue;
      const double share = bandwidth_share(call, algorithm, protocol) * correction(call, algorithm, protocol);
      const NcclChoice choice{algorithm, protocol, nanos_from_seconds(latency_us(call, algorithm, protocol) * 1e-6),
                              rates.ring_seconds / share};
      if (!best || choice.seconds() < best->seconds()) best = choice;
    }
  }
  return best;
}

}  // namespace weft
