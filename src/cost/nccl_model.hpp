// Which algorithm and protocol NCCL chooses for a collective, and how long its own tuning model says that it takes. The
// latencies and the shares of the bandwidth are those of NVIDIA/nccl, src/graph/tuning.cc (June 2026); what rings reach
// on the links is the profile's.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/units.hpp"
#include "collective/collective.hpp"

namespace weft {

enum class NcclAlgorithm : std::uint8_t { ring, tree, nvls, nvls_tree, pat };
enum class NcclProtocol : std::uint8_t { ll, ll128, simple };
std::string_view name_of(NcclAlgorithm algorithm);
std::string_view name_of(NcclProtocol protocol);

struct NcclGroup {
  std::int64_t ranks = 1, nodes = 1;
};

struct NcclRates {
  double ring_seconds = 0;  // that the bytes of a ring take in the Simple protocol
  Nanos network{0};         // latency of a message between nodes, beside what NCCL's own code takes
};

struct NcclChoice {
  NcclAlgorithm algorithm = NcclAlgorithm::ring;
  NcclProtocol protocol = NcclProtocol::simple;
  Nanos latency{0};
  double moving_seconds = 0;
  double seconds() const { return static_cast<double>(latency.value) * 1e-9 + moving_seconds; }
};

// The fastest of those that NCCL allows for an all_reduce, all_gather or reduce_scatter on GPUs with this name; none
// for other collectives and devices that are no NVIDIA GPU.
std::optional<NcclChoice> choose_nccl(Collective collective, NcclGroup group, std::string_view device, Bytes bytes,
                                      NcclRates rates);

}  // namespace weft
