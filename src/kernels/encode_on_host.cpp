#include "kernels/encode_on_host.hpp"

#include <algorithm>

#include "compress/compressor.hpp"

namespace weft {
namespace {

// Calls visit(shard, its elements) for the shards that `size` elements have.
template <class Visit>
void for_each_shard(const EncodedShards& encoded, std::int64_t size, const Visit& visit) {
  for (std::int64_t shard = 0; shard < encoded.shards; ++shard) {
    const std::int64_t begin = std::min(size, shard * encoded.elements);
    const std::int64_t end = std::min(size, begin + encoded.elements);
    visit(shard, begin, end);
  }
}

std::span<std::byte> bytes_of_shard(const EncodedShards& encoded, std::int64_t number) {
  const std::int64_t bytes = encoded_bytes(encoded.format, encoded.elements).value;
  WEFT_CHECK((number + 1) * bytes <= encoded.bytes.size);
  return {encoded.bytes.data.address + number * bytes, static_cast<std::size_t>(bytes)};
}

// Adds up in slices that stay in the cache while the summands pass.
void sum_shard(const EncodedShards& encoded, std::int64_t shard, std::int64_t summands, std::span<float> sum) {
  const Compressor& compressor = compressor_of(encoded.format);
  constexpr std::size_t kSlice = kMaxCompressionBlock;  // whole blocks of every format
  for (std::size_t begin = 0; begin < sum.size(); begin += kSlice) {
    const std::span<float> slice = sum.subspan(begin, std::min(kSlice, sum.size() - begin));
    const auto first = static_cast<std::size_t>(encoded_bytes(encoded.format, static_cast<std::int64_t>(begin)).value);
    for (std::int64_t summand = 0; summand < summands; ++summand) {
      const std::span<const std::byte> from = bytes_of_shard(encoded, summand * encoded.shards + shard).subspan(first);
      if (summand == 0) {
        decode(compressor, from, slice);
      } else {
        reduce(compressor, from, slice);
      }
    }
  }
}

}  // namespace

void encode_on_host(const Vector& gradient, const Vector& errors, std::uint64_t seed, const EncodedShards& encoded) {
  WEFT_CHECK(gradient.size <= encoded.shards * encoded.elements && errors.size == gradient.size);
  const std::span<const float> values = floats_of(gradient);
  const std::span<float> errors_left = floats_of(errors);
  const Compressor& compressor = compressor_of(encoded.format);
  for_each_shard(encoded, gradient.size, [&](std::int64_t shard, std::int64_t begin, std::int64_t end) {
    const std::int64_t first_block = shard * ((encoded.elements + compressor.block() - 1) / compressor.block());
    const auto size = static_cast<std::size_t>(end - begin);
    encode_with_feedback(compressor, values.subspan(begin, size), errors_left.subspan(begin, size), {seed, first_block},
                         bytes_of_shard(encoded, shard));
  });
}

void decode_sum_on_host(const EncodedShards& encoded, std::int64_t summands, const Vector& sum) {
  WEFT_CHECK(summands >= 1 && sum.size <= encoded.shards * encoded.elements);
  const std::span<float> values = floats_of(sum);
  for_each_shard(encoded, sum.size, [&](std::int64_t shard, std::int64_t begin, std::int64_t end) {
    sum_shard(encoded, shard, summands, values.subspan(begin, static_cast<std::size_t>(end - begin)));
  });
}

}  // namespace weft
