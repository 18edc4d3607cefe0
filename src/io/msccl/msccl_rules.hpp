// What the MSCCL runtime calls things and how much of each it takes; for the reader and the writer of its files.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "collective/program.hpp"

namespace weft::msccl {

constexpr std::int64_t kMaxBlocks = 216;  // thread blocks of a GPU
constexpr std::int64_t kMaxSteps = 256;   // of a thread block
constexpr std::int64_t kMaxCount = 71;    // chunks of a step
// Of NCCL underneath, which files seldom come near to; only what we write is held to them.
constexpr std::int64_t kMaxChannels = 32;
constexpr std::int64_t kMaxPeersPerChannel = 32;
constexpr std::size_t kMaxNameLength = 255;

// Chunks of all buffers of all GPUs: far above any real file, and what a proof of the program fits in memory for.
constexpr std::int64_t kMaxTotalChunks = std::int64_t{1} << 22;
constexpr std::int64_t kMaxRanks = 4096;

// In the order of InstructionKind.
inline constexpr std::array<std::string_view, 9> kStepTypes = {"s",    "r",   "rcs", "rrs", "rrc",
                                                               "rrcs", "cpy", "re",  "nop"};
// In the order of BufferKind.
inline constexpr std::array<std::string_view, 3> kBuffers = {"i", "o", "s"};
inline constexpr std::array<std::string_view, 3> kProtocols = {"Simple", "LL128", "LL"};

// MSCCL says reduce_scatter; RCCL and Azure's executor say reducescatter.
inline constexpr std::array<std::pair<std::string_view, Collective>, 7> kCollectives = {{
    {"allreduce", Collective::all_reduce},
    {"allgather", Collective::all_gather},
    {"reduce", Collective::reduce},
    {"broadcast", Collective::broadcast},
    {"alltoall", Collective::all_to_all},
    {"reduce_scatter", Collective::reduce_scatter},
    {"reducescatter", Collective::reduce_scatter},
}};

}  // namespace weft::msccl
