// A naive collective: what every rank begins with and must end with, straight from the definition. For tests, and for
// `weft collective bench`, which checks before it times.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.hpp"
#include "base/half_float.hpp"
#include "collective/piece_sizes.hpp"
#include "comm/reduce_kernels.hpp"

namespace weft {

// Small whole numbers, different for every rank and place: sums are exact in every type. Those of a piece repeat after
// kTestValues elements.
inline constexpr std::int64_t kTestValues = 11;
inline std::int64_t test_value(std::int64_t rank, std::int64_t piece, std::int64_t element) {
  return (rank * 7 + piece * 5 + element * 3) % kTestValues - 4;
}

inline void store_value(ElementType type, std::byte* to, double value) {
  const auto put = [&](auto stored) { std::memcpy(to, &stored, sizeof(stored)); };
  switch (type) {
    case ElementType::fp32:
      return put(static_cast<float>(value));
    case ElementType::fp16:
      return put(f16_from_float(static_cast<float>(value)));
    case ElementType::bf16:
      return put(bf16_from_float(static_cast<float>(value)));
    case ElementType::i32:
      return put(static_cast<std::int32_t>(value));
    case ElementType::i64:
      return put(static_cast<std::int64_t>(value));
    case ElementType::u8:
      return put(static_cast<std::uint8_t>(value));
    case ElementType::fp8:
      break;
  }
  WEFT_CHECK(false && "collectives of fp8 are not checked");
}

inline double reduced_value(ReduceOp op, const std::vector<std::int64_t>& ranks, std::int64_t piece,
                            std::int64_t element) {
  std::int64_t value = test_value(ranks.front(), piece, element);
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    const std::int64_t other = test_value(ranks[i], piece, element);
    value = op == ReduceOp::max ? std::max(value, other) : op == ReduceOp::min ? std::min(value, other) : value + other;
  }
  return op == ReduceOp::average ? static_cast<double>(value) / static_cast<double>(ranks.size())
                                 : static_cast<double>(value);
}

// The bytes that pieces with these contents have.
inline std::vector<std::byte> bytes_of(const std::vector<Content>& contents, const PieceSizes& sizes, ElementType type,
                                       ReduceOp op) {
  const auto width = static_cast<std::size_t>(size_of(type).value);
  std::int64_t elements = 0;
  for (const Content& content : contents) elements += sizes[content.piece];
  std::vector<std::byte> bytes(static_cast<std::size_t>(elements) * width);
  std::byte* to = bytes.data();
  for (const Content& content : contents) {
    const std::vector<std::int64_t> ranks = content.from.members();
    const std::int64_t size = sizes[content.piece], computed = std::min(size, kTestValues);
    for (std::int64_t element = 0; element < computed; ++element) {
      store_value(type, to + element * static_cast<std::int64_t>(width),
                  reduced_value(op, ranks, content.piece, element));
    }
    const auto all = static_cast<std::size_t>(size) * width;
    for (std::size_t done = static_cast<std::size_t>(computed) * width; done < all;) {  // doubles what repeats
      const std::size_t next = std::min(done, all - done);
      std::memcpy(to + done, to, next);
      done += next;
    }
    to += all;
  }
  return bytes;
}

inline std::vector<std::byte> input_bytes(const CollectiveSpec& spec, const PieceSizes& sizes, ElementType type,
                                          std::int64_t rank) {
  std::vector<Content> contents;
  for (std::int64_t slot = 0; slot < input_slots(spec, rank); ++slot)
    contents.push_back(initial_content(spec, rank, slot));
  return bytes_of(contents, sizes, type, ReduceOp::sum);
}

inline std::vector<std::byte> expected_bytes(const CollectiveSpec& spec, const PieceSizes& sizes, ElementType type,
                                             ReduceOp op, std::int64_t rank) {
  std::vector<Content> contents;
  for (std::int64_t slot = 0; slot < output_slots(spec, rank); ++slot)
    contents.push_back(required_content(spec, rank, slot));
  return bytes_of(contents, sizes, type, op);
}

}  // namespace weft
