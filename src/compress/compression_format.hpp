// The formats that gradients may travel in, by name, and what is known of each without encoding anything.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/units.hpp"

namespace weft {

// Plans and profiles use these numbers, so the order must not change.
enum class CompressionFormat : std::uint8_t {
  none,
  bf16,
  fp16,
  int8,             // eight bits and a scale per block, rounded to nearest
  int8_stochastic,  // rounded up or down at random, so that the mean of many encodings is the value
  int4,
  int4_stochastic,
  fp8_e4m3,  // a byte with 3 (2) bits of mantissa and a scale per block
  fp8_e5m2,
  onebit,    // the sign, and the mean magnitude of the block (Seide et al. 2014; 1-bit Adam)
  ternary,   // -1, 0 or 1 at random times the block's largest magnitude (TernGrad)
  top_k,     // the largest hundredth of a block with their indices
  random_k,  // a random hundredth of a block with their indices
  power_sgd  // two factors of low rank for every matrix (PowerSGD, Vogels et al. 2019): compress/low_rank.hpp
};
// Formats that encode elements block by block, each by a Compressor; `none` is counted among them.
inline constexpr int kCompressionFormats = static_cast<int>(CompressionFormat::random_k) + 1;
inline constexpr int kAllCompressionFormats = static_cast<int>(CompressionFormat::power_sgd) + 1;

std::string_view name_of(CompressionFormat format);  // "int8-stochastic"
// Finds a format by its name; "none" is one.
std::optional<CompressionFormat> parse_compression_format(std::string_view name);
// Returns all names but "none", separated by commas, for messages.
std::string compression_format_names();

// Returns the bytes that so many elements become; 4 for each with `none`. Those of `power_sgd` follow from the shapes
// of matrices (graph/factor_sizes.hpp).
Bytes encoded_bytes(CompressionFormat format, std::int64_t elements);

// Returns the relative error of one encoding of normally distributed values: the root of the mean square of what
// encoding takes away, divided by that of the values. Error feedback makes up for it over steps.
// compress_test measures each to a tenth.
double expected_error(CompressionFormat format);

}  // namespace weft
