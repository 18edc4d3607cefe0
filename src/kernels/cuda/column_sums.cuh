// Sums over the rows of a matrix, column by column: first of slabs of rows, then of the slabs; always in the same
// order.
#pragma once

#include "kernels/cuda/launch.cuh"

namespace weft::cuda {

inline constexpr int kSumWidth = 32, kSumLanes = 8;  // chunks of columns, and rows at a time, of a block
inline constexpr std::int64_t kMaxSlabs = 128;

// add(row, column, count, sums) adds what a chunk of a row gives to each of N sums.
template <int N, class Add>
__global__ void __launch_bounds__(kSumWidth* kSumLanes)
    slab_sums_kernel(Extent extent, std::int64_t slab_rows, float* partial, Add add) {
  __shared__ Values of_lanes[kSumLanes][kSumWidth];
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * kSumWidth + threadIdx.x) * kChunk;
  const int count =
      static_cast<int>(max(min(static_cast<std::int64_t>(kChunk), extent.columns - column), std::int64_t{0}));
  const std::int64_t begin = blockIdx.y * slab_rows, end = min(extent.rows, begin + slab_rows);
  Values sums[N] = {};
  if (count > 0)
#pragma unroll 4
    for (std::int64_t row = begin + threadIdx.y; row < end; row += kSumLanes) add(row, column, count, sums);
  for (int n = 0; n < N; ++n) {
    of_lanes[threadIdx.y][threadIdx.x] = sums[n];
    __syncthreads();
    if (threadIdx.y == 0) {
      for (int lane = 1; lane < kSumLanes; ++lane)
#pragma unroll
        for (int i = 0; i < kChunk; ++i) sums[n].v[i] += of_lanes[lane][threadIdx.x].v[i];
      for (int i = 0; i < count; ++i) partial[(blockIdx.y * N + n) * extent.columns + column + i] = sums[n].v[i];
    }
    __syncthreads();
  }
}

template <int N>
struct SumTargets {
  Operand vectors[N];  // one without data is not wanted
};
template <int N>
__global__ void slabs_kernel(std::int64_t columns, std::int64_t slabs, const float* partial, SumTargets<N> targets,
                             bool adds) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  for (int n = 0; n < N; ++n) {
    if (targets.vectors[n].data == nullptr) continue;
    float sum = 0;
    for (std::int64_t slab = 0; slab < slabs; ++slab) sum += partial[(slab * N + n) * columns + column];
    if (adds) sum += load_one(targets.vectors[n], 0, column);
    store_one(targets.vectors[n], 0, column, sum);
  }
}

template <int N, class Add>
void column_sums(Context& context, Extent extent, const SumTargets<N>& targets, Into into, const Add& add) {
  if (extent.columns <= 0) return;
  const std::int64_t width = ceil_div(extent.columns, kSumWidth * kChunk);
  const std::int64_t wanted = std::clamp<std::int64_t>(ceil_div(4 * context.processors(), width), 1, kMaxSlabs);
  const std::int64_t slab_rows = std::max<std::int64_t>(ceil_div(extent.rows, wanted), kSumLanes);
  const std::int64_t slabs = std::max<std::int64_t>(ceil_div(extent.rows, slab_rows), 1);
  float* const partial = context.scratch<float>(Scratch::partial_sums, slabs * N * extent.columns);
  slab_sums_kernel<N><<<dim3(static_cast<unsigned>(width), static_cast<unsigned>(slabs)), dim3(kSumWidth, kSumLanes), 0,
                        context.current_stream()>>>(extent, slab_rows, partial, add);
  slabs_kernel<N><<<static_cast<unsigned>(ceil_div(extent.columns, kThreads)), kThreads, 0, context.current_stream()>>>(
      extent.columns, slabs, partial, targets, into == Into::add);
  check(cudaGetLastError(), "summing rows");
}

}  // namespace weft::cuda
