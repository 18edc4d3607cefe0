#include "cost/movers.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "cluster/device_kind.hpp"

namespace weft {
namespace {

constexpr double kGibibytesPerSecond = 1024.0 * 1024 * 1024;
constexpr double kTolerance = 1.025;        // of the time with the most blocks
constexpr double kPenaltyOfABlock = 0.025;  // of the time, when kernels are compared
constexpr double kLowLatencyBusFactor = 9;  // kernels with flags beside the data: twice the bytes and more work
constexpr double kLowLatencyMulticast = 1.1;
constexpr std::int32_t kMostBlocks = 64;  // NCCL's channels
constexpr double kMicrosecond = 1e-6;

struct Kernel {
  double bus_bytes = 0;
  double latency_s = 0;
  double block_rate = 0, peak = 0;  // bytes a second; a block's with its multicast
  double softness = 0;              // a block's rate without it
  std::int32_t most_blocks = kMostBlocks;
  bool multicast = false;
};

// min(x, ceiling) with a soft corner.
double soft_min(double x, double ceiling, double softness) {
  return ceiling - softness * std::log1p((std::exp(ceiling / softness) - 1) * std::exp(-x / softness));
}

// max(0, x) with a soft corner.
double soft_plus(double x) {
  return x >= 100 ? x : std::log1p(std::exp(x));
}

double seconds_with(const Kernel& kernel, std::int32_t blocks) {
  const double rate = soft_min(blocks * kernel.block_rate, kernel.peak, kernel.softness);
  return kernel.latency_s + kMicrosecond * soft_plus(kernel.bus_bytes / rate / kMicrosecond - 1);
}

struct Rates {
  double low_latency, latency;        // of the start: kernels with flags beside the data, the others
  double block, peak, multicast_sum;  // a block, all of them, and an all_reduce by multicast
};

Rates rates_of(Collective collective, GpuGeneration generation) {
  const bool sums = collective == Collective::all_reduce;
  Rates rates{};
  if (generation == GpuGeneration::blackwell) {
    const bool gathers = collective == Collective::all_gather;
    rates = {gathers ? 8.5 : 11, sums ? 19.5 : 13, 55, 600, 1000};
  } else {
    rates = {4.5, 7.8, sums ? 65.0 : 44.0, 320, 480};
  }
  rates.low_latency *= kMicrosecond;
  rates.latency *= kMicrosecond;
  for (double* rate : {&rates.block, &rates.peak, &rates.multicast_sum}) *rate *= kGibibytesPerSecond;
  return rates;
}

std::vector<Kernel> kernels_of(const NodeCollective& what, GpuGeneration generation) {
  const auto n = static_cast<double>(what.ranks), whole = static_cast<double>(what.bytes.value);
  const bool sums = what.collective == Collective::all_reduce;
  if (!sums && what.collective != Collective::all_gather && what.collective != Collective::reduce_scatter) return {};
  const Rates rates = rates_of(what.collective, generation);
  const double to_others = (sums ? 2 : 1) * whole * (n - 1) / n;
  std::vector<Kernel> kernels{
      {.bus_bytes = (sums ? n : 1) * whole * kLowLatencyBusFactor,
       .latency_s = rates.low_latency,
       .block_rate = rates.block,
       .peak = rates.peak,
       .softness = rates.block},
      {.bus_bytes = to_others,
       .latency_s = rates.latency,
       .block_rate = rates.block,
       .peak = rates.peak,
       .softness = rates.block},
  };
  if (generation != GpuGeneration::ampere && what.ranks > 2) {
    if (what.collective != Collective::reduce_scatter) {
      Kernel flags = kernels.front();
      flags.block_rate *= kLowLatencyMulticast;
      flags.multicast = true;
      kernels.push_back(flags);
    }
    const std::int64_t shared = generation == GpuGeneration::blackwell ? 32 : 16;
    kernels.push_back({.bus_bytes = sums ? whole / n + whole : to_others,
                       .latency_s = rates.latency,
                       .block_rate = rates.block * (sums ? n : 0.55 * n),
                       .peak = sums ? rates.multicast_sum : rates.peak,
                       .softness = rates.block,
                       .most_blocks = static_cast<std::int32_t>((shared + what.ranks - 1) / what.ranks),
                       .multicast = true});
  }
  return kernels;
}

MoverTime time_of(const Kernel& kernel, std::int32_t blocks) {
  return {kernel.latency_s, seconds_with(kernel, blocks) - kernel.latency_s};
}

std::int32_t fewest_blocks(const Kernel& kernel) {
  const double best = seconds_with(kernel, kernel.most_blocks);
  for (std::int32_t blocks = 1; blocks < kernel.most_blocks; ++blocks) {
    if (seconds_with(kernel, blocks) <= kTolerance * best) return blocks;
  }
  return kernel.most_blocks;
}

}  // namespace

std::optional<GpuGeneration> gpu_generation(std::string_view name) {
  const std::string_view device = kind_of_device(name);
  if (device.starts_with("a100")) return GpuGeneration::ampere;
  for (const std::string_view hopper : {"h100", "h200", "h800"}) {
    if (device == hopper) return GpuGeneration::hopper;
  }
  for (const std::string_view blackwell : {"b200", "gb200", "gb300"}) {
    if (device == blackwell) return GpuGeneration::blackwell;
  }
  return std::nullopt;
}

std::optional<SymmetricKernel> symmetric_kernel(const NodeCollective& what, GpuGeneration generation) {
  std::optional<SymmetricKernel> best;
  double least = std::numeric_limits<double>::infinity();
  for (const Kernel& kernel : kernels_of(what, generation)) {
    const std::int32_t blocks = fewest_blocks(kernel);
    const MoverTime time = time_of(kernel, blocks);
    const double penalized = time.seconds() * (1 + kPenaltyOfABlock * blocks);
    if (penalized >= least) continue;
    least = penalized;
    best = {blocks, kernel.multicast, time};
  }
  return best;
}

std::optional<MoverTime> time_with_blocks(const NodeCollective& what, GpuGeneration generation,
                                          std::int32_t thread_blocks) {
  std::optional<MoverTime> best;
  for (const Kernel& kernel : kernels_of(what, generation)) {
    const MoverTime time = time_of(kernel, std::min(thread_blocks, kernel.most_blocks));
    if (!best || time.seconds() < best->seconds()) best = time;
  }
  return best;
}

// Copies to every other rank, outside of CUDA graphs.
MoverTime copy_engine_time(const NodeCollective& what, GpuGeneration generation) {
  const bool blackwell = generation == GpuGeneration::blackwell;
  const auto n = static_cast<double>(what.ranks);
  const double start = blackwell ? 32.04 + 0.130 * n : 17.50 + 1.957 * n;
  const double rate = blackwell ? 779e9 : 392e9;
  return {start * kMicrosecond, static_cast<double>(what.bytes.value) * (n - 1) / n / rate};
}

std::int32_t library_blocks(GpuGeneration generation) {
  return generation == GpuGeneration::blackwell ? 16 : 24;
}

double slowdown_with_blocks(double library, double copies, std::int32_t thread_blocks, std::int32_t of_library) {
  const double by_memory = std::min(library, copies);
  return by_memory + (library - by_memory) * thread_blocks / of_library;
}

}  // namespace weft
