#include "compress/compressor.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/mix.hpp"
#include "compress/formats.hpp"

namespace weft {
namespace {

using BlockValues = std::array<float, kMaxCompressionBlock>;

// Calls visit(number of the block in its tensor, first element, elements, first byte, bytes) for every block.
template <class Visit>
void for_each_block(const Compressor& compressor, std::size_t elements, std::int64_t first_block, const Visit& visit) {
  const auto block = static_cast<std::size_t>(compressor.block());
  std::size_t byte = 0;
  for (std::size_t begin = 0; begin < elements; begin += block, ++first_block) {
    const std::size_t count = std::min(block, elements - begin);
    const auto bytes = static_cast<std::size_t>(compressor.block_bytes(static_cast<std::int64_t>(count)));
    visit(first_block, begin, count, byte, bytes);
    byte += bytes;
  }
}

std::uint64_t draw_of(const EncodedSlice& slice, std::int64_t block) {
  return mix_bits(slice.seed ^ mix_bits(static_cast<std::uint64_t>(block)));
}

}  // namespace

void Compressor::encode_block_with_feedback(std::span<const float> values, std::span<float> errors, std::uint64_t draw,
                                            std::span<std::byte> encoded) const {
  BlockValues wanted, sent;
  for (std::size_t i = 0; i < values.size(); ++i) wanted[i] = values[i] + errors[i];
  encode_block({wanted.data(), values.size()}, draw, encoded);
  decode_block(encoded, {sent.data(), values.size()});
  for (std::size_t i = 0; i < values.size(); ++i) errors[i] = wanted[i] - sent[i];
}

void Compressor::reduce_block(std::span<const std::byte> encoded, std::span<float> sums) const {
  BlockValues values;
  decode_block(encoded, {values.data(), sums.size()});
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
}

void Compressor::encode_blocks(std::span<const float> values, const EncodedSlice& slice,
                               std::span<std::byte> encoded) const {
  for_each_block(*this, values.size(), slice.first_block,
                 [&](std::int64_t block, auto begin, auto count, auto byte, auto bytes) {
                   encode_block(values.subspan(begin, count), draw_of(slice, block), encoded.subspan(byte, bytes));
                 });
}

void Compressor::encode_blocks_with_feedback(std::span<const float> values, std::span<float> errors,
                                             const EncodedSlice& slice, std::span<std::byte> encoded) const {
  for_each_block(*this, values.size(), slice.first_block,
                 [&](std::int64_t block, auto begin, auto count, auto byte, auto bytes) {
                   encode_block_with_feedback(values.subspan(begin, count), errors.subspan(begin, count),
                                              draw_of(slice, block), encoded.subspan(byte, bytes));
                 });
}

const Compressor& compressor_of(CompressionFormat format) {
  static const std::array<const Compressor*, kCompressionFormats> kCompressors{nullptr,
                                                                               &bf16_compressor(),
                                                                               &fp16_compressor(),
                                                                               &int8_compressor(),
                                                                               &int8_stochastic_compressor(),
                                                                               &int4_compressor(),
                                                                               &int4_stochastic_compressor(),
                                                                               &fp8_e4m3_compressor(),
                                                                               &fp8_e5m2_compressor(),
                                                                               &onebit_compressor(),
                                                                               &ternary_compressor(),
                                                                               &top_k_compressor(),
                                                                               &random_k_compressor()};
  const Compressor* const found = kCompressors[static_cast<std::size_t>(format)];
  WEFT_CHECK(found != nullptr);
  return *found;
}

void encode(const Compressor& compressor, std::span<const float> values, const EncodedSlice& slice,
            std::span<std::byte> encoded) {
  compressor.encode_blocks(values, slice, encoded);
}

void encode_with_feedback(const Compressor& compressor, std::span<const float> values, std::span<float> errors,
                          const EncodedSlice& slice, std::span<std::byte> encoded) {
  WEFT_CHECK(errors.size() == values.size());
  compressor.encode_blocks_with_feedback(values, errors, slice, encoded);
}

void decode(const Compressor& compressor, std::span<const std::byte> encoded, std::span<float> values) {
  for_each_block(compressor, values.size(), 0, [&](std::int64_t, auto begin, auto count, auto byte, auto bytes) {
    compressor.decode_block(encoded.subspan(byte, bytes), values.subspan(begin, count));
  });
}

void reduce(const Compressor& compressor, std::span<const std::byte> encoded, std::span<float> sums) {
  for_each_block(compressor, sums.size(), 0, [&](std::int64_t, auto begin, auto count, auto byte, auto bytes) {
    compressor.reduce_block(encoded.subspan(byte, bytes), sums.subspan(begin, count));
  });
}

}  // namespace weft
