#include "kernels/encode_on_host.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/half_float.hpp"
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
void encode_shard(const Compressor& compressor, CompressionFormat format, std::span<const float> values,
                  std::span<float> errors, EncodedSlice slice, std::span<std::byte> encoded, EncodedSquares* squares) {
  constexpr std::size_t kSlice = kMaxCompressionBlock;  // whole blocks of every format
  for (std::size_t begin = 0; begin < values.size(); begin += kSlice) {
    const std::size_t size = std::min(kSlice, values.size() - begin);
    const auto first = static_cast<std::size_t>(encoded_bytes(format, static_cast<std::int64_t>(begin)).value);
    const std::span<float> left = errors.subspan(begin, size);
    encode_with_feedback(compressor, values.subspan(begin, size), left, slice, encoded.subspan(first));
    slice.first_block += static_cast<std::int64_t>(kSlice) / compressor.block();
    if (squares == nullptr) continue;
    squares->gradient += square_sum(values.subspan(begin, size));
    squares->error += square_sum(left);
  }
}

// Elements as floats: as they lie in memory, or widened in `copy`.
std::span<const float> widened(const Vector& values, std::vector<float>& copy) {
  if (values.data.type == ElementType::fp32) return floats_of(values);
  std::vector<std::uint16_t> halves(static_cast<std::size_t>(values.size));
  std::memcpy(halves.data(), values.data.address, halves.size() * sizeof(std::uint16_t));
  copy.resize(halves.size());
  std::ranges::transform(halves, copy.begin(), float_from_bf16);
  return copy;
}

void write_rounded(std::span<const float> values, const Vector& to) {
  std::vector<std::uint16_t> halves(values.size());
  std::ranges::transform(values, halves.begin(), bf16_from_float);
  std::memcpy(to.data.address, halves.data(), halves.size() * sizeof(std::uint16_t));
}

void decode_shards(const EncodedShards& encoded, std::int64_t summands, std::span<float> values) {
  for_each_shard(encoded, std::ssize(values), [&](std::int64_t shard, std::int64_t begin, std::int64_t end) {
    sum_shard(encoded, shard, summands, values.subspan(begin, static_cast<std::size_t>(end - begin)));
  });
}

}  // namespace

void encode_on_host(const Vector& values, const Vector& errors, const EncodingDraw& draw, const EncodedShards& encoded,
                    EncodedSquares* squares) {
  std::vector<float> copy;
  const std::span<const float> numbers = widened(values, copy);
  const std::span<float> left = errors.empty() ? std::span<float>() : floats_of(errors);
  const Compressor& compressor = compressor_of(encoded.format);
  if (squares != nullptr) *squares = {};
  for_each_shard(encoded, values.size, [&](std::int64_t shard, std::int64_t begin, std::int64_t end) {
    const std::int64_t blocks = (encoded.elements + compressor.block() - 1) / compressor.block();
    const EncodedSlice slice{draw.seed, draw.first_block + shard * blocks};
    const auto first = static_cast<std::size_t>(begin), size = static_cast<std::size_t>(end - begin);
    if (!left.empty()) {
      encode_shard(compressor, encoded.format, numbers.subspan(first, size), left.subspan(first, size), slice,
                   bytes_of_shard(encoded, shard), squares);
      return;
    }
    encode(compressor, numbers.subspan(first, size), slice, bytes_of_shard(encoded, shard));
    if (squares != nullptr) squares->gradient += square_sum(numbers.subspan(first, size));
  });
}

void decode_sum_on_host(const EncodedShards& encoded, std::int64_t summands, const Vector& sum, Into into) {
  if (sum.data.type == ElementType::fp32 && into == Into::overwrite) {
    return decode_shards(encoded, summands, floats_of(sum));
  }
  std::vector<float> decoded(static_cast<std::size_t>(sum.size)), copy;
  decode_shards(encoded, summands, decoded);
  if (into == Into::add) {
    const std::span<const float> before = widened(sum, copy);
    for (std::size_t i = 0; i < decoded.size(); ++i) decoded[i] += before[i];
  }
  if (sum.data.type == ElementType::bf16) return write_rounded(decoded, sum);
  std::ranges::copy(decoded, floats_of(sum).begin());
}

}  // namespace weft
