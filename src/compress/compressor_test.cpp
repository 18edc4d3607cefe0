// Every format against a reference that is written from its definition, one element at a time, without bit tricks.
#include "compress/compressor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "base/mix.hpp"
#include "compress/block_scale.hpp"

namespace weft {
namespace {

using Floats = std::vector<float>;

Floats normal_numbers(std::size_t count, std::uint64_t seed, float deviation = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  Floats values(count);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<std::byte> encoded_of(CompressionFormat format, const Floats& values, std::uint64_t seed = 1) {
  std::vector<std::byte> encoded(encoded_bytes(format, std::ssize(values)).value);
  encode(compressor_of(format), values, {seed, 0}, encoded);
  return encoded;
}

Floats decoded_of(CompressionFormat format, const Floats& values, std::uint64_t seed = 1) {
  Floats result(values.size());
  decode(compressor_of(format), encoded_of(format, values, seed), result);
  return result;
}

std::vector<CompressionFormat> all_formats() {
  std::vector<CompressionFormat> formats;
  for (int i = 1; i < kCompressionFormats; ++i) formats.push_back(static_cast<CompressionFormat>(i));
  return formats;
}

constexpr CompressionFormat kScaled[] = {CompressionFormat::int8,     CompressionFormat::int8_stochastic,
                                         CompressionFormat::int4,     CompressionFormat::int4_stochastic,
                                         CompressionFormat::fp8_e4m3, CompressionFormat::fp8_e5m2,
                                         CompressionFormat::onebit,   CompressionFormat::ternary};

// All non-negative numbers of an 8-bit float, in the order of their codes.
std::vector<double> fp8_numbers(int exponent_bits, int mantissa_bits, int codes) {
  std::vector<double> numbers;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  for (int code = 0; code < codes; ++code) {
    const int exponent = code >> mantissa_bits, fraction = code & ((1 << mantissa_bits) - 1);
    const double mantissa = fraction / static_cast<double>(1 << mantissa_bits);
    numbers.push_back(exponent == 0 ? std::ldexp(mantissa, 1 - bias) : std::ldexp(1 + mantissa, exponent - bias));
  }
  return numbers;
}

// The nearest by search over all of them; of two as near, the one with the even code.
double nearest(const std::vector<double>& numbers, double x) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < numbers.size(); ++i) {
    const double now = std::abs(numbers[i] - std::abs(x)), before = std::abs(numbers[best] - std::abs(x));
    if (now < before || (now == before && i % 2 == 0)) best = i;
  }
  return std::copysign(numbers[best], x);
}

float largest_of(std::span<const float> block) {
  float largest = 0;
  for (const float value : block) largest = std::max(largest, std::abs(value));
  return largest;
}

float mean_of(std::span<const float> block) {  // in eight sums, element i in sum i mod 8
  std::array<float, 8> sums{};
  for (std::size_t i = 0; i < block.size(); ++i) sums[i % 8] += std::abs(block[i]);
  return std::accumulate(sums.begin(), sums.end(), 0.0F) / static_cast<float>(block.size());
}

float quantized(float x, float largest, float levels) {
  return largest / levels * std::nearbyint(x * (levels / largest));
}

float quantized_at_random(float x, float largest, float levels, float random) {
  const float code = std::floor(x * (levels / largest) + random);
  return largest / levels * std::clamp(code, -levels, levels);
}

Floats reference(CompressionFormat format, std::span<const float> block, std::uint64_t draw) {
  static const std::vector<double> kE4m3 = fp8_numbers(4, 3, 0x7f), kE5m2 = fp8_numbers(5, 2, 0x7c);
  const float largest = largest_of(block), mean = mean_of(block);
  const auto key = static_cast<std::uint32_t>(draw ^ (draw >> 32));
  Floats result;
  for (std::size_t i = 0; i < block.size(); ++i) {
    const float x = block[i], u = unit_random(key, static_cast<std::uint32_t>(i));
    switch (format) {
      case CompressionFormat::int8:
        result.push_back(quantized(x, largest, 127));
        break;
      case CompressionFormat::int8_stochastic:
        result.push_back(quantized_at_random(x, largest, 127, u));
        break;
      case CompressionFormat::int4:
        result.push_back(quantized(x, largest, 7));
        break;
      case CompressionFormat::int4_stochastic:
        result.push_back(quantized_at_random(x, largest, 7, u));
        break;
      case CompressionFormat::fp8_e4m3:
        result.push_back(largest / 448 * static_cast<float>(nearest(kE4m3, x * (448 / largest))));
        break;
      case CompressionFormat::fp8_e5m2:
        result.push_back(largest / 57344 * static_cast<float>(nearest(kE5m2, x * (57344 / largest))));
        break;
      case CompressionFormat::onebit:
        result.push_back(std::copysign(mean, x));
        break;
      case CompressionFormat::ternary:
        result.push_back(u < std::abs(x) * (1 / largest) ? std::copysign(largest, x) : 0);
        break;
      default:
        ADD_FAILURE();
    }
  }
  return result;
}

TEST(Compressor, FormatsWithAScaleEqualTheirDefinitionBitByBit) {
  constexpr std::uint64_t kSeed = 7;
  for (const std::size_t size : {1U, 7U, 255U, 256U, 257U, 5000U}) {
    const Floats values = normal_numbers(size, size, 1e-3F);
    for (const CompressionFormat format : kScaled) {
      const Floats found = decoded_of(format, values, kSeed);
      for (std::size_t block = 0; 256 * block < size; ++block) {
        const std::size_t count = std::min<std::size_t>(256, size - 256 * block);
        const Floats expected =
            reference(format, std::span(values).subspan(256 * block, count), mix_bits(kSeed ^ mix_bits(block)));
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(found[256 * block + i], expected[i]) << name_of(format) << " " << size << " " << block << " " << i;
        }
      }
    }
  }
}

TEST(Compressor, HalfFloatsAreTheNearestOnes) {
  const Floats values = normal_numbers(1000, 3);
  const Floats bf16 = decoded_of(CompressionFormat::bf16, values), fp16 = decoded_of(CompressionFormat::fp16, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    int exponent = 0;
    std::frexp(values[i], &exponent);  // magnitude in [1/2, 1) 2^exponent
    const auto rounded = [&](int bits) {
      const double step = std::ldexp(1.0, exponent - bits);
      return static_cast<float>(std::nearbyint(values[i] / step) * step);
    };
    EXPECT_EQ(bf16[i], rounded(8));
    EXPECT_EQ(fp16[i], rounded(std::min(11, exponent + 24)));  // subnormal below 2^-14: steps of 2^-24
  }
}

TEST(Compressor, TopKKeepsTheLargestHundredthOfABlockAsItIs) {
  Floats values = normal_numbers(4096 + 150, 4);
  values[10] = values[20] = 100;  // of equal ones the first
  const Floats found = decoded_of(CompressionFormat::top_k, values);
  const auto check = [&](std::size_t begin, std::size_t count, std::size_t kept) {
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), begin);
    std::ranges::stable_sort(order, [&](auto a, auto b) { return std::abs(values[a]) > std::abs(values[b]); });
    for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(found[order[i]], i < kept ? values[order[i]] : 0);
  };
  check(0, 4096, 41);
  check(4096, 150, 2);
}

TEST(Compressor, RandomKKeepsAHundredthAndEveryElementNowAndThen) {
  const Floats values(500, 2.5F);
  std::vector<int> times(values.size(), 0);
  constexpr int kDraws = 4000;
  for (int seed = 0; seed < kDraws; ++seed) {
    const Floats found = decoded_of(CompressionFormat::random_k, values, seed);
    EXPECT_EQ(std::ranges::count(found, 2.5F), 5);
    EXPECT_EQ(std::ranges::count(found, 0.0F), 495);
    for (std::size_t i = 0; i < found.size(); ++i) times[i] += found[i] != 0 ? 1 : 0;
  }
  // Each is kept once in a hundred: 40 times, with a standard deviation of 6.3.
  EXPECT_GT(*std::ranges::min_element(times), 40 - 5 * 6.3);
  EXPECT_LT(*std::ranges::max_element(times), 40 + 5 * 6.3);
}

TEST(Compressor, RoundingAtRandomIsRightOnAverage) {
  const Floats values = normal_numbers(256, 5);
  for (const CompressionFormat format :
       {CompressionFormat::int8_stochastic, CompressionFormat::int4_stochastic, CompressionFormat::ternary}) {
    constexpr int kDraws = 4000;
    std::vector<double> sums(values.size(), 0);
    for (int seed = 0; seed < kDraws; ++seed) {
      const Floats found = decoded_of(format, values, seed);
      for (std::size_t i = 0; i < found.size(); ++i) sums[i] += found[i];
    }
    // One code more or less has a deviation of at most half a step; the mean of 4000 of it / 63.
    const double step = largest_of(values) / (format == CompressionFormat::int8_stochastic   ? 127
                                              : format == CompressionFormat::int4_stochastic ? 7
                                                                                             : 1);
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(sums[i] / kDraws, values[i], 5 * step / 2 / 63);
  }
}

TEST(Compressor, ErrorsOfNormalNumbersAreTheExpectedOnes) {
  const Floats values = normal_numbers(1 << 18, 6);
  const auto square_sum = [](const Floats& x) { return std::inner_product(x.begin(), x.end(), x.begin(), 0.0); };
  for (const CompressionFormat format : all_formats()) {
    Floats difference = decoded_of(format, values);
    for (std::size_t i = 0; i < values.size(); ++i) difference[i] -= values[i];
    const double error = std::sqrt(square_sum(difference) / square_sum(values));
    EXPECT_NEAR(error, expected_error(format), 0.1 * expected_error(format)) << name_of(format);
  }
}

TEST(Compressor, BytesFollowFromTheDefinitions) {
  const auto bytes = [](CompressionFormat format, std::int64_t n) { return encoded_bytes(format, n).value; };
  EXPECT_EQ(bytes(CompressionFormat::none, 1000), 4000);
  EXPECT_EQ(bytes(CompressionFormat::bf16, 1000), 2000);
  EXPECT_EQ(bytes(CompressionFormat::int8, 1000), 1000 + 4 * 4);  // four blocks
  EXPECT_EQ(bytes(CompressionFormat::int4, 1001), 501 + 4 * 4);   // two in a byte
  EXPECT_EQ(bytes(CompressionFormat::fp8_e5m2, 512), 512 + 2 * 4);
  EXPECT_EQ(bytes(CompressionFormat::onebit, 300), (32 + 6) + 2 * 4);  // 256 and 44 bits
  EXPECT_EQ(bytes(CompressionFormat::ternary, 300), (64 + 11) + 2 * 4);
  EXPECT_EQ(bytes(CompressionFormat::top_k, 5000), (41 + 10) * 6);  // of 4096 and of 904
  EXPECT_EQ(bytes(CompressionFormat::random_k, 0), 0);
}

TEST(Compressor, SlicesOfWholeBlocksGiveWhatTheWholeGives) {
  const Floats values = normal_numbers(3 * 4096 + 77, 8);
  for (const CompressionFormat format : all_formats()) {
    const Compressor& compressor = compressor_of(format);
    const std::int64_t first = std::int64_t{2} * 4096;
    std::vector<std::byte> pieces(encoded_bytes(format, std::ssize(values)).value);
    const std::int64_t at = encoded_bytes(format, first).value;
    encode(compressor, std::span(values).first(first), {1, 0}, std::span(pieces).first(at));
    encode(compressor, std::span(values).subspan(first), {1, first / compressor.block()},
           std::span(pieces).subspan(at));
    EXPECT_EQ(pieces, encoded_of(format, values)) << name_of(format);
  }
}

TEST(Compressor, ReducingAddsWhatDecodingGives) {
  const Floats values = normal_numbers(9001, 9), sums = normal_numbers(9001, 10);
  for (const CompressionFormat format : all_formats()) {
    Floats found = sums;
    reduce(compressor_of(format), encoded_of(format, values), found);
    const Floats decoded = decoded_of(format, values);
    for (std::size_t i = 0; i < sums.size(); ++i) ASSERT_EQ(found[i], sums[i] + decoded[i]) << name_of(format);
  }
}

// What was sent in all steps and the last errors are the sum of all gradients, to the rounding of the additions.
TEST(Compressor, ErrorFeedbackLosesNothingOverManySteps) {
  constexpr int kSteps = 200;
  for (const CompressionFormat format : all_formats()) {
    Floats errors(1000, 0), sent(1000);
    std::vector<double> of_gradients(1000, 0), of_sent(1000, 0);
    double largest_error = 0;
    for (int step = 0; step < kSteps; ++step) {
      const Floats gradient = normal_numbers(1000, 100 + step);
      std::vector<std::byte> encoded(encoded_bytes(format, 1000).value);
      encode_with_feedback(compressor_of(format), gradient, errors, {static_cast<std::uint64_t>(step), 0}, encoded);
      decode(compressor_of(format), encoded, sent);
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        of_gradients[i] += gradient[i];
        of_sent[i] += sent[i];
        largest_error = std::max(largest_error, static_cast<double>(std::abs(errors[i])));
      }
    }
    // Each step rounds gradient + error once and what is left of it once, each by half a unit of numbers below
    // largest_error + 8.
    const double rounding = 2 * kSteps * (largest_error + 8) * std::numeric_limits<float>::epsilon() / 2;
    for (std::size_t i = 0; i < errors.size(); ++i) {
      EXPECT_NEAR(of_sent[i] + errors[i], of_gradients[i], rounding) << name_of(format);
    }
  }
}

TEST(Compressor, ABlockThatIsNotFiniteDecodesToOneThatIsNot) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Floats values = normal_numbers(300, 11);
    values[280] = bad;
    for (const CompressionFormat format : all_formats()) {
      if (format == CompressionFormat::random_k) continue;  // it sees only what it chooses
      EXPECT_TRUE(std::ranges::any_of(decoded_of(format, values), [](float x) { return !std::isfinite(x); }))
          << name_of(format);
    }
  }
}

TEST(Compressor, ZerosAndNumbersTooSmallToScaleStayFinite) {
  for (const CompressionFormat format : all_formats()) {
    for (const float value : {0.0F, 1e-38F, -1e-45F}) {
      for (const float decoded : decoded_of(format, Floats(300, value))) {
        EXPECT_LE(std::abs(decoded), 2e-38F) << name_of(format);
      }
    }
  }
}

TEST(CompressionFormat, NamesAreReadBack) {
  for (const CompressionFormat format : all_formats()) EXPECT_EQ(parse_compression_format(name_of(format)), format);
  EXPECT_FALSE(parse_compression_format("int7"));
  EXPECT_EQ(compression_format_names().substr(0, 16), "bf16, fp16, int8");
}

// Formats may look at several blocks at once. Blocks of zeros, of numbers too small to divide by, and with a NaN lie
// between others, and the last one is not full.
TEST(Compressor, BlocksTogetherGiveWhatEachGivesByItself) {
  Floats values = normal_numbers(11 * kScaledBlock + 77, 5);
  const auto block = [&](std::int64_t number) {
    return std::span(values).subspan(number * kScaledBlock, kScaledBlock);
  };
  std::ranges::fill(block(2), 0.0F);
  for (float& value : block(5)) value *= 0x1p-120F;
  block(8)[17] = std::numeric_limits<float>::quiet_NaN();
  for (const CompressionFormat format : all_formats()) {
    const Compressor& compressor = compressor_of(format);
    const Floats errors_before = normal_numbers(values.size(), 6, 0.01F);
    Floats errors = errors_before, errors_apart = errors_before;
    std::vector<std::byte> together(encoded_bytes(format, std::ssize(values)).value), apart(together.size());
    std::vector<std::byte> with_errors(together.size()), with_errors_apart(together.size());
    encode(compressor, values, {3, 0}, together);
    encode_with_feedback(compressor, values, errors, {3, 0}, with_errors);
    const auto step = static_cast<std::size_t>(compressor.block());
    for (std::size_t begin = 0; begin < values.size(); begin += step) {
      const std::size_t size = std::min(step, values.size() - begin);
      const auto byte = static_cast<std::size_t>(encoded_bytes(format, static_cast<std::int64_t>(begin)).value);
      const std::span<const float> own = std::span<const float>(values).subspan(begin, size);
      const std::uint64_t draw = mix_bits(3 ^ mix_bits(begin / step));
      const auto bytes = static_cast<std::size_t>(compressor.block_bytes(static_cast<std::int64_t>(size)));
      compressor.encode_block(own, draw, std::span(apart).subspan(byte, bytes));
      compressor.encode_block_with_feedback(own, std::span(errors_apart).subspan(begin, size), draw,
                                            std::span(with_errors_apart).subspan(byte, bytes));
    }
    EXPECT_EQ(together, apart) << name_of(format);
    EXPECT_EQ(with_errors, with_errors_apart) << name_of(format);
    EXPECT_EQ(std::memcmp(errors.data(), errors_apart.data(), errors.size() * sizeof(float)), 0) << name_of(format);
  }
}

}  // namespace
}  // namespace weft
