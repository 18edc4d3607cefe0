#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>

#include "comm/nccl/batch_kernels.hpp"

namespace weft::nccl {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxBlocks = 64;      // of one place: enough for the memory's bandwidth, few beside other kernels
constexpr std::size_t kBatch = 128;  // 3 KiB of the 4 that every device takes as arguments

struct Batch {
  DeviceCopy places[kBatch];
};

struct Copy {
  template <class T>
  static __device__ T combine(const T&, const T& from) {
    return from;
  }
};
struct Add {
  static __device__ float combine(float to, float from) { return to + from; }
  static __device__ std::int32_t combine(std::int32_t to, std::int32_t from) { return to + from; }
  static __device__ std::int64_t combine(std::int64_t to, std::int64_t from) { return to + from; }
  static __device__ __half combine(__half to, __half from) {
    return __float2half_rn(__half2float(to) + __half2float(from));
  }
  static __device__ __nv_bfloat16 combine(__nv_bfloat16 to, __nv_bfloat16 from) {
    return __float2bfloat16_rn(__bfloat162float(to) + __bfloat162float(from));
  }
};

// Sixteen bytes at a time where both places allow it.
template <class T>
struct alignas(16) Vector {
  static constexpr int kSize = 16 / sizeof(T);
  T elements[kSize];
};

template <class T, class Operation>
__global__ void __launch_bounds__(kThreads) on_places(const __grid_constant__ Batch batch) {
  const DeviceCopy& place = batch.places[blockIdx.y];
  T* const to = reinterpret_cast<T*>(place.to);
  const T* const from = reinterpret_cast<const T*>(place.from);
  const std::int64_t count = place.bytes / static_cast<std::int64_t>(sizeof(T));
  const std::int64_t first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  std::int64_t done = 0;
  if (((reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from)) & 15) == 0) {
    const std::int64_t vectors = count / Vector<T>::kSize;
    for (std::int64_t i = first; i < vectors; i += step) {
      const Vector<T> read = reinterpret_cast<const Vector<T>*>(from)[i];
      Vector<T> result = reinterpret_cast<const Vector<T>*>(to)[i];
#pragma unroll
      for (int e = 0; e < Vector<T>::kSize; ++e) {
        result.elements[e] = Operation::combine(result.elements[e], read.elements[e]);
      }
      reinterpret_cast<Vector<T>*>(to)[i] = result;
    }
    done = vectors * Vector<T>::kSize;
  }
  for (std::int64_t i = done + first; i < count; i += step) to[i] = Operation::combine(to[i], from[i]);
}

template <class T, class Operation>
cudaError_t launch(std::span<const DeviceCopy> places, cudaStream_t stream) {
  while (!places.empty()) {
    const std::span<const DeviceCopy> now = places.first(std::min(places.size(), kBatch));
    places = places.subspan(now.size());
    Batch batch;
    std::copy(now.begin(), now.end(), batch.places);
    const std::int64_t most = std::max_element(now.begin(), now.end(), [](const DeviceCopy& a, const DeviceCopy& b) {
                                return a.bytes < b.bytes;
                              })->bytes;
    const std::int64_t blocks = std::clamp<std::int64_t>(most / (16 * kThreads), 1, kMaxBlocks);
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(now.size()));
    on_places<T, Operation><<<grid, kThreads, 0, stream>>>(batch);
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace

// Every element is a whole number of 16-bit words, but for fp8.
cudaError_t copy_places(std::span<const DeviceCopy> copies, cudaStream_t stream) {
  return launch<std::uint16_t, Copy>(copies, stream);
}

cudaError_t add_places(ElementType type, std::span<const DeviceCopy> sums, cudaStream_t stream) {
  switch (type) {
    case ElementType::fp32:
      return launch<float, Add>(sums, stream);
    case ElementType::bf16:
      return launch<__nv_bfloat16, Add>(sums, stream);
    case ElementType::fp16:
      return launch<__half, Add>(sums, stream);
    case ElementType::i32:
      return launch<std::int32_t, Add>(sums, stream);
    case ElementType::i64:
      return launch<std::int64_t, Add>(sums, stream);
    case ElementType::fp8:
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace weft::nccl
