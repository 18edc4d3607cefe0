// Encodes floats in fewer bytes and back. A format works on blocks of consecutive elements, each encoded by itself, so
// that a tensor may be encoded in slices of whole blocks, by several threads, or fused with what makes its values.
// docs/adding-a-compressor.md adds one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/compression_format.hpp"

namespace weft {

inline constexpr std::int64_t kMaxCompressionBlock = 4096;  // elements; two such blocks fit in a first-level cache

// A slice of a tensor that begins at a whole block. Random numbers follow from the seed and from the number of the
// block in its tensor, so slices together give what the whole gives.
struct EncodedSlice {
  std::uint64_t seed = 0;
  std::int64_t first_block = 0;
};

class Compressor {
 public:
  virtual ~Compressor() = default;
  // Returns the elements of a block, at most kMaxCompressionBlock. The last block of a tensor may have fewer.
  virtual std::int64_t block() const = 0;
  // Returns the bytes of a block of 1 to block() elements.
  virtual std::int64_t block_bytes(std::int64_t elements) const = 0;
  // `draw` is a random number of this block, for formats that round or choose at random. Where a value is not finite,
  // decoding gives at least one value that is not finite either, so that a run notices.
  virtual void encode_block(std::span<const float> values, std::uint64_t draw, std::span<std::byte> encoded) const = 0;
  virtual void decode_block(std::span<const std::byte> encoded, std::span<float> values) const = 0;
  // Encodes values + errors and leaves in `errors` what that takes away. It is fused where a format overrides it.
  virtual void encode_block_with_feedback(std::span<const float> values, std::span<float> errors, std::uint64_t draw,
                                          std::span<std::byte> encoded) const;
  // Adds what decode_block() gives to `sums`.
  virtual void reduce_block(std::span<const std::byte> encoded, std::span<float> sums) const;

  // All blocks of a slice, one after the other. A format overrides these where it is faster to look at several blocks
  // at once; the bytes are the same.
  virtual void encode_blocks(std::span<const float> values, const EncodedSlice& slice,
                             std::span<std::byte> encoded) const;
  virtual void encode_blocks_with_feedback(std::span<const float> values, std::span<float> errors,
                                           const EncodedSlice& slice, std::span<std::byte> encoded) const;
};

// There is one for every format but `none`.
const Compressor& compressor_of(CompressionFormat format);

// `encoded` has the size that encoded_bytes() says.
void encode(const Compressor& compressor, std::span<const float> values, const EncodedSlice& slice,
            std::span<std::byte> encoded);
// Encodes values + errors, and leaves in `errors` what this takes away (error feedback; Seide et al. 2014, Karimireddy
// et al. 2019): over many calls, the sum of what was decoded and the last errors are the sum of the values.
void encode_with_feedback(const Compressor& compressor, std::span<const float> values, std::span<float> errors,
                          const EncodedSlice& slice, std::span<std::byte> encoded);
void decode(const Compressor& compressor, std::span<const std::byte> encoded, std::span<float> values);
// Adds the decoded values to `sums`.
void reduce(const Compressor& compressor, std::span<const std::byte> encoded, std::span<float> sums);

}  // namespace weft
