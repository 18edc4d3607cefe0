// One or two bits for an element and a scale per block. A block is its scale and its codes, the first in the low bits.
#include <array>
#include <cmath>

#include "compress/block_scale.hpp"
#include "compress/formats.hpp"

namespace weft {
namespace {

// The mean magnitude, summed in eight lanes so that it is quick and the same everywhere. It is NaN where a value is not
// finite.
float mean_magnitude(std::span<const float> values) {
  constexpr std::size_t kLanes = 8;
  if (std::isnan(block_scale(values, 1).scale)) return not_a_number();
  std::array<float, kLanes> lanes{};
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += std::abs(values[i + lane]);
  }
  for (std::size_t lane = 0; i < values.size(); ++i, ++lane) lanes[lane] += std::abs(values[i]);
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum / static_cast<float>(values.size());
}

class OneBit final : public Compressor {
 public:
  std::int64_t block() const override { return kScaledBlock; }
  std::int64_t block_bytes(std::int64_t elements) const override {
    return static_cast<std::int64_t>(sizeof(float)) + (elements + 7) / 8;
  }
  void encode_block(std::span<const float> values, std::uint64_t, std::span<std::byte> encoded) const override {
    put_float(mean_magnitude(values), encoded.data());
    std::byte* const to = encoded.data() + sizeof(float);
    for (std::size_t byte = 0; 8 * byte < values.size(); ++byte) {
      std::uint32_t bits = 0;
      for (std::size_t i = 8 * byte; i < values.size() && i < 8 * byte + 8; ++i) {
        bits |= (std::bit_cast<std::uint32_t>(values[i]) >> 31) << (i % 8);
      }
      to[byte] = static_cast<std::byte>(bits);
    }
  }
  void decode_block(std::span<const std::byte> encoded, std::span<float> values) const override {
    const auto scale = std::bit_cast<std::uint32_t>(get_float(encoded.data()));
    const std::byte* const from = encoded.data() + sizeof(float);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint32_t negative = (std::to_integer<std::uint32_t>(from[i / 8]) >> (i % 8)) & 1U;
      values[i] = std::bit_cast<float>(scale ^ (negative << 31));
    }
  }
};

// TernGrad (Wen et al. 2017): an element is kept, as the block's largest magnitude, with the probability that makes
// its mean right. Codes: 0, 1 for +, 2 for -.
class Ternary final : public Compressor {
 public:
  std::int64_t block() const override { return kScaledBlock; }
  std::int64_t block_bytes(std::int64_t elements) const override {
    return static_cast<std::int64_t>(sizeof(float)) + (elements + 3) / 4;
  }
  void encode_block(std::span<const float> values, std::uint64_t draw, std::span<std::byte> encoded) const override {
    const BlockScale scale = block_scale(values, 1);
    const std::uint32_t key = key_of_draw(draw);
    put_float(scale.scale, encoded.data());
    std::byte* const to = encoded.data() + sizeof(float);
    for (std::size_t byte = 0; 4 * byte < values.size(); ++byte) {
      std::uint32_t bits = 0;
      for (std::size_t i = 4 * byte; i < values.size() && i < 4 * byte + 4; ++i) {
        bits |= ternary_code(values[i], scale.inverse, key, static_cast<std::uint32_t>(i)) << (2 * (i % 4));
      }
      to[byte] = static_cast<std::byte>(bits);
    }
  }
  void decode_block(std::span<const std::byte> encoded, std::span<float> values) const override {
    const float scale = get_float(encoded.data());
    const std::array<float, 4> of_code{0 * scale, scale, -scale, 0};
    const std::byte* const from = encoded.data() + sizeof(float);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = of_code[(std::to_integer<std::size_t>(from[i / 4]) >> (2 * (i % 4))) & 3U];
    }
  }
};

}  // namespace

const Compressor& onebit_compressor() {
  static const OneBit kCompressor;
  return kCompressor;
}

const Compressor& ternary_compressor() {
  static const Ternary kCompressor;
  return kCompressor;
}

}  // namespace weft
