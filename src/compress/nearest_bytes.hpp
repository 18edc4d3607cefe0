// Rounds whole blocks of floats to signed bytes, one block after the other: while the values of one are rounded out of
// the cache, the largest magnitude of the next is looked for, so that reading it takes no time of its own. Vectors of
// 16 bytes are what every processor of aarch64 and x86_64 has. A plain loop is a quarter slower (0.57 of memcpy's speed
// instead of 0.75 on a Neoverse V1), because the compiler narrows integers one size at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "compress/block_scale.hpp"

namespace weft {

namespace nearest_bytes {

using Floats = float __attribute__((vector_size(16)));
using Integers = std::int32_t __attribute__((vector_size(16)));
using Shorts = std::uint16_t __attribute__((vector_size(16)));
using Codes = std::uint8_t __attribute__((vector_size(16)));

inline constexpr std::size_t kVector = 4;           // floats
inline constexpr std::size_t kChunk = 4 * kVector;  // elements that become one vector of codes
inline constexpr auto kBlock = static_cast<std::size_t>(kScaledBlock);
static_assert(kBlock % kChunk == 0);

inline Floats load(const float* from) {
  Floats values;
  std::memcpy(&values, from, sizeof values);
  return values;
}

inline Integers magnitude_bits(Floats values) {
  return std::bit_cast<Integers>(values) & 0x7fffffff;
}

inline Integers larger(Integers a, Integers b) {
  return a > b ? a : b;
}

// The largest magnitude of a block, in four vectors so that none waits for another.
struct LargestMagnitude {
  Integers a{}, b{}, c{}, d{};

  void take(Floats first, Floats second, Floats third, Floats fourth) {
    a = larger(a, magnitude_bits(first));
    b = larger(b, magnitude_bits(second));
    c = larger(c, magnitude_bits(third));
    d = larger(d, magnitude_bits(fourth));
  }
  std::int32_t bits() const {
    Integers all = larger(larger(a, b), larger(c, d));
    all = larger(all, __builtin_shufflevector(all, all, 2, 3, 0, 1));
    all = larger(all, __builtin_shufflevector(all, all, 1, 0, 3, 2));
    return all[0];
  }
};

// The low bytes of what adding kNearestShift left.
inline Codes low_bytes(Floats a, Floats b, Floats c, Floats d) {
  const Shorts first =
      __builtin_shufflevector(std::bit_cast<Shorts>(a), std::bit_cast<Shorts>(b), 0, 2, 4, 6, 8, 10, 12, 14);
  const Shorts last =
      __builtin_shufflevector(std::bit_cast<Shorts>(c), std::bit_cast<Shorts>(d), 0, 2, 4, 6, 8, 10, 12, 14);
  return __builtin_shufflevector(std::bit_cast<Codes>(first), std::bit_cast<Codes>(last), 0, 2, 4, 6, 8, 10, 12, 14, 16,
                                 18, 20, 22, 24, 26, 28, 30);
}

// What is encoded: values alone.
class Plain {
 public:
  explicit Plain(const float* values) : values_(values) {}
  // Returns four elements of a block before any of it was rounded.
  Floats first_look(std::size_t at) { return load(values_ + at); }
  Floats wanted(std::size_t at) const { return load(values_ + at); }
  void keep(std::size_t, Floats, Floats, float) {}

 private:
  const float* values_;
};

// Values and errors of the last time, which become those of this time. Sums wait in two blocks that take turns.
class WithErrors {
 public:
  WithErrors(const float* values, float* errors) : values_(values), errors_(errors) {}
  Floats first_look(std::size_t at) {
    const Floats sum = load(values_ + at) + load(errors_ + at);
    std::memcpy(&sums_[at % (2 * kBlock)], &sum, sizeof sum);
    return sum;
  }
  Floats wanted(std::size_t at) const { return load(&sums_[at % (2 * kBlock)]); }
  void keep(std::size_t at, Floats sum, Floats shifted, float scale) {
    const Floats error = sum - scale * (shifted - kNearestShift);
    std::memcpy(errors_ + at, &error, sizeof error);
  }

 private:
  const float* values_;
  float* errors_;
  std::array<float, 2 * kBlock> sums_;
};

// Looks at a chunk before its block is rounded.
template <class Source>
void look_at_chunk(Source& source, std::size_t at, LargestMagnitude& largest) {
  const Floats a = source.first_look(at), b = source.first_look(at + kVector);
  const Floats c = source.first_look(at + 2 * kVector), d = source.first_look(at + 3 * kVector);
  largest.take(a, b, c, d);
}

template <class Source>
std::int32_t look_at_block(Source& source, std::size_t at) {
  LargestMagnitude largest;
  for (std::size_t i = 0; i < kBlock; i += kChunk) look_at_chunk(source, at + i, largest);
  return largest.bits();
}

template <class Source>
void round_chunk(Source& source, std::size_t at, const BlockScale scale, std::byte* to) {
  const auto shifted = [&](std::size_t from) {
    const Floats sum = source.wanted(from), moved = sum * scale.inverse + kNearestShift;
    source.keep(from, sum, moved, scale.scale);
    return moved;
  };
  const Floats a = shifted(at), b = shifted(at + kVector), c = shifted(at + 2 * kVector), d = shifted(at + 3 * kVector);
  const Codes codes = low_bytes(a, b, c, d);
  std::memcpy(to, &codes, sizeof codes);
}

// Rounds the block at `at` to codes, and returns the largest magnitude of the block behind it, or 0 where it is the
// last.
template <class Source>
std::int32_t round_block(Source& source, std::size_t at, const BlockScale scale, bool is_last, std::byte* to) {
  LargestMagnitude next;
  if (is_last) {
    for (std::size_t i = 0; i < kBlock; i += kChunk) round_chunk(source, at + i, scale, to + i);
    return 0;
  }
  for (std::size_t i = 0; i < kBlock; i += kChunk) {
    round_chunk(source, at + i, scale, to + i);
    look_at_chunk(source, at + kBlock + i, next);
  }
  return next.bits();
}

// Encodes whole blocks, each as its scale and its codes. Where a block has nothing to round by, `without_scale(first
// element, scale)` encodes it, with the errors as they were.
template <class Source, class WithoutScale>
void encode_blocks(Source source, std::size_t elements, float largest_code, std::byte* to,
                   const WithoutScale& without_scale) {
  if (elements == 0) return;
  std::int32_t largest = look_at_block(source, 0);
  for (std::size_t at = 0; at < elements; at += kBlock, to += sizeof(float) + kBlock) {
    const BlockScale scale = scale_of_magnitude(largest, largest_code);
    const bool is_last = at + kBlock == elements;
    if (scale.inverse == 0) {
      without_scale(at, to);
      largest = is_last ? 0 : look_at_block(source, at + kBlock);
      continue;
    }
    put_float(scale.scale, to);
    largest = round_block(source, at, scale, is_last, to + sizeof(float));
  }
}

}  // namespace nearest_bytes

}  // namespace weft
