// A hundredth of the elements of every block: their indices in the block (16 bits each, ascending), then their values.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/mix.hpp"
#include "compress/element_codes.hpp"
#include "compress/formats.hpp"

namespace weft {
namespace {

static_assert(kSparseBlock <= kMaxCompressionBlock);
constexpr std::int64_t kMaxKept = kept_of(kSparseBlock);

class Sparse : public Compressor {
 public:
  using Indices = std::array<std::uint16_t, kMaxKept>;

  std::int64_t block() const override { return kSparseBlock; }
  std::int64_t block_bytes(std::int64_t elements) const override {
    return kept_of(elements) * static_cast<std::int64_t>(sizeof(std::uint16_t) + sizeof(float));
  }
  void encode_block(std::span<const float> values, std::uint64_t draw, std::span<std::byte> encoded) const override {
    Indices indices{};
    const auto kept = static_cast<std::size_t>(kept_of(std::ssize(values)));
    choose(values, draw, {indices.data(), kept});
    std::array<float, kMaxKept> chosen{};
    for (std::size_t i = 0; i < kept; ++i) chosen[i] = values[indices[i]];
    std::memcpy(encoded.data(), indices.data(), kept * sizeof(std::uint16_t));
    std::memcpy(encoded.data() + kept * sizeof(std::uint16_t), chosen.data(), kept * sizeof(float));
  }
  void decode_block(std::span<const std::byte> encoded, std::span<float> values) const override {
    std::ranges::fill(values, 0.0F);
    reduce_block(encoded, values);
  }
  void reduce_block(std::span<const std::byte> encoded, std::span<float> sums) const override {
    const auto kept = static_cast<std::size_t>(kept_of(std::ssize(sums)));
    Indices indices{};
    std::array<float, kMaxKept> chosen{};
    std::memcpy(indices.data(), encoded.data(), kept * sizeof(std::uint16_t));
    std::memcpy(chosen.data(), encoded.data() + kept * sizeof(std::uint16_t), kept * sizeof(float));
    for (std::size_t i = 0; i < kept; ++i) {
      if (indices[i] < sums.size()) sums[indices[i]] += chosen[i];  // a broken message writes nowhere else
    }
  }

 private:
  // Writes as many ascending indices as `indices` has room for.
  virtual void choose(std::span<const float> values, std::uint64_t draw, std::span<std::uint16_t> indices) const = 0;
};

// The largest magnitudes, of equal ones the first. Infinity and NaN are the largest of all.
class TopK final : public Sparse {
  void choose(std::span<const float> values, std::uint64_t, std::span<std::uint16_t> indices) const override {
    // Magnitudes in the high bits, then the place counted from the end: the largest key is the first of the largest.
    std::array<std::uint64_t, kSparseBlock> keys;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint64_t magnitude = std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffffU;
      keys[i] = (magnitude << 16) | (kSparseBlock - 1 - i);
    }
    const auto end = keys.begin() + std::ssize(values);
    const auto last = keys.begin() + std::ssize(indices) - 1;
    std::nth_element(keys.begin(), last, end, std::greater<>());
    for (std::size_t i = 0; i < indices.size(); ++i) {
      indices[i] = static_cast<std::uint16_t>(kSparseBlock - 1 - static_cast<std::int64_t>(keys[i] & 0xffffU));
    }
    std::ranges::sort(indices);
  }
};

// One element of each of as many equal stretches as elements are kept. A value that is not finite is noticed only when
// it is chosen, which error feedback sees to within some steps.
class RandomK final : public Sparse {
  void choose(std::span<const float> values, std::uint64_t draw, std::span<std::uint16_t> indices) const override {
    const std::uint64_t size = values.size(), kept = indices.size();
    for (std::uint64_t i = 0; i < kept; ++i) {
      const std::uint64_t begin = i * size / kept, end = (i + 1) * size / kept;
      indices[i] = static_cast<std::uint16_t>(begin + mix_bits(draw + i) % (end - begin));
    }
  }
};

}  // namespace

const Compressor& top_k_compressor() {
  static const TopK kCompressor;
  return kCompressor;
}

const Compressor& random_k_compressor() {
  static const RandomK kCompressor;
  return kCompressor;
}

}  // namespace weft
