#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>

#include "comm/nccl/batch_kernels.hpp"

namespace weft::nccl {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxBlocks = 64;  // of one place: enough for the memory's bandwidth, few beside other kernels
constexpr std::size_t kBatchBytes = 3 << 10;  // of the 4 KiB that every device takes as arguments

template <class Place>
struct Batch {
  static constexpr std::size_t kSize = kBatchBytes / sizeof(Place);
  Place places[kSize];
};

__device__ float widen(float x) {
  return x;
}
__device__ std::int32_t widen(std::int32_t x) {
  return x;
}
__device__ std::int64_t widen(std::int64_t x) {
  return x;
}
__device__ float widen(__half x) {
  return __half2float(x);
}
__device__ float widen(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

template <class T, class Value>
__device__ T narrow(Value x) {
  return x;
}
template <>
__device__ __half narrow<__half, float>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __nv_bfloat16 narrow<__nv_bfloat16, float>(float x) {
  return __float2bfloat16_rn(x);
}

struct Add {
  static __device__ float combine(float a, float b) { return a + b; }
  // Integers wrap around.
  static __device__ std::int32_t combine(std::int32_t a, std::int32_t b) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
  }
  static __device__ std::int64_t combine(std::int64_t a, std::int64_t b) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  }
};
struct Max {
  template <class Value>
  static __device__ Value combine(Value a, Value b) {
    return a < b ? b : a;
  }
};
struct Min {
  template <class Value>
  static __device__ Value combine(Value a, Value b) {
    return b < a ? b : a;
  }
};

__device__ float divided(float value, std::int64_t divisor) {
  return divisor == 1 ? value : value * static_cast<float>(1.0 / static_cast<double>(divisor));
}
template <class Value>
__device__ Value divided(Value value, std::int64_t divisor) {
  return static_cast<Value>(value / divisor);
}

// Sixteen bytes at a time where all places allow it.
template <class T>
struct alignas(16) Vector {
  static constexpr int kSize = 16 / sizeof(T);
  T elements[kSize];
};

__device__ std::uintptr_t low_bits(const std::byte* place) {
  return reinterpret_cast<std::uintptr_t>(place) & 15;
}

struct ThreadShare {
  std::int64_t first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  std::int64_t step = std::int64_t{gridDim.x} * kThreads;
};

template <class Word>
__device__ void copy_words(const DeviceCopy& place, std::int64_t first_byte, const ThreadShare& own) {
  const std::int64_t count = place.bytes / static_cast<std::int64_t>(sizeof(Word));
  for (std::int64_t i = first_byte / static_cast<std::int64_t>(sizeof(Word)) + own.first; i < count; i += own.step) {
    reinterpret_cast<Word*>(place.to)[i] = reinterpret_cast<const Word*>(place.from)[i];
  }
}

// Encoded tensors may begin and end at any byte; other elements are whole 16-bit words.
__global__ void __launch_bounds__(kThreads) weft_copy_places(const __grid_constant__ Batch<DeviceCopy> batch) {
  const DeviceCopy& place = batch.places[blockIdx.y];
  const ThreadShare own;
  std::int64_t done = 0;  // bytes
  if ((low_bits(place.to) | low_bits(place.from)) == 0) {
    const std::int64_t vectors = place.bytes / 16;
    for (std::int64_t i = own.first; i < vectors; i += own.step) {
      reinterpret_cast<int4*>(place.to)[i] = reinterpret_cast<const int4*>(place.from)[i];
    }
    done = vectors * 16;
  }
  if (((low_bits(place.to) | low_bits(place.from) | static_cast<std::uintptr_t>(place.bytes)) & 1U) != 0) {
    copy_words<std::uint8_t>(place, done, own);
  } else {
    copy_words<std::uint16_t>(place, done, own);
  }
}

template <class T, class Operation>
__global__ void __launch_bounds__(kThreads)
    weft_reduce_places(const __grid_constant__ Batch<DeviceSum> batch, std::int64_t divisor) {
  const DeviceSum& place = batch.places[blockIdx.y];
  const ThreadShare own;
  const auto reduce = [divisor](const T& left, const T& right) {
    return narrow<T>(divided(Operation::combine(widen(left), widen(right)), divisor));
  };
  const std::int64_t count = place.bytes / static_cast<std::int64_t>(sizeof(T));
  std::int64_t done = 0;
  if ((low_bits(place.to) | low_bits(place.left) | low_bits(place.right)) == 0) {
    const std::int64_t vectors = count / Vector<T>::kSize;
    for (std::int64_t i = own.first; i < vectors; i += own.step) {
      const Vector<T> left = reinterpret_cast<const Vector<T>*>(place.left)[i];
      const Vector<T> right = reinterpret_cast<const Vector<T>*>(place.right)[i];
      Vector<T> result;
#pragma unroll
      for (int e = 0; e < Vector<T>::kSize; ++e) result.elements[e] = reduce(left.elements[e], right.elements[e]);
      reinterpret_cast<Vector<T>*>(place.to)[i] = result;
    }
    done = vectors * Vector<T>::kSize;
  }
  for (std::int64_t i = done + own.first; i < count; i += own.step) {
    reinterpret_cast<T*>(place.to)[i] =
        reduce(reinterpret_cast<const T*>(place.left)[i], reinterpret_cast<const T*>(place.right)[i]);
  }
}

// `start` gets a grid and a batch for as many places as fit into one.
template <class Place, class Start>
cudaError_t launch(std::span<const Place> places, const Start& start) {
  while (!places.empty()) {
    const std::span<const Place> now = places.first(std::min(places.size(), Batch<Place>::kSize));
    places = places.subspan(now.size());
    Batch<Place> batch;
    std::copy(now.begin(), now.end(), batch.places);
    std::int64_t most = 0;
    for (const Place& place : now) most = std::max(most, place.bytes);
    const std::int64_t blocks = std::clamp<std::int64_t>(most / (16 * kThreads), 1, kMaxBlocks);
    start(dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(now.size())), batch);
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

template <class T, class Operation>
cudaError_t reduce_as(std::int64_t divisor, std::span<const DeviceSum> sums, cudaStream_t stream) {
  return launch(sums, [&](const dim3& grid, const Batch<DeviceSum>& batch) {
    weft_reduce_places<T, Operation><<<grid, kThreads, 0, stream>>>(batch, divisor);
  });
}

template <class T>
cudaError_t reduce_by(const DeviceReduction& how, std::span<const DeviceSum> sums, cudaStream_t stream) {
  switch (how.op) {
    case ReduceOp::sum:
    case ReduceOp::average:
      return reduce_as<T, Add>(how.divisor, sums, stream);
    case ReduceOp::max:
      return reduce_as<T, Max>(how.divisor, sums, stream);
    case ReduceOp::min:
      return reduce_as<T, Min>(how.divisor, sums, stream);
  }
  return cudaErrorInvalidValue;
}

// To ask for the attributes of a kernel loads it.
template <class Kernel>
cudaError_t load(Kernel* kernel) {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, kernel);
}

template <class T>
cudaError_t load_reductions_of() {
  for (const cudaError_t error :
       {load(weft_reduce_places<T, Add>), load(weft_reduce_places<T, Max>), load(weft_reduce_places<T, Min>)}) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t load_kernels() {
  for (const cudaError_t error :
       {load(weft_copy_places), load_reductions_of<float>(), load_reductions_of<__nv_bfloat16>(),
        load_reductions_of<__half>(), load_reductions_of<std::int32_t>(), load_reductions_of<std::int64_t>()}) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t copy_places(std::span<const DeviceCopy> copies, cudaStream_t stream) {
  return launch(copies, [&](const dim3& grid, const Batch<DeviceCopy>& batch) {
    weft_copy_places<<<grid, kThreads, 0, stream>>>(batch);
  });
}

cudaError_t reduce_places(const DeviceReduction& how, std::span<const DeviceSum> sums, cudaStream_t stream) {
  switch (how.type) {
    case ElementType::fp32:
      return reduce_by<float>(how, sums, stream);
    case ElementType::bf16:
      return reduce_by<__nv_bfloat16>(how, sums, stream);
    case ElementType::fp16:
      return reduce_by<__half>(how, sums, stream);
    case ElementType::i32:
      return reduce_by<std::int32_t>(how, sums, stream);
    case ElementType::i64:
      return reduce_by<std::int64_t>(how, sums, stream);
    case ElementType::fp8:
    case ElementType::u8:
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace weft::nccl
