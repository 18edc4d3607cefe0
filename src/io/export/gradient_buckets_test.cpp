// The limits by which a framework cuts buckets alike, against cutting with every limit there is.
#include "io/export/gradient_buckets.hpp"

#include <gtest/gtest.h>

#include <random>

namespace weft {
namespace {

using Buckets = std::vector<std::vector<std::int64_t>>;

// Megatron's and DDP's rule: a gradient is added, then a bucket that has reached the limit is closed.
Buckets cut(const std::vector<std::int64_t>& sizes, std::int64_t limit) {
  Buckets buckets;
  std::int64_t open = limit;
  for (const std::int64_t size : sizes) {
    if (open >= limit) {
      buckets.emplace_back();
      open = 0;
    }
    buckets.back().push_back(size);
    open += size;
  }
  return buckets;
}

TEST(GradientBuckets, TheLimitsOfACutAreExactlyThoseThatCutAlike) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::int64_t> sizes(1 + random() % 9);
    std::int64_t all = 0;
    for (std::int64_t& size : sizes) all += size = 1 + static_cast<std::int64_t>(random() % 7);
    const Buckets made = cut(sizes, 1 + static_cast<std::int64_t>(random() % 20));
    const BucketLimits limits = limits_of_all(made);
    ASSERT_TRUE(limits.possible());
    for (std::int64_t limit = 1; limit <= all + 2; ++limit) {
      EXPECT_EQ(limits.allow(limit), cut(sizes, limit) == made) << limit;
    }
  }
}

// 5+5 was closed by a limit of 6 to 10, 20 alone by 1 to 20, so 6 to 10 cuts both; {1, 1} in front needs 2 at most.
TEST(GradientBuckets, BucketsThatNoOneLimitCutsAreFound) {
  EXPECT_EQ(limits_of_all({{5, 5}, {20}, {3}}).above, 5);
  EXPECT_EQ(limits_of_all({{5, 5}, {20}, {3}}).at_most, 10);
  EXPECT_FALSE(limits_of_all({{1, 1}, {5, 5}, {3}}).possible());
}

}  // namespace
}  // namespace weft
