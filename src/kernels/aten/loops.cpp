#include "kernels/aten/loops.hpp"

#include <algorithm>
#include <array>
#include <vector>

namespace weft::aten {
namespace {

thread_local int threads_of_caller = 1;

}  // namespace

void use_loop_threads(int threads) {
  threads_of_caller = threads;
}

void call_in_ranges(std::int64_t count, std::int64_t grain, const RangeBody& body) {
  const std::int64_t pieces = (count + grain - 1) / grain;
  const std::int64_t threads = std::min<std::int64_t>(threads_of_caller, pieces);
  if (threads <= 1) {
    if (count > 0) body(0, count);
    return;
  }
  const std::int64_t share = (pieces + threads - 1) / threads * grain;
#pragma omp parallel for num_threads(static_cast<int>(threads)) schedule(static, 1)
  for (std::int64_t thread = 0; thread < threads; ++thread) {
    const std::int64_t begin = thread * share;
    const std::int64_t end = std::min(count, begin + share);
    if (begin < end) body(begin, end);
  }
}

std::span<float> scratch(int slot, std::int64_t size) {
  thread_local std::array<std::vector<float>, kScratchSlots> memory;
  std::vector<float>& floats = memory[slot];
  if (floats.size() < static_cast<std::size_t>(size)) floats.resize(size);
  return {floats.data(), static_cast<std::size_t>(size)};
}

void sum_rows(const Matrix& x, float* sums, Into into) {
  if (into == Into::overwrite) std::fill_n(sums, x.columns, 0.0F);
  in_ranges(x.columns, 256, [&](std::int64_t begin, std::int64_t end) {
    const std::span<float> block = scratch(0, end - begin);
    for (std::int64_t first = 0; first < x.rows; first += kSumBlock) {
      std::ranges::fill(block, 0.0F);
      for (std::int64_t r = first; r < std::min(x.rows, first + kSumBlock); ++r) {
        const float* values = row(x, r) + begin;
        for (std::size_t c = 0; c < block.size(); ++c) block[c] += values[c];
      }
      for (std::size_t c = 0; c < block.size(); ++c) sums[begin + static_cast<std::int64_t>(c)] += block[c];
    }
  });
}

}  // namespace weft::aten
