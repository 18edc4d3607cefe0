// Formats with a code for every element: a warp takes a block of 256 elements, a thread two times four that lie side by
// side, so that warps read and write whole lines. The arithmetic of an element is that of compress/, compiled without
// fused multiply-add (CMakeLists.txt), so the bytes are the same as on a processor.
#include "base/half_float.hpp"
#include "kernels/cuda/cuda_kernels.hpp"
#include "kernels/cuda/encoding.cuh"

namespace weft::cuda {
namespace {

constexpr unsigned kAllLanes = 0xffffffffU;
constexpr int kWarps = kThreads / 32;
constexpr int kGroup = 4, kGroups = 2;  // elements of a thread
static_assert(32 * kGroup * kGroups == kScaledBlock);

// What a thread holds of its warp's block: element e of group g is element 128 g + 4 lane + e of the block.
struct Held {
  float v[kGroups][kGroup];
};
__device__ int index_of(int group, int e) {
  return group * 32 * kGroup + static_cast<int>(threadIdx.x % 32) * kGroup + e;
}

__device__ float4 load_four(const Operand& x, std::int64_t first, int count) {
  float4 out = {0, 0, 0, 0};
  const std::byte* const at = x.data + first * (x.bf16 ? 2 : 4);
  if (count >= kGroup && !x.bf16 && is_aligned<uint4>(at)) return *reinterpret_cast<const float4*>(at);
  if (count >= kGroup && x.bf16 && is_aligned<uint2>(at)) {
    const uint2 words = *reinterpret_cast<const uint2*>(at);
    return {__uint_as_float(words.x << 16), __uint_as_float(words.x & 0xffff0000U), __uint_as_float(words.y << 16),
            __uint_as_float(words.y & 0xffff0000U)};
  }
  if (count > 0) out.x = load_one(x, 0, first);
  if (count > 1) out.y = load_one(x, 0, first + 1);
  if (count > 2) out.z = load_one(x, 0, first + 2);
  if (count > 3) out.w = load_one(x, 0, first + 3);
  return out;
}

__device__ void store_four(const Operand& x, std::int64_t first, const float* v, int count) {
  std::byte* const at = x.data + first * (x.bf16 ? 2 : 4);
  if (count >= kGroup && !x.bf16 && is_aligned<uint4>(at)) {
    *reinterpret_cast<float4*>(at) = {v[0], v[1], v[2], v[3]};
    return;
  }
  if (count >= kGroup && x.bf16 && is_aligned<uint2>(at)) {
    *reinterpret_cast<uint2*>(at) = {two_bf16(v[0], v[1]), two_bf16(v[2], v[3])};
    return;
  }
#pragma unroll
  for (int e = 0; e < kGroup; ++e) {
    if (e < count) store_one(x, 0, first + e, v[e]);
  }
}

// Zeros behind the end of the block.
__device__ Held load_block(const Operand& x, std::int64_t first, int count) {
  Held held;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const float4 four = load_four(x, first + index_of(g, 0), count - index_of(g, 0));
    held.v[g][0] = four.x;
    held.v[g][1] = four.y;
    held.v[g][2] = four.z;
    held.v[g][3] = four.w;
  }
  return held;
}
__device__ void store_block(const Operand& x, std::int64_t first, const Held& held, int count) {
#pragma unroll
  for (int g = 0; g < kGroups; ++g) store_four(x, first + index_of(g, 0), held.v[g], count - index_of(g, 0));
}

__device__ std::int32_t largest_bits(const Held& held) {
  std::int32_t largest = 0;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
#pragma unroll
    for (int e = 0; e < kGroup; ++e) largest = max(largest, __float_as_int(held.v[g][e]) & 0x7fffffff);
  }
  for (int offset = 16; offset > 0; offset /= 2) largest = max(largest, __shfl_xor_sync(kAllLanes, largest, offset));
  return largest;
}

// Eight sums, element i in sum i mod 8, each in the order of the elements, then the sum of the eight: as on processors.
__device__ float mean_magnitude(const Held& held, int count) {
  const int odd = static_cast<int>(threadIdx.x % 2);  // this thread's elements belong to sums 0 to 3, or 4 to 7
  float sums[kGroup] = {0, 0, 0, 0};
  for (int g = 0; g < kGroups; ++g) {
    for (int pair = 0; pair < 16; ++pair) {
#pragma unroll
      for (int e = 0; e < kGroup; ++e) {
        sums[e] += __shfl_sync(kAllLanes, fabsf(held.v[g][e]), 2 * pair + odd);
      }
    }
  }
  float sum = 0;
#pragma unroll
  for (int lane = 0; lane < 2; ++lane) {
#pragma unroll
    for (int e = 0; e < kGroup; ++e) sum += __shfl_sync(kAllLanes, sums[e], lane);
  }
  return sum / static_cast<float>(count);
}

// What formats have in common: bits of a code, a scale in front of a block, random numbers.
template <int bits, bool draws = false>
struct ScaledFormat {
  static constexpr int kBits = bits;
  static constexpr bool kHasScale = true;
  static constexpr bool kDraws = draws;
};
struct UnscaledHalf {
  static constexpr int kBits = 16;
  static constexpr bool kHasScale = false;
  static constexpr bool kDraws = false;
  static __device__ BlockScale scale(const Held&, int) { return {}; }
};

struct Bf16Format : UnscaledHalf {
  static __device__ std::uint32_t code(float x, BlockScale, std::uint32_t, int) { return bf16_from_float(x); }
  static __device__ float value(std::uint32_t code, float) { return float_from_bf16(static_cast<std::uint16_t>(code)); }
};
struct Fp16Format : UnscaledHalf {
  static __device__ std::uint32_t code(float x, BlockScale, std::uint32_t, int) { return f16_from_float(x); }
  static __device__ float value(std::uint32_t code, float) { return float_from_f16(static_cast<std::uint16_t>(code)); }
};

template <bool at_random>
struct Int8Format : ScaledFormat<8, at_random> {
  static __device__ BlockScale scale(const Held& held, int) {
    return scale_of_magnitude(largest_bits(held), kLargestInt8);
  }
  static __device__ std::uint32_t code(float x, BlockScale s, std::uint32_t key, int i) {
    if (s.inverse == 0) return 0;
    const std::int8_t rounded = at_random ? random_code(x, s.inverse, kLargestInt8, key, static_cast<std::uint32_t>(i))
                                          : nearest_code(x, s.inverse);
    return static_cast<std::uint8_t>(rounded);
  }
  static __device__ float value(std::uint32_t code, float scale) {
    return scale * static_cast<float>(static_cast<std::int8_t>(code));
  }
};

template <bool at_random>
struct Int4Format : ScaledFormat<4, at_random> {
  static __device__ BlockScale scale(const Held& held, int) {
    return scale_of_magnitude(largest_bits(held), kLargestInt4);
  }
  static __device__ std::uint32_t code(float x, BlockScale s, std::uint32_t key, int i) {
    if (s.inverse == 0) return kInt4Offset;
    const std::int8_t rounded = at_random ? random_code(x, s.inverse, kLargestInt4, key, static_cast<std::uint32_t>(i))
                                          : nearest_code(x, s.inverse);
    return static_cast<std::uint32_t>(rounded + kInt4Offset);
  }
  static __device__ float value(std::uint32_t code, float scale) {
    return scale * static_cast<float>(static_cast<std::int32_t>(code) - kInt4Offset);
  }
};

template <class Codes>
struct Fp8Format : ScaledFormat<8> {
  static __device__ BlockScale scale(const Held& held, int) {
    return scale_of_magnitude(largest_bits(held), Codes::largest_value());
  }
  static __device__ std::uint32_t code(float x, BlockScale s, std::uint32_t, int) {
    return s.inverse == 0 ? 0U : Codes::code(x * s.inverse);
  }
  static __device__ float value(std::uint32_t code, float scale) { return scale * Codes::value(code); }
};

struct OneBitFormat : ScaledFormat<1> {
  static __device__ BlockScale scale(const Held& held, int count) {
    const float mean = mean_magnitude(held, count);  // by all threads of the warp
    return {largest_bits(held) >= kInfinityBits ? not_a_number() : mean, 0};
  }
  static __device__ std::uint32_t code(float x, BlockScale, std::uint32_t, int) { return __float_as_uint(x) >> 31; }
  static __device__ float value(std::uint32_t code, float scale) {
    return __uint_as_float(__float_as_uint(scale) ^ (code << 31));
  }
};

struct TernaryFormat : ScaledFormat<2, true> {
  static __device__ BlockScale scale(const Held& held, int) { return scale_of_magnitude(largest_bits(held), 1); }
  static __device__ std::uint32_t code(float x, BlockScale s, std::uint32_t key, int i) {
    return ternary_code(x, s.inverse, key, static_cast<std::uint32_t>(i));
  }
  static __device__ float value(std::uint32_t code, float scale) {
    return code == 0 ? 0 * scale : code == 1 ? scale : code == 2 ? -scale : 0.0F;
  }
};

template <class Format>
struct Layout {
  static constexpr int kHeader = Format::kHasScale ? static_cast<int>(sizeof(float)) : 0;
  static constexpr std::int64_t bytes(std::int64_t elements) { return kHeader + (elements * Format::kBits + 7) / 8; }
};

// Codes of a group, the first in the low bits; for one bit, those of two threads are a byte, which the first has.
template <class Format>
__device__ void store_codes(std::byte* block, int group, std::uint64_t packed, int count) {
  constexpr int kBits = Format::kBits;
  const int bytes = static_cast<int>(Layout<Format>::bytes(count)) - Layout<Format>::kHeader;
  const int first_byte = index_of(group, 0) * kBits / 8, left = bytes - first_byte;
  std::byte* const to = block + Layout<Format>::kHeader + first_byte;
  if constexpr (kBits == 1) {
    const unsigned next = __shfl_down_sync(kAllLanes, static_cast<unsigned>(packed), 1);
    if (threadIdx.x % 2 == 0 && left > 0) *to = static_cast<std::byte>(static_cast<unsigned>(packed) | (next << 4));
  } else if constexpr (kBits == 2) {
    if (left > 0) *to = static_cast<std::byte>(packed);
  } else if constexpr (kBits == 4) {
    store_word<std::uint16_t>(to, static_cast<std::uint16_t>(packed), left);
  } else if constexpr (kBits == 8) {
    store_word<std::uint32_t>(to, static_cast<std::uint32_t>(packed), left);
  } else {
    store_word<unsigned long long>(to, packed, left);
  }
}

template <class Format>
__device__ std::uint64_t load_codes(const std::byte* block, int group, int count) {
  constexpr int kBits = Format::kBits;
  const int bytes = static_cast<int>(Layout<Format>::bytes(count)) - Layout<Format>::kHeader;
  const int first_byte = index_of(group, 0) * kBits / 8, left = bytes - first_byte;
  const std::byte* const from = block + Layout<Format>::kHeader + first_byte;
  if constexpr (kBits == 1) {
    return left > 0 ? static_cast<unsigned>(*from) >> (threadIdx.x % 2 * kGroup) : 0U;
  } else if constexpr (kBits == 2) {
    return left > 0 ? static_cast<unsigned>(*from) : 0U;
  } else if constexpr (kBits == 4) {
    return load_word<std::uint16_t>(from, left);
  } else if constexpr (kBits == 8) {
    return load_word<std::uint32_t>(from, left);
  } else {
    return load_word<unsigned long long>(from, left);
  }
}

// Encodes the warp's block. `wanted` becomes what encoding takes away.
template <class Format>
__device__ void encode_held(Held& wanted, int count, std::uint32_t key, std::byte* block) {
  const BlockScale scale = Format::scale(wanted, count);
  if (Format::kHasScale && threadIdx.x % 32 == 0) store_float(block, scale.scale);
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    std::uint64_t packed = 0;
#pragma unroll
    for (int e = 0; e < kGroup; ++e) {
      const int i = index_of(g, e);
      if (i >= count) continue;
      const std::uint32_t code = Format::code(wanted.v[g][e], scale, key, i);
      packed |= static_cast<std::uint64_t>(code) << (Format::kBits * e);
      wanted.v[g][e] -= Format::value(code, scale.scale);
    }
    store_codes<Format>(block, g, packed, count);
  }
}

__device__ float squares_of(const Held& held) {
  float sum = 0;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
#pragma unroll
    for (int e = 0; e < kGroup; ++e) sum += held.v[g][e] * held.v[g][e];
  }
  return sum;
}

template <class Format>
__global__ void __launch_bounds__(kThreads)
    encode_kernel(Operand values, Operand errors, BlockMap map, BlockDraw draw, SquareSums sums) {
  const std::int64_t number = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32, shard = blockIdx.y;
  const int count = number < map.blocks_of_shard() ? map.elements_of(shard, number) : 0;
  float gradient = 0, error = 0;
  if (count > 0) {
    const std::int64_t first = map.first_element(shard, number);
    Held held = load_block(values, first, count);
    gradient = squares_of(held);
    if (errors.data != nullptr) {
      const Held before = load_block(errors, first, count);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
#pragma unroll
        for (int e = 0; e < kGroup; ++e) held.v[g][e] += before.v[g][e];
      }
    }
    const std::uint32_t key = Format::kDraws ? key_of_draw(draw.of(shard * map.blocks_of_shard() + number)) : 0;
    encode_held<Format>(held, count, key, map.bytes_of(0, shard, number));
    if (errors.data != nullptr) {
      store_block(errors, first, held, count);
      error = squares_of(held);
    }
  }
  sums.add(gradient, error);
}

template <class Format>
__global__ void __launch_bounds__(kThreads) decode_kernel(Operand sum, BlockMap map, std::int64_t summands, bool adds) {
  const std::int64_t number = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32, shard = blockIdx.y;
  const int count = number < map.blocks_of_shard() ? map.elements_of(shard, number) : 0;
  if (count == 0) return;
  Held total;
  for (std::int64_t summand = 0; summand < summands; ++summand) {
    const std::byte* const block = map.bytes_of(summand, shard, number);
    const float scale = Format::kHasScale ? load_float(block) : 0.0F;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const std::uint64_t packed = load_codes<Format>(block, g, count);
#pragma unroll
      for (int e = 0; e < kGroup; ++e) {
        constexpr std::uint32_t kMask = (1U << Format::kBits) - 1U;
        const float value = Format::value(static_cast<std::uint32_t>(packed >> (Format::kBits * e)) & kMask, scale);
        total.v[g][e] = summand == 0 ? value : total.v[g][e] + value;
      }
    }
  }
  const std::int64_t first = map.first_element(shard, number);
  if (adds) {
    const Held before = load_block(sum, first, count);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int e = 0; e < kGroup; ++e) total.v[g][e] += before.v[g][e];
    }
  }
  store_block(sum, first, total, count);
}

dim3 grid_of(const BlockMap& map) {
  return {static_cast<unsigned>(ceil_div(map.blocks_of_shard(), kWarps)), static_cast<unsigned>(map.shards)};
}

// Calls with(Format{}) for a format with a code for every element.
template <class With>
void with_format(CompressionFormat format, const With& with) {
  switch (format) {
    case CompressionFormat::bf16:
      return with(Bf16Format{});
    case CompressionFormat::fp16:
      return with(Fp16Format{});
    case CompressionFormat::int8:
      return with(Int8Format<false>{});
    case CompressionFormat::int8_stochastic:
      return with(Int8Format<true>{});
    case CompressionFormat::int4:
      return with(Int4Format<false>{});
    case CompressionFormat::int4_stochastic:
      return with(Int4Format<true>{});
    case CompressionFormat::fp8_e4m3:
      return with(Fp8Format<Fp8E4m3>{});
    case CompressionFormat::fp8_e5m2:
      return with(Fp8Format<Fp8E5m2>{});
    case CompressionFormat::onebit:
      return with(OneBitFormat{});
    case CompressionFormat::ternary:
      return with(TernaryFormat{});
    default:
      throw RunFailed("a format has no kernel for CUDA");
  }
}

bool draws_numbers(CompressionFormat format) {
  using enum CompressionFormat;
  return format == int8_stochastic || format == int4_stochastic || format == ternary || format == random_k;
}

__global__ void total_squares_kernel(const double* partial, std::int64_t blocks, double* gradient, double* error) {
  double gradients = 0, errors = 0;
  for (std::int64_t i = threadIdx.x; i < blocks; i += blockDim.x) {
    gradients += partial[2 * i];
    errors += partial[2 * i + 1];
  }
  gradients = block_sum(gradients);
  errors = block_sum(errors);
  if (threadIdx.x != 0) return;
  *gradient = gradients;
  *error = errors;
}

}  // namespace

SquareSums square_sums(Context& context, std::int64_t blocks, const EncodedSquares* wanted) {
  return {wanted != nullptr ? context.scratch<double>(Scratch::partial_sums, 2 * blocks) : nullptr};
}

void total_squares(Context& context, const SquareSums& sums, std::int64_t blocks, EncodedSquares* wanted) {
  if (wanted == nullptr) return;
  double* const gradient = context.results().ask_for(wanted->gradient);
  double* const error = context.results().ask_for(wanted->error);
  total_squares_kernel<<<1, 1024, 0, context.current_stream()>>>(sums.partial, blocks, gradient, error);
  check(cudaGetLastError(), "summing squares");
}

void CudaKernels::encode(const Vector& values, const Vector& errors, const EncodingDraw& draw,
                         const EncodedShards& encoded, EncodedSquares* squares) {
  BlockDraw drawn{{}, draw.first_block};
  if (draws_numbers(encoded.format)) drawn.seed = context_.host_value(draw.seed);
  if (context_.only_takes_data()) return;
  if (is_sparse(encoded.format)) return encode_sparse(context_, values, errors, drawn, encoded, squares);
  with_format(encoded.format, [&](auto format) {
    using Format = decltype(format);
    const BlockMap map = map_of(encoded, values.size, kScaledBlock, Layout<Format>::bytes);
    const dim3 grid = grid_of(map);
    const std::int64_t blocks = static_cast<std::int64_t>(grid.x) * grid.y;
    const SquareSums sums = square_sums(context_, blocks, squares);
    if (blocks > 0) {
      encode_kernel<Format><<<grid, kThreads, 0, context_.current_stream()>>>(
          operand(values), errors.empty() ? Operand{} : operand(errors), map, drawn, sums);
      check(cudaGetLastError(), "encoding");
    }
    total_squares(context_, sums, blocks, squares);
  });
}

void CudaKernels::decode_sum(const EncodedShards& encoded, std::int64_t summands, const Vector& sum, Into into) {
  if (sum.size == 0) return;
  if (is_sparse(encoded.format)) return decode_sparse(context_, encoded, summands, sum, into);
  with_format(encoded.format, [&](auto format) {
    using Format = decltype(format);
    const BlockMap map = map_of(encoded, sum.size, kScaledBlock, Layout<Format>::bytes);
    decode_kernel<Format>
        <<<grid_of(map), kThreads, 0, context_.current_stream()>>>(operand(sum), map, summands, into == Into::add);
    check(cudaGetLastError(), "decoding");
  });
}

}  // namespace weft::cuda
