// Blocks of small integers with one scale: eight bits (one byte each) or four (two in a byte, the first in the low
// half). A block is its scale and its codes.
#include <array>

#include "compress/block_scale.hpp"
#include "compress/formats.hpp"

namespace weft {
namespace {

enum class Rounding : std::uint8_t { nearest, stochastic };

using Codes = std::array<std::int8_t, kScaledBlock>;

// Adding 1.5 * 2^23 leaves the nearest integer, ties to even, in the low bits of the sum, for magnitudes below 2^22.
// The largest code stays the largest: the product with the inverse of the scale is off by less than a half.
constexpr float kShift = 0x1.8p23F;
void round_to_nearest(std::span<const float> values, float inverse, Codes& codes) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    codes[i] = static_cast<std::int8_t>(std::bit_cast<std::int32_t>(values[i] * inverse + kShift));
  }
}

// Rounds values + errors to nearest in one pass behind the one that finds their scale, and leaves the rounding errors.
// Returns a scale with an inverse of 0 where there is nothing to round by; errors are then as they were.
BlockScale round_with_feedback(std::span<const float> values, std::span<float> errors, std::int32_t largest,
                               Codes& codes) {
  std::array<float, kScaledBlock> wanted;
  for (std::size_t i = 0; i < values.size(); ++i) wanted[i] = values[i] + errors[i];
  const BlockScale scale = block_scale({wanted.data(), values.size()}, static_cast<float>(largest));
  if (scale.inverse == 0) return scale;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float shifted = wanted[i] * scale.inverse + kShift;
    codes[i] = static_cast<std::int8_t>(std::bit_cast<std::int32_t>(shifted));
    errors[i] = wanted[i] - scale.scale * (shifted - kShift);
  }
  return scale;
}

// floor(x + u) with u uniform in [0, 1) is x on average.
void round_at_random(std::span<const float> values, const BlockScale& scale, std::int32_t largest, std::uint64_t draw,
                     Codes& codes) {
  const auto key = static_cast<std::uint32_t>(draw ^ (draw >> 32));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float x = values[i] * scale.inverse + unit_random(key, static_cast<std::uint32_t>(i));
    const auto truncated = static_cast<std::int32_t>(x);
    const std::int32_t code = truncated - (static_cast<float>(truncated) > x ? 1 : 0);
    const std::int32_t above = code < -largest ? -largest : code;
    codes[i] = static_cast<std::int8_t>(above > largest ? largest : above);
  }
}

BlockScale quantize(std::span<const float> values, std::int32_t largest, Rounding rounding, std::uint64_t draw,
                    Codes& codes) {
  const BlockScale scale = block_scale(values, static_cast<float>(largest));
  if (scale.inverse == 0) {
    codes.fill(0);
  } else if (rounding == Rounding::nearest) {
    round_to_nearest(values, scale.inverse, codes);
  } else {
    round_at_random(values, scale, largest, draw, codes);
  }
  return scale;
}

class Int8 final : public Compressor {
 public:
  explicit Int8(Rounding rounding) : rounding_(rounding) {}
  std::int64_t block() const override { return kScaledBlock; }
  std::int64_t block_bytes(std::int64_t elements) const override {
    return static_cast<std::int64_t>(sizeof(float)) + elements;
  }
  void encode_block(std::span<const float> values, std::uint64_t draw, std::span<std::byte> encoded) const override {
    Codes codes;
    const BlockScale scale = quantize(values, kLargest, rounding_, draw, codes);
    put(scale, codes, values.size(), encoded);
  }
  void encode_block_with_feedback(std::span<const float> values, std::span<float> errors, std::uint64_t draw,
                                  std::span<std::byte> encoded) const override {
    Codes codes;
    BlockScale scale;
    if (rounding_ == Rounding::nearest) scale = round_with_feedback(values, errors, kLargest, codes);
    if (scale.inverse == 0) return Compressor::encode_block_with_feedback(values, errors, draw, encoded);
    put(scale, codes, values.size(), encoded);
  }
  void decode_block(std::span<const std::byte> encoded, std::span<float> values) const override {
    const float scale = get_float(encoded.data());
    const std::byte* const from = encoded.data() + sizeof(float);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = scale * code(from[i]);
  }
  void reduce_block(std::span<const std::byte> encoded, std::span<float> sums) const override {
    const float scale = get_float(encoded.data());
    const std::byte* const from = encoded.data() + sizeof(float);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += scale * code(from[i]);
  }

 private:
  static constexpr std::int32_t kLargest = 127;
  static void put(const BlockScale& scale, const Codes& codes, std::size_t size, std::span<std::byte> encoded) {
    put_float(scale.scale, encoded.data());
    std::memcpy(encoded.data() + sizeof(float), codes.data(), size);
  }
  static float code(std::byte byte) { return static_cast<float>(static_cast<std::int8_t>(byte)); }
  Rounding rounding_;
};

class Int4 final : public Compressor {
 public:
  explicit Int4(Rounding rounding) : rounding_(rounding) {}
  std::int64_t block() const override { return kScaledBlock; }
  std::int64_t block_bytes(std::int64_t elements) const override {
    return static_cast<std::int64_t>(sizeof(float)) + (elements + 1) / 2;
  }
  void encode_block(std::span<const float> values, std::uint64_t draw, std::span<std::byte> encoded) const override {
    Codes codes;
    const BlockScale scale = quantize(values, kLargest, rounding_, draw, codes);
    put(scale, codes, values.size(), encoded);
  }
  void encode_block_with_feedback(std::span<const float> values, std::span<float> errors, std::uint64_t draw,
                                  std::span<std::byte> encoded) const override {
    Codes codes;
    BlockScale scale;
    if (rounding_ == Rounding::nearest) scale = round_with_feedback(values, errors, kLargest, codes);
    if (scale.inverse == 0) return Compressor::encode_block_with_feedback(values, errors, draw, encoded);
    put(scale, codes, values.size(), encoded);
  }
  void decode_block(std::span<const std::byte> encoded, std::span<float> values) const override {
    const float scale = get_float(encoded.data());
    const std::byte* const from = encoded.data() + sizeof(float);
    const std::size_t pairs = values.size() / 2;
    for (std::size_t i = 0; i < pairs; ++i) {
      values[2 * i] = scale * low(from[i]);
      values[2 * i + 1] = scale * high(from[i]);
    }
    if (values.size() % 2 != 0) values[2 * pairs] = scale * low(from[pairs]);
  }

 private:
  static constexpr std::int32_t kLargest = 7, kOffset = 8;
  static void put(const BlockScale& scale, const Codes& codes, std::size_t size, std::span<std::byte> encoded) {
    put_float(scale.scale, encoded.data());
    std::byte* const to = encoded.data() + sizeof(float);
    const std::size_t pairs = size / 2;
    for (std::size_t i = 0; i < pairs; ++i) {
      to[i] = static_cast<std::byte>((codes[2 * i] + kOffset) | ((codes[2 * i + 1] + kOffset) << 4));
    }
    if (size % 2 != 0) to[pairs] = static_cast<std::byte>(codes[2 * pairs] + kOffset);
  }
  static float low(std::byte byte) { return static_cast<float>((std::to_integer<std::int32_t>(byte) & 15) - kOffset); }
  static float high(std::byte byte) { return static_cast<float>((std::to_integer<std::int32_t>(byte) >> 4) - kOffset); }
  Rounding rounding_;
};

}  // namespace

const Compressor& int8_compressor() {
  static const Int8 kNearest(Rounding::nearest);
  return kNearest;
}

const Compressor& int8_stochastic_compressor() {
  static const Int8 kStochastic(Rounding::stochastic);
  return kStochastic;
}

const Compressor& int4_compressor() {
  static const Int4 kNearest(Rounding::nearest);
  return kNearest;
}

const Compressor& int4_stochastic_compressor() {
  static const Int4 kStochastic(Rounding::stochastic);
  return kStochastic;
}

}  // namespace weft
