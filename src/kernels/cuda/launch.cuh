// Operands as kernels see them, eight elements at a time, and how kernels are started: over chunks of a matrix, or a
// block of threads for every row.
#pragma once

#include <cuda_bf16.h>

#include <algorithm>
#include <initializer_list>

#include "kernels/cuda/context.hpp"
#include "kernels/matrix.hpp"

namespace weft::cuda {

inline constexpr int kChunk = 8;  // elements that a thread takes at once: 16 bytes of bf16
inline constexpr int kThreads = 256;

struct Operand {
  std::byte* data = nullptr;
  std::int64_t stride = 0;  // bytes
  bool bf16 = false;
  bool aligned = false;  // chunks may be read in words of 16 bytes
};
inline Operand operand(const Matrix& x) {
  WEFT_CHECK(x.data.type == ElementType::fp32 || x.data.type == ElementType::bf16);
  const bool aligned = (reinterpret_cast<std::uintptr_t>(x.data.address) |
                        (x.rows > 1 ? static_cast<std::uintptr_t>(x.row_stride.value) : 0)) %
                           16 ==
                       0;
  return {x.data.address, x.row_stride.value, x.data.type == ElementType::bf16, aligned};
}
inline Operand operand(const Vector& x) {
  return operand(Matrix::dense(x.data, 1, x.size));
}

inline float* floats(const Vector& x) {
  WEFT_CHECK(x.empty() || x.data.type == ElementType::fp32);
  return reinterpret_cast<float*>(x.data.address);
}

template <class T>
__device__ T value_of(const HostValue<T>& x) {
  return x.recorded != nullptr ? *x.recorded : x.value;
}

struct Values {
  float v[kChunk];
};

__device__ inline float load_one(const Operand& x, std::int64_t row, std::int64_t column) {
  const std::byte* const first = x.data + row * x.stride;
  return x.bf16 ? __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(first)[column])
                : reinterpret_cast<const float*>(first)[column];
}
__device__ inline void store_one(const Operand& x, std::int64_t row, std::int64_t column, float value) {
  std::byte* const first = x.data + row * x.stride;
  if (x.bf16)
    reinterpret_cast<__nv_bfloat16*>(first)[column] = __float2bfloat16(value);
  else
    reinterpret_cast<float*>(first)[column] = value;
}

// `count` elements from `column`, which is a multiple of kChunk where the operand is aligned; zeros behind them.
__device__ inline Values load(const Operand& x, std::int64_t row, std::int64_t column, int count = kChunk) {
  Values out;
  if (count == kChunk && x.aligned) {
    if (x.bf16) {
      const uint4 words = *reinterpret_cast<const uint4*>(x.data + row * x.stride + column * 2);
      const unsigned in[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        out.v[2 * i] = __uint_as_float(in[i] << 16);
        out.v[2 * i + 1] = __uint_as_float(in[i] & 0xffff0000U);
      }
    } else {
      const float4* const in = reinterpret_cast<const float4*>(x.data + row * x.stride + column * 4);
      const float4 a = in[0], b = in[1];
      out = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    }
    return out;
  }
#pragma unroll
  for (int i = 0; i < kChunk; ++i) out.v[i] = i < count ? load_one(x, row, column + i) : 0.0F;
  return out;
}

__device__ inline unsigned two_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&pair);
}
__device__ inline void store(const Operand& x, std::int64_t row, std::int64_t column, const Values& in,
                             int count = kChunk) {
  const float* v = in.v;
  if (count == kChunk && x.aligned) {
    if (x.bf16) {
      *reinterpret_cast<uint4*>(x.data + row * x.stride + column * 2) = {two_bf16(v[0], v[1]), two_bf16(v[2], v[3]),
                                                                         two_bf16(v[4], v[5]), two_bf16(v[6], v[7])};
    } else {
      float4* const out = reinterpret_cast<float4*>(x.data + row * x.stride + column * 4);
      out[0] = {v[0], v[1], v[2], v[3]};
      out[1] = {v[4], v[5], v[6], v[7]};
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kChunk; ++i)
    if (i < count) store_one(x, row, column + i, v[i]);
}

struct Extent {
  std::int64_t rows = 0, columns = 0;
  bool empty() const { return rows <= 0 || columns <= 0; }
};
// One long row where the rows of all operands follow each other without gaps.
inline Extent flat_extent(std::int64_t rows, std::int64_t columns, std::initializer_list<Operand> operands) {
  for (const Operand& x : operands)
    if (x.data != nullptr && x.stride != columns * (x.bf16 ? 2 : 4)) return {rows, columns};
  return {1, rows * columns};
}

template <class Body>
__global__ void __launch_bounds__(kThreads) chunk_kernel(Extent extent, Body body) {
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kChunk;
  if (column >= extent.columns) return;
  const int count = static_cast<int>(min(static_cast<std::int64_t>(kChunk), extent.columns - column));
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * blockDim.y;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * blockDim.y + threadIdx.y; row < extent.rows;
       row += step)
    body(row, column, count);
}

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// body(row, column, count) for every chunk, in any order.
template <class Body>
void for_chunks(Context& context, Extent extent, const Body& body) {
  if (extent.empty()) return;
  const std::int64_t chunks = ceil_div(extent.columns, kChunk);
  unsigned width = 1;
  while (width < kThreads && width < chunks) width *= 2;
  const dim3 threads(width, kThreads / width);
  const dim3 blocks(static_cast<unsigned>(ceil_div(chunks, width)),
                    static_cast<unsigned>(std::min<std::int64_t>(ceil_div(extent.rows, threads.y), 65535)));
  chunk_kernel<<<blocks, threads, 0, context.current_stream()>>>(extent, body);
  check(cudaGetLastError(), "starting a kernel");
}

template <class Body>
__global__ void row_kernel(Body body) {
  body(static_cast<std::int64_t>(blockIdx.x));
}

// body(row), by a block of threads together; as many as a row of `columns` has chunks, at most kMaxRowThreads.
inline constexpr int kMaxRowThreads = 512;
template <class Body>
void for_rows(Context& context, std::int64_t rows, std::int64_t columns, const Body& body) {
  if (rows <= 0) return;
  const auto threads = std::clamp<std::int64_t>(ceil_div(ceil_div(columns, kChunk), 32) * 32, 32, kMaxRowThreads);
  row_kernel<<<static_cast<unsigned>(rows), static_cast<unsigned>(threads), 0, context.current_stream()>>>(body);
  check(cudaGetLastError(), "starting a kernel");
}

// The values of all threads of a block joined, for every thread; in a fixed order, so the bits are always the same.
template <class T, class Join>
__device__ T block_reduce(T value, Join join) {
  __shared__ T of_warp[32];
  for (int offset = 16; offset > 0; offset /= 2) value = join(value, __shfl_xor_sync(0xffffffffU, value, offset));
  const unsigned warp = threadIdx.x / 32, warps = (blockDim.x + 31) / 32;
  if (threadIdx.x % 32 == 0) of_warp[warp] = value;
  __syncthreads();
  value = of_warp[0];
  for (unsigned w = 1; w < warps; ++w) value = join(value, of_warp[w]);
  __syncthreads();
  return value;
}
struct Add {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Largest {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
template <class T>
__device__ T block_sum(T value) {
  return block_reduce(value, Add{});
}
__device__ inline float block_max(float value) {
  return block_reduce(value, Largest{});
}

}  // namespace weft::cuda
