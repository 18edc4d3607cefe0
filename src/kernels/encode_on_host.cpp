#include "kernels/encode_on_host.hpp"

#include <algorithm>
#include <array>

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

// Lanes keep vector registers busy; floats are exact enough for the few thousand elements of a slice.
double square_sum(std::span<const float> values) {
  constexpr std::size_t kLanes = 16;
  std::array<float, kLanes> lanes{};
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += values[i + lane] * values[i + lane];
  }
  double sum = 0;
  for (; i < values.size(); ++i) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  for (const float lane : lanes) sum += static_cast<double>(lane);
  return sum;
}

// Encodes a shard in slices, whose squares are taken while they are in the cache.
EncodedSquares encode_shard(const Compressor& compressor, CompressionFormat format, std::span<const float> values,
                            std::span<float> errors, EncodedSlice slice, std::span<std::byte> encoded) {
  constexpr std::size_t kSlice = kMaxCompressionBlock;  // whole blocks of every format
  EncodedSquares squares;
  for (std::size_t begin = 0; begin < values.size(); begin += kSlice) {
    const std::size_t size = std::min(kSlice, values.size() - begin);
    const auto first = static_cast<std::size_t>(encoded_bytes(format, static_cast<std::int64_t>(begin)).value);
    const std::span<float> left = errors.subspan(begin, size);
    encode_with_feedback(compressor, values.subspan(begin, size), left, slice, encoded.subspan(first));
    slice.first_block += static_cast<std::int64_t>(kSlice) / compressor.block();
    squares.gradient += square_sum(values.subspan(begin, size));
    squares.error += square_sum(left);
  }
  return squares;
}

}  // namespace

EncodedSquares encode_on_host(const Vector& gradient, const Vector& errors, std::uint64_t seed,
                              const EncodedShards& encoded) {
  WEFT_CHECK(gradient.size <= encoded.shards * encoded.elements && errors.size == gradient.size);
  const std::span<const float> values = floats_of(gradient);
  const std::span<float> errors_left = floats_of(errors);
  const Compressor& compressor = compressor_of(encoded.format);
  EncodedSquares squares;
  for_each_shard(encoded, gradient.size, [&](std::int64_t shard, std::int64_t begin, std::int64_t end) {
    const std::int64_t first_block = shard * ((encoded.elements + compressor.block() - 1) / compressor.block());
    const auto size = static_cast<std::size_t>(end - begin);
    const EncodedSquares of_shard =
        encode_shard(compressor, encoded.format, values.subspan(begin, size), errors_left.subspan(begin, size),
                     {seed, first_block}, bytes_of_shard(encoded, shard));
    squares.gradient += of_shard.gradient;
    squares.error += of_shard.error;
  });
  return squares;
}

void decode_sum_on_host(const EncodedShards& encoded, std::int64_t summands, const Vector& sum) {
  WEFT_CHECK(summands >= 1 && sum.size <= encoded.shards * encoded.elements);
  const std::span<float> values = floats_of(sum);
  for_each_shard(encoded, sum.size, [&](std::int64_t shard, std::int64_t begin, std::int64_t end) {
    sum_shard(encoded, shard, summands, values.subspan(begin, static_cast<std::size_t>(end - begin)));
  });
}

}  // namespace weft
