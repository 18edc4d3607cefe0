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

template <class Codes>
class Fp8 final : public Compressor {
 public:
  Fp8() {
    for (std::uint32_t code = 0; code < values_.size(); ++code) values_[code] = Codes::value(code);
  }
  std::int64_t block() const override { return kScaledBlock; }
  std::int64_t block_bytes(std::int64_t elements) const override {
    return static_cast<std::int64_t>(sizeof(float)) + elements;
  }
  void encode_block(std::span<const float> values, std::uint64_t, std::span<std::byte> encoded) const override {
    const BlockScale scale = block_scale(values, Codes::largest_value());
    put_float(scale.scale, encoded.data());
    std::array<std::uint8_t, kScaledBlock> codes{};
    if (scale.inverse != 0) {
      for (std::size_t i = 0; i < values.size(); ++i) codes[i] = Codes::code(values[i] * scale.inverse);
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
  static const Fp8<Fp8E4m3> kCompressor;
  return kCompressor;
}

const Compressor& fp8_e5m2_compressor() {
  static const Fp8<Fp8E5m2> kCompressor;
  return kCompressor;
}

}  // namespace weft
