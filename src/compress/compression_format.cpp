#include "compress/compression_format.hpp"

#include <array>

#include "base/checked.hpp"
#include "compress/compressor.hpp"

namespace weft {
namespace {

constexpr std::array<std::string_view, kAllCompressionFormats> kNames{
    "none",     "bf16",     "fp16",   "int8",    "int8-stochastic", "int4",     "int4-stochastic",
    "fp8-e4m3", "fp8-e5m2", "onebit", "ternary", "top-k",           "random-k", "power-sgd"};

// Found by encoding 2^24 normal numbers; two have closed forms. The largest magnitude m of 256 of them has a mean
// square of 8.1, and int8's steps are m / 127, so its error is sqrt(8.1 / 12) / 127 = 0.0065 to first order. One bit
// keeps 2 / pi of the mean square: sqrt(1 - 2 / pi) = 0.603. Factors of low rank keep next to nothing of independent
// numbers, whatever they keep of gradients.
constexpr std::array<double, kAllCompressionFormats> kExpectedErrors{
    0, 0.0017, 0.0002, 0.0070, 0.0098, 0.126, 0.179, 0.0261, 0.052, 0.602, 1.20, 0.957, 0.995, 1.0};

}  // namespace

std::string_view name_of(CompressionFormat format) {
  return kNames[static_cast<std::size_t>(format)];
}

std::optional<CompressionFormat> parse_compression_format(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<CompressionFormat>(i);
  }
  return std::nullopt;
}

std::string compression_format_names() {
  std::string names;
  for (std::size_t i = 1; i < kNames.size(); ++i) names.append(i > 1 ? ", " : "").append(kNames[i]);
  return names;
}

Bytes encoded_bytes(CompressionFormat format, std::int64_t elements) {
  constexpr std::string_view kWhat = "an encoded tensor";
  if (format == CompressionFormat::none) return {checked_product({elements, 4}, kWhat)};
  const Compressor& compressor = compressor_of(format);
  const std::int64_t blocks = elements / compressor.block(), rest = elements % compressor.block();
  const std::int64_t whole = checked_product({blocks, compressor.block_bytes(compressor.block())}, kWhat);
  return {checked_sum({whole, rest > 0 ? compressor.block_bytes(rest) : 0}, kWhat)};
}

double expected_error(CompressionFormat format) {
  return kExpectedErrors[static_cast<std::size_t>(format)];
}

}  // namespace weft
