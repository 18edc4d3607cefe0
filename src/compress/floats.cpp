// Narrower floats: bf16 and fp16 as they are, fp8 with a scale per block in front of its codes.
#include <array>

#include "base/half_float.hpp"
#include "compress/block_scale.hpp"
#include "compress/formats.hpp"

namespace weft {
namespace {

template <std::uint16_t (*narrow)(float), float (*widen)(std::uint16_t)>
class HalfFloats final : public Compressor {
 public:
  std::int64_t block() const override { return kScaledBlock; }
  std::int64_t block_bytes(std::int64_t elements) const override {
    return elements * static_cast<std::int64_t>(sizeof(std::uint16_t));
  }
  void encode_block(std::span<const float> values, std::uint64_t, std::span<std::byte> encoded) const override {
    Halves halves;
    for (std::size_t i = 0; i < values.size(); ++i) halves[i] = narrow(values[i]);
    std::memcpy(encoded.data(), halves.data(), values.size() * sizeof(std::uint16_t));
  }
  void decode_block(std::span<const std::byte> encoded, std::span<float> values) const override {
    Halves halves;
    std::memcpy(halves.data(), encoded.data(), values.size() * sizeof(std::uint16_t));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = widen(halves[i]);
  }

 private:
  using Halves = std::array<std::uint16_t, kScaledBlock>;
};

// The layouts of OCP's 8-bit floats: a sign, an exponent, `mantissa` bits. `largest` is the code of the largest number.
struct Fp8Layout {
  int mantissa;
  int bias;
  std::uint32_t largest;
  float largest_value;
};
constexpr Fp8Layout kE4m3{3, 7, 0x7e, 448};
constexpr Fp8Layout kE5m2{2, 15, 0x7b, 57344};

// Rounds to nearest, ties to even. Below the smallest normal number, adding a power of two whose last bit is that of
// the subnormal numbers makes the FPU round.
template <const Fp8Layout& layout>
std::uint8_t fp8_code(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 24) & 0x80U, magnitude = bits & 0x7fffffffU;
  constexpr int kDropped = 23 - layout.mantissa;
  constexpr auto kExponent = [](int power) { return static_cast<std::uint32_t>(power + 127) << 23; };
  constexpr std::uint32_t kSmallestNormal = kExponent(1 - layout.bias);
  constexpr std::uint32_t kMagic = kExponent(1 - layout.bias - layout.mantissa + 23);
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(kMagic)) - kMagic;
  const std::uint32_t odd = (magnitude >> kDropped) & 1U;
  const std::uint32_t normal =
      (magnitude - (static_cast<std::uint32_t>(127 - layout.bias) << 23) + ((1U << (kDropped - 1)) - 1U) + odd) >>
      kDropped;
  const std::uint32_t code = magnitude < kSmallestNormal ? subnormal : normal;
  return static_cast<std::uint8_t>(sign | (code > layout.largest ? layout.largest : code));
}

float fp8_value(std::uint32_t code, const Fp8Layout& layout) {
  const std::uint32_t fraction = code & ((1U << layout.mantissa) - 1U);
  const int exponent = static_cast<int>((code & 0x7fU) >> layout.mantissa);
  float value = static_cast<float>(exponent == 0 ? fraction : fraction + (1U << layout.mantissa));
  const int power = (exponent == 0 ? 1 : exponent) - layout.bias - layout.mantissa;
  value *= std::bit_cast<float>(static_cast<std::uint32_t>(power + 127) << 23);
  return (code & 0x80U) != 0 ? -value : value;
}

template <const Fp8Layout& layout>
class Fp8 final : public Compressor {
 public:
  Fp8() {
    for (std::uint32_t code = 0; code < values_.size(); ++code) values_[code] = fp8_value(code, layout);
  }
  std::int64_t block() const override { return kScaledBlock; }
  std::int64_t block_bytes(std::int64_t elements) const override {
    return static_cast<std::int64_t>(sizeof(float)) + elements;
  }
  void encode_block(std::span<const float> values, std::uint64_t, std::span<std::byte> encoded) const override {
    const BlockScale scale = block_scale(values, layout.largest_value);
    put_float(scale.scale, encoded.data());
    std::array<std::uint8_t, kScaledBlock> codes{};
    if (scale.inverse != 0) {
      for (std::size_t i = 0; i < values.size(); ++i) codes[i] = fp8_code<layout>(values[i] * scale.inverse);
    }
    std::memcpy(encoded.data() + sizeof(float), codes.data(), values.size());
  }
  void decode_block(std::span<const std::byte> encoded, std::span<float> values) const override {
    const float scale = get_float(encoded.data());
    const std::byte* const from = encoded.data() + sizeof(float);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = scale * values_[std::to_integer<std::size_t>(from[i])];
  }

 private:
  std::array<float, 256> values_;
};

}  // namespace

const Compressor& bf16_compressor() {
  static const HalfFloats<bf16_from_float, float_from_bf16> kBf16;
  return kBf16;
}

const Compressor& fp16_compressor() {
  static const HalfFloats<f16_from_float, float_from_f16> kFp16;
  return kFp16;
}

const Compressor& fp8_e4m3_compressor() {
  static const Fp8<kE4m3> kCompressor;
  return kCompressor;
}

const Compressor& fp8_e5m2_compressor() {
  static const Fp8<kE5m2> kCompressor;
  return kCompressor;
}

}  // namespace weft
