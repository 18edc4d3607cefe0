// Where the blocks of encoded shards lie, and bytes that need not be aligned, for the kernels that encode and decode.
#pragma once

#include "base/mix.hpp"
#include "compress/element_codes.hpp"
#include "kernels/cuda/launch.cuh"

namespace weft::cuda {

// Shards of a tensor of `size` elements, in blocks of their format.
struct BlockMap {
  std::byte* bytes = nullptr;
  std::int64_t size = 0, shard_elements = 0, shards = 1;
  std::int64_t block = 0, block_bytes = 0;  // of a full block
  std::int64_t shard_bytes = 0;             // the room of a full shard

  __host__ __device__ std::int64_t blocks_of_shard() const { return (shard_elements + block - 1) / block; }
  __device__ std::int64_t first_element(std::int64_t shard, std::int64_t number) const {
    return shard * shard_elements + number * block;
  }
  // Returns how many elements a block has; 0 behind the end.
  __device__ int elements_of(std::int64_t shard, std::int64_t number) const {
    const std::int64_t end = min(size, (shard + 1) * shard_elements);
    return static_cast<int>(max(std::int64_t{0}, min(block, end - first_element(shard, number))));
  }
  __device__ std::byte* bytes_of(std::int64_t summand, std::int64_t shard, std::int64_t number) const {
    return bytes + (summand * shards + shard) * shard_bytes + number * block_bytes;
  }
};

// `bytes_of_block(elements)` says what a block of so many elements takes.
template <class BytesOfBlock>
BlockMap map_of(const EncodedShards& encoded, std::int64_t size, std::int64_t block,
                const BytesOfBlock& bytes_of_block) {
  const std::int64_t rest = encoded.elements % block, full = bytes_of_block(block);
  return {.bytes = encoded.bytes.data.address,
          .size = size,
          .shard_elements = encoded.elements,
          .shards = encoded.shards,
          .block = block,
          .block_bytes = full,
          .shard_bytes = encoded.elements / block * full + (rest > 0 ? bytes_of_block(rest) : 0)};
}

// The draw of a block, as compress/compressor.cpp has it.
struct BlockDraw {
  HostValue<std::uint64_t> seed;
  std::int64_t first_block = 0;

  __device__ std::uint64_t of(std::int64_t block) const {
    return mix_bits(value_of(seed) ^ mix_bits(static_cast<std::uint64_t>(first_block + block)));
  }
};

template <class Word>
__device__ bool is_aligned(const std::byte* at) {
  return reinterpret_cast<std::uintptr_t>(at) % sizeof(Word) == 0;
}

// Stores the low `count` bytes of a word, in one piece where that is all of it and it is aligned.
template <class Word>
__device__ void store_word(std::byte* to, Word word, int count) {
  if (count >= static_cast<int>(sizeof(Word)) && is_aligned<Word>(to)) {
    *reinterpret_cast<Word*>(to) = word;
    return;
  }
  for (int i = 0; i < count && i < static_cast<int>(sizeof(Word)); ++i) {
    to[i] = static_cast<std::byte>(word & 0xffU);
    if constexpr (sizeof(Word) > 1) word >>= 8;
  }
}

// Loads `count` bytes; zeros behind them.
template <class Word>
__device__ Word load_word(const std::byte* from, int count) {
  if (count >= static_cast<int>(sizeof(Word)) && is_aligned<Word>(from)) return *reinterpret_cast<const Word*>(from);
  Word word = 0;
  for (int i = 0; i < count && i < static_cast<int>(sizeof(Word)); ++i) {
    word = static_cast<Word>(word | static_cast<Word>(static_cast<Word>(from[i]) << (8 * i)));
  }
  return word;
}

__device__ inline void store_float(std::byte* to, float value) {
  store_word<std::uint32_t>(to, __float_as_uint(value), 4);
}
__device__ inline float load_float(const std::byte* from) {
  return __uint_as_float(load_word<std::uint32_t>(from, 4));
}

// Sums of squares that the host wants: one pair for every block of threads, then a total in a fixed order.
struct SquareSums {
  double* partial = nullptr;  // null: they are not wanted

  // Called by all threads of a block.
  __device__ void add(float gradient, float error) const {
    if (partial == nullptr) return;
    const double gradients = block_sum(static_cast<double>(gradient)), errors = block_sum(static_cast<double>(error));
    if (threadIdx.x != 0) return;
    double* const own = partial + 2 * (static_cast<std::int64_t>(blockIdx.y) * gridDim.x + blockIdx.x);
    own[0] = gradients;
    own[1] = errors;
  }
};
// `blocks` of threads will add to it.
SquareSums square_sums(Context& context, std::int64_t blocks, const EncodedSquares* wanted);
// Behind the kernel that adds to it.
void total_squares(Context& context, const SquareSums& sums, std::int64_t blocks, EncodedSquares* wanted);

bool is_sparse(CompressionFormat format);
// Errors may be empty.
void encode_sparse(Context& context, const Vector& values, const Vector& errors, const BlockDraw& draw,
                   const EncodedShards& encoded, EncodedSquares* squares);
void decode_sparse(Context& context, const EncodedShards& encoded, std::int64_t summands, const Vector& sum, Into into);

}  // namespace weft::cuda
