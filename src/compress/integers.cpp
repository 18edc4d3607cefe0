// Blocks of small integers with one scale: eight bits (one byte each) or four (two in a byte, the first in the low
// half). A block is its scale and its codes.
#include <array>

#include "compress/block_scale.hpp"
#include "compress/formats.hpp"
#include "compress/nearest_bytes.hpp"

namespace weft {
namespace {

enum class Rounding : std::uint8_t { nearest, stochastic };

using Codes = std::array<std::int8_t, kScaledBlock>;

void round_to_nearest(std::span<const float> values, float inverse, Codes& codes) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    codes[i] = nearest_code(values[i], inverse);
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
    const float shifted = wanted[i] * scale.inverse + kNearestShift;
    codes[i] = static_cast<std::int8_t>(std::bit_cast<std::int32_t>(shifted));
    errors[i] = wanted[i] - scale.scale * (shifted - kNearestShift);
  }
  return scale;
}

void round_at_random(std::span<const float> values, const BlockScale& scale, std::int32_t largest, std::uint64_t draw,
                     Codes& codes) {
  const std::uint32_t key = key_of_draw(draw);
  for (std::size_t i = 0; i < values.size(); ++i) {
    codes[i] = random_code(values[i], scale.inverse, largest, key, static_cast<std::uint32_t>(i));
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
  void encode_blocks(std::span<const float> values, const EncodedSlice& slice,
                     std::span<std::byte> encoded) const override {
    if (rounding_ != Rounding::nearest) return Compressor::encode_blocks(values, slice, encoded);
    const std::size_t whole = in_whole_blocks(values.size());
    nearest_bytes::encode_blocks(
        nearest_bytes::Plain(values.data()), whole, kLargest, encoded.data(),
        [&](std::size_t at, std::byte* to) { encode_block(values.subspan(at, kScaledBlock), 0, {to, kWholeBytes}); });
    if (whole == values.size()) return;
    encode_block(values.subspan(whole), 0, encoded.subspan(whole / kScaledBlock * kWholeBytes));
  }
  void encode_blocks_with_feedback(std::span<const float> values, std::span<float> errors, const EncodedSlice& slice,
                                   std::span<std::byte> encoded) const override {
    if (rounding_ != Rounding::nearest) {
      return Compressor::encode_blocks_with_feedback(values, errors, slice, encoded);
    }
    const std::size_t whole = in_whole_blocks(values.size());
    nearest_bytes::encode_blocks(nearest_bytes::WithErrors(values.data(), errors.data()), whole, kLargest,
                                 encoded.data(), [&](std::size_t at, std::byte* to) {
                                   encode_block_with_feedback(values.subspan(at, kScaledBlock),
                                                              errors.subspan(at, kScaledBlock), 0, {to, kWholeBytes});
                                 });
    if (whole == values.size()) return;
    encode_block_with_feedback(values.subspan(whole), errors.subspan(whole), 0,
                               encoded.subspan(whole / kScaledBlock * kWholeBytes));
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
  static constexpr std::int32_t kLargest = kLargestInt8;
  static void put(const BlockScale& scale, const Codes& codes, std::size_t size, std::span<std::byte> encoded) {
    put_float(scale.scale, encoded.data());
    std::memcpy(encoded.data() + sizeof(float), codes.data(), size);
  }
  static constexpr std::size_t kWholeBytes = sizeof(float) + static_cast<std::size_t>(kScaledBlock);
  static std::size_t in_whole_blocks(std::size_t elements) { return elements - elements % kScaledBlock; }
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
  static constexpr std::int32_t kLargest = kLargestInt4, kOffset = kInt4Offset;
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
