// Formats that keep a hundredth of a block of 4096 elements: their indices, ascending, then their values. A block of
// threads takes a block of elements; thread t holds elements t, t + 256, and so on. Bytes are those of
// compress/sparse.cpp.
#include "kernels/cuda/cuda_kernels.hpp"
#include "kernels/cuda/encoding.cuh"

namespace weft::cuda {
namespace {

constexpr int kEach = static_cast<int>(kSparseBlock) / kThreads;  // elements of a thread
constexpr int kWords = static_cast<int>(kSparseBlock) / 32;       // of a bit for every element
constexpr int kMostKept = static_cast<int>(kept_of(kSparseBlock));
constexpr int kDigits = 256;  // values of a byte
static_assert(kThreads == kDigits && kEach * kThreads == kSparseBlock);

std::int64_t bytes_of_sparse(std::int64_t elements) {
  return kept_of(elements) * static_cast<std::int64_t>(sizeof(std::uint16_t) + sizeof(float));
}

struct Sums {
  float v[kEach];
};

__device__ int index_of(int j) {
  return j * kThreads + static_cast<int>(threadIdx.x);
}

__device__ void store_kept(std::byte* block, int kept, int place, int index, float value) {
  store_word<std::uint16_t>(block + 2 * place, static_cast<std::uint16_t>(index), 2);
  store_float(block + 2 * kept + 4 * place, value);
}

// A key for every element that grows with its magnitude; 0 behind the end of the block.
__device__ std::uint32_t key_of(float value, bool exists) {
  return exists ? (__float_as_uint(value) & 0x7fffffffU) + 1 : 0;
}

// Finds the kept-th largest key, a byte at a time from the top, and how many of the keys that are equal to it are kept.
struct Threshold {
  std::uint32_t key;
  int equal_kept;
};
__device__ Threshold find_threshold(const Sums& wanted, int count, int kept) {
  __shared__ int counts[kDigits];
  __shared__ std::uint32_t chosen;
  __shared__ int left;
  std::uint32_t prefix = 0;
  int needed = kept;
  for (int shift = 24; shift >= 0; shift -= 8) {
    counts[threadIdx.x] = 0;
    __syncthreads();
    for (int j = 0; j < kEach; ++j) {
      const std::uint32_t key = key_of(wanted.v[j], index_of(j) < count);
      // A shift by 32 bits would be undefined: in the first round all keys have the prefix.
      const bool has_prefix = shift == 24 || (key >> (shift + 8)) == (prefix >> (shift + 8));
      if (has_prefix) atomicAdd(&counts[(key >> shift) & 0xffU], 1);
    }
    __syncthreads();
    // Thread d sees how many keys have a larger digit than d; one of them is where the needed-th key lies.
    int larger = 0;
    for (int digit = kDigits - 1; digit > static_cast<int>(threadIdx.x); --digit) larger += counts[digit];
    if (larger < needed && larger + counts[threadIdx.x] >= needed) {
      chosen = threadIdx.x;
      left = needed - larger;
    }
    __syncthreads();
    prefix |= chosen << shift;
    needed = left;
    __syncthreads();
  }
  return {prefix, needed};
}

// Keeps the largest magnitudes, of equal ones the first. `kept_here` gets a bit for every element of this thread.
__device__ std::uint32_t keep_largest(const Sums& wanted, int count, std::byte* block) {
  __shared__ std::uint32_t larger[kWords], equal[kWords];  // word w has the bits of elements 32 w to 32 w + 31
  __shared__ int larger_before[kWords], equal_before[kWords];
  const int kept = static_cast<int>(kept_of(count)), lane = static_cast<int>(threadIdx.x % 32);
  const Threshold threshold = find_threshold(wanted, count, kept);
  for (int j = 0; j < kEach; ++j) {
    const std::uint32_t key = key_of(wanted.v[j], index_of(j) < count);
    const unsigned are_larger = __ballot_sync(0xffffffffU, key > threshold.key);
    const unsigned are_equal = __ballot_sync(0xffffffffU, key == threshold.key);
    if (lane == 0) {
      larger[index_of(j) / 32] = are_larger;
      equal[index_of(j) / 32] = are_equal;
    }
  }
  __syncthreads();
  if (threadIdx.x < kWords) {
    int larger_count = 0, equal_count = 0;
    for (unsigned word = 0; word < threadIdx.x; ++word) {
      larger_count += __popc(larger[word]);
      equal_count += __popc(equal[word]);
    }
    larger_before[threadIdx.x] = larger_count;
    equal_before[threadIdx.x] = equal_count;
  }
  __syncthreads();
  std::uint32_t kept_here = 0;
  for (int j = 0; j < kEach; ++j) {
    const int word = index_of(j) / 32;
    const unsigned before = (1U << lane) - 1U, bit = 1U << lane;
    const int larger_in_front = larger_before[word] + __popc(larger[word] & before);
    const int equal_in_front = equal_before[word] + __popc(equal[word] & before);
    const bool is_kept =
        (larger[word] & bit) != 0 || ((equal[word] & bit) != 0 && equal_in_front < threshold.equal_kept);
    if (!is_kept) continue;
    kept_here |= 1U << j;
    const int place = larger_in_front + min(equal_in_front, threshold.equal_kept);
    store_kept(block, kept, place, index_of(j), wanted.v[j]);
  }
  return kept_here;
}

// Keeps one element of each of as many equal stretches as elements are kept.
__device__ std::uint32_t keep_at_random(const Sums& wanted, int count, std::uint64_t draw, std::byte* block) {
  __shared__ std::uint16_t place_of[kSparseBlock];  // 1 more than the place of a kept element, 0 for others
  const int kept = static_cast<int>(kept_of(count));
  for (int j = 0; j < kEach; ++j) place_of[index_of(j)] = 0;
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < kept) {
    const std::uint64_t i = threadIdx.x, size = static_cast<std::uint64_t>(count),
                        all = static_cast<std::uint64_t>(kept);
    const std::uint64_t begin = i * size / all, end = (i + 1) * size / all;
    place_of[begin + mix_bits(draw + i) % (end - begin)] = static_cast<std::uint16_t>(threadIdx.x + 1);
  }
  __syncthreads();
  std::uint32_t kept_here = 0;
  for (int j = 0; j < kEach; ++j) {
    const int place = place_of[index_of(j)] - 1;
    if (place < 0) continue;
    kept_here |= 1U << j;
    store_kept(block, kept, place, index_of(j), wanted.v[j]);
  }
  return kept_here;
}
static_assert(kMostKept <= kThreads);

template <bool at_random>
__global__ void __launch_bounds__(kThreads)
    encode_sparse_kernel(Operand values, Operand errors, BlockMap map, BlockDraw draw, SquareSums sums) {
  const std::int64_t number = blockIdx.x, shard = blockIdx.y;
  const int count = map.elements_of(shard, number);
  float gradient = 0, error = 0;
  if (count > 0) {
    const std::int64_t first = map.first_element(shard, number);
    Sums wanted;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const bool exists = index_of(j) < count;
      wanted.v[j] = exists ? load_one(values, 0, first + index_of(j)) : 0.0F;
      gradient += wanted.v[j] * wanted.v[j];
      if (errors.data != nullptr && exists) wanted.v[j] += load_one(errors, 0, first + index_of(j));
    }
    std::byte* const block = map.bytes_of(0, shard, number);
    const std::uint32_t kept =
        at_random ? keep_at_random(wanted, count, draw.of(shard * map.blocks_of_shard() + number), block)
                  : keep_largest(wanted, count, block);
    if (errors.data != nullptr) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        if (index_of(j) >= count) continue;
        const float sent = (kept >> j & 1U) != 0 ? 0.0F + wanted.v[j] : 0.0F, rest = wanted.v[j] - sent;
        store_one(errors, 0, first + index_of(j), rest);
        error += rest * rest;
      }
    }
  }
  sums.add(gradient, error);
}

__global__ void __launch_bounds__(kThreads)
    decode_sparse_kernel(Operand sum, BlockMap map, std::int64_t summands, bool adds) {
  __shared__ float total[kSparseBlock];
  const std::int64_t number = blockIdx.x, shard = blockIdx.y;
  const int count = map.elements_of(shard, number), kept = static_cast<int>(kept_of(count));
  if (count == 0) return;
  for (int j = 0; j < kEach; ++j) total[index_of(j)] = 0;
  __syncthreads();
  for (std::int64_t summand = 0; summand < summands; ++summand) {
    const std::byte* const block = map.bytes_of(summand, shard, number);
    if (static_cast<int>(threadIdx.x) < kept) {
      const int index = load_word<std::uint16_t>(block + 2 * threadIdx.x, 2);
      // A broken message writes nowhere else.
      if (index < count) total[index] += load_float(block + 2 * kept + 4 * threadIdx.x);
    }
    __syncthreads();
  }
  const std::int64_t first = map.first_element(shard, number);
  for (int j = 0; j < kEach; ++j) {
    if (index_of(j) >= count) continue;
    const float before = adds ? load_one(sum, 0, first + index_of(j)) : 0.0F;
    store_one(sum, 0, first + index_of(j), adds ? total[index_of(j)] + before : total[index_of(j)]);
  }
}

dim3 sparse_grid(const BlockMap& map) {
  return {static_cast<unsigned>(map.blocks_of_shard()), static_cast<unsigned>(map.shards)};
}

}  // namespace

bool is_sparse(CompressionFormat format) {
  return format == CompressionFormat::top_k || format == CompressionFormat::random_k;
}

void encode_sparse(Context& context, const Vector& values, const Vector& errors, const BlockDraw& draw,
                   const EncodedShards& encoded, EncodedSquares* squares) {
  const BlockMap map = map_of(encoded, values.size, kSparseBlock, bytes_of_sparse);
  const dim3 grid = sparse_grid(map);
  const std::int64_t blocks = static_cast<std::int64_t>(grid.x) * grid.y;
  const SquareSums sums = square_sums(context, blocks, squares);
  const auto kernel =
      encoded.format == CompressionFormat::random_k ? encode_sparse_kernel<true> : encode_sparse_kernel<false>;
  if (blocks > 0) {
    kernel<<<grid, kThreads, 0, context.current_stream()>>>(
        operand(values), errors.empty() ? Operand{} : operand(errors), map, draw, sums);
    check(cudaGetLastError(), "encoding");
  }
  total_squares(context, sums, blocks, squares);
}

void decode_sparse(Context& context, const EncodedShards& encoded, std::int64_t summands, const Vector& sum,
                   Into into) {
  const BlockMap map = map_of(encoded, sum.size, kSparseBlock, bytes_of_sparse);
  decode_sparse_kernel<<<sparse_grid(map), kThreads, 0, context.current_stream()>>>(operand(sum), map, summands,
                                                                                    into == Into::add);
  check(cudaGetLastError(), "decoding");
}

}  // namespace weft::cuda
