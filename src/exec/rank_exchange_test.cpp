// What ranks tell each other beside the plan, on ranks that are threads.
#include "exec/rank_exchange.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "comm/test_ranks.hpp"

namespace weft {
namespace {

using local_ranks::on_ranks;

// asked <= word - shift <= answered on one clock, so the answer is wrong by half a round trip at most; no round trip is
// longer than all of them together.
TEST(ClockOffsets, AreRightToHalfARoundTrip) {
  constexpr std::int64_t kHour = 3'600'000'000'000;
  for (const std::int64_t ranks : {1, 2, 3, 5}) {
    on_ranks({.ranks = ranks}, {}, [&](Communicator& communicator) {
      const std::int64_t shift = communicator.rank() * kHour;  // rank r's clock is r hours fast
      const std::int64_t begin = steady_nanos();
      const auto offsets = clock_offsets(communicator, [&] { return steady_nanos() + shift; });
      const std::int64_t took = steady_nanos() - begin;
      ASSERT_EQ(std::ssize(offsets), ranks);
      for (std::int64_t other = 0; other < ranks; ++other) {
        const std::int64_t expected = communicator.rank() == 0 ? -other * kHour : 0;
        EXPECT_LE(std::abs(offsets[other] - expected), took / 2) << "rank " << other;
      }
      EXPECT_EQ(offsets.front(), 0);
    });
  }
}

TEST(SharedSum, IsTheSameOnAllRanksAndReadLater) {
  on_ranks({.ranks = 3}, {}, [&](Communicator& communicator) {
    SharedSum sum(communicator);
    EXPECT_FALSE(sum.is_under_way());
    for (int step = 0; step < 3; ++step) {
      sum.start(0.5 * static_cast<double>(communicator.rank()) + step);
      EXPECT_TRUE(sum.is_under_way());
      // 0 + 0.5 + 1, and the step once per rank: exact in fixed point.
      EXPECT_EQ(sum.take(), 1.5 + 3 * step);
    }
  });
}

TEST(SharedSum, CarriesCountsBesideTheNumber) {
  on_ranks({.ranks = 3}, {}, [&](Communicator& communicator) {
    SharedSum sum(communicator);
    sum.start(1, {communicator.rank(), 1, 0});
    EXPECT_EQ(sum.take(), 3);
    EXPECT_EQ(sum.counts(), (SharedSum::Counts{0 + 1 + 2, 3, 0}));
    sum.start(2);
    EXPECT_EQ(sum.take(), 6);
    EXPECT_EQ(sum.counts(), SharedSum::Counts{});
  });
}

// 2^62 units of 2^-24 is the most that all ranks together can say.
TEST(SharedSum, StaysAtItsLimitWhereLossesAreEnormous) {
  on_ranks({.ranks = 3}, {}, [&](Communicator& communicator) {
    SharedSum sum(communicator);
    sum.start(1e300);
    EXPECT_NEAR(sum.take() / std::ldexp(1.0, 62 - 24), 1, 1e-9);
  });
}

TEST(GatherNumbers, GivesRankZeroAllOfThem) {
  on_ranks({.ranks = 3}, {}, [&](Communicator& communicator) {
    const std::vector<std::vector<std::int64_t>> numbers = {{1, 2}, {}, {-7, 8, 9}};
    const auto& own = numbers[communicator.rank()];
    const auto all = gather_numbers(communicator, own, {2, 0, 3});
    if (communicator.rank() == 0) {
      EXPECT_EQ(all, numbers);
    } else {
      EXPECT_TRUE(all.empty());
    }
  });
}

TEST(TextOfRankZero, ReachesAllOfAnyLength) {
  for (const std::size_t length : {0, 1, 7, 8, 9, 1000}) {
    on_ranks({.ranks = 3}, {}, [&](Communicator& communicator) {
      const std::string text(communicator.rank() == 0 ? length : 3, communicator.rank() == 0 ? 'x' : 'y');
      EXPECT_EQ(text_of_rank_0(communicator, text), std::string(length, 'x'));
    });
  }
}

}  // namespace
}  // namespace weft
