#include "comm/tcp/landing_cursor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace weft::tcp {
namespace {

constexpr std::int64_t kElements = 50'000;  // more than the scratch holds

template <class T>
std::vector<Segment> cut(std::vector<T>& values, std::int64_t every) {
  std::vector<Segment> segments;
  for (std::int64_t begin = 0; begin < std::ssize(values); begin += every) {
    const std::int64_t count = std::min(every, std::ssize(values) - begin);
    segments.push_back({reinterpret_cast<std::byte*>(values.data() + begin), count * std::int64_t{sizeof(T)}});
    segments.push_back({nullptr, 0});
  }
  return segments;
}

// Lands kElements values 3 i on values i, in portions of the given bytes; by copies, or as a read would.
template <class T>
void expect_sum(ElementType type, std::int64_t portion, bool as_read) {
  std::vector<T> operand, arriving, dst(kElements);
  for (std::int64_t i = 0; i < kElements; ++i) {
    operand.push_back(static_cast<T>(i));
    arriving.push_back(static_cast<T>(3 * i));
  }
  const std::vector<Segment> to = cut(dst, 701);
  const std::vector<Segment> with = cut(operand, 1009);
  Landing landing;
  landing.dst = to;
  landing.operand = with;
  landing.type = type;
  LandingCursor cursor(landing);
  const auto scratch = std::make_unique<Scratch>();
  const auto* bytes = reinterpret_cast<const std::byte*>(arriving.data());
  std::int64_t left = kElements * std::int64_t{sizeof(T)};
  while (left > 0) {
    std::int64_t count = std::min(portion, left);
    if (as_read) {
      std::array<iovec, 4> entries;
      ASSERT_EQ(cursor.describe(entries, count, *scratch), 1U);
      count = static_cast<std::int64_t>(entries[0].iov_len);
      std::memcpy(entries[0].iov_base, bytes, entries[0].iov_len);
      cursor.landed(count, *scratch);
    } else {
      cursor.land(bytes, count, *scratch);
    }
    bytes += count;
    left -= count;
  }
  for (std::int64_t i = 0; i < kElements; ++i) ASSERT_EQ(dst[i], static_cast<T>(4 * i)) << i;
}

TEST(LandingCursor, ReducesWhateverThePortionsAre) {
  for (const std::int64_t portion : {1, 3, 4, 7, 1000, 4097, 131'072, 131'073, 400'000}) {
    for (const bool as_read : {false, true}) {
      expect_sum<float>(ElementType::fp32, portion, as_read);
      expect_sum<std::int64_t>(ElementType::i64, portion, as_read);
    }
  }
}

// Elements of 8 bytes whose scratch holds another operand's begun element in between.
TEST(LandingCursor, TwoLandingsMayTakeTurns) {
  std::vector<std::int64_t> first{1, 2}, second{10, 20}, arriving{100, 200};
  const auto a = cut(first, 1);
  const auto b = cut(second, 2);
  Landing one, two;
  one.dst = one.operand = a;
  two.dst = two.operand = b;
  one.type = two.type = ElementType::i64;
  LandingCursor first_cursor(one), second_cursor(two);
  const auto scratch = std::make_unique<Scratch>();
  const auto* bytes = reinterpret_cast<const std::byte*>(arriving.data());
  for (int i = 0; i < 16; ++i) {
    first_cursor.land(bytes + i, 1, *scratch);
    second_cursor.land(bytes + i, 1, *scratch);
  }
  EXPECT_EQ(first, (std::vector<std::int64_t>{101, 202}));
  EXPECT_EQ(second, (std::vector<std::int64_t>{110, 220}));
}

TEST(LandingCursor, ScalesTheResult) {
  std::vector<float> values{2, 4, 6}, arriving{4, 4, 4};
  const auto segments = cut(values, 2);
  Landing landing;
  landing.dst = landing.operand = segments;
  landing.op = ReduceOp::average;
  landing.scale = 0.5;
  LandingCursor cursor(landing);
  const auto scratch = std::make_unique<Scratch>();
  cursor.land(reinterpret_cast<const std::byte*>(arriving.data()), 12, *scratch);
  EXPECT_EQ(values, (std::vector<float>{3, 4, 5}));
}

}  // namespace
}  // namespace weft::tcp
