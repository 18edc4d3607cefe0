#include "comm/trouble.hpp"

#include <gtest/gtest.h>

#include <array>

namespace weft {
namespace {

using std::chrono::milliseconds, std::chrono::seconds;

// Rank 0 of 3, whose neighbours are as silent or lost as the test says.
class WatchedTransport final : public Transport, private RankHealth {
 public:
  std::int64_t rank() const override { return 0; }
  std::int64_t size() const override { return 3; }
  Ticket send(std::int64_t, std::int64_t, std::span<const Segment>) override { return {}; }
  Ticket receive(std::int64_t, std::int64_t, const Landing&) override { return {}; }
  bool done(Ticket) override { return false; }
  void pause(Clock::time_point) override {}
  void wake() override {}
  std::uint64_t moved() const override { return 0; }
  TransportFeatures features() override { return {.health = this}; }

  std::array<std::chrono::nanoseconds, 3> silent_{};
  std::optional<LostRank> lost_;

 private:
  std::optional<LostRank> lost() const override { return lost_; }
  void give_up(const std::string&) override {}
  std::chrono::nanoseconds silence(std::int64_t rank) const override { return silent_[rank]; }
  void declare_lost(const LostRank& silent) override {
    if (!lost_) lost_ = silent;
  }
};

TEST(Trouble, ASilentRankIsLostOnceSomebodyWaits) {
  WatchedTransport transport;
  Trouble trouble(transport, {.timeout = seconds(60), .silence = seconds(7)});
  transport.silent_[2] = milliseconds(6900);
  EXPECT_FALSE(trouble.of_waiting("call", "rank 1", seconds(6)));
  transport.silent_[2] = milliseconds(7100);
  EXPECT_FALSE(trouble.of_waiting("call", "rank 1", milliseconds(900)));  // nobody waits for long
  EXPECT_FALSE(transport.lost_);
  EXPECT_EQ(
      trouble.of_waiting("call", "rank 1", seconds(1)),
      "rank 2 was lost (it stands still: no sign of life for 7.1 s) while rank 0 was in call, waiting for rank 1");
  ASSERT_TRUE(transport.lost_);  // so the others hear of it
  EXPECT_EQ(transport.lost_->rank, 2);
}

TEST(Trouble, SilenceInsideTheLibraryCountsAtOnce) {
  WatchedTransport transport;
  Trouble trouble(transport, {.timeout = seconds(60), .silence = seconds(7)});
  EXPECT_FALSE(trouble.of_library("call"));
  transport.silent_[1] = seconds(7);
  EXPECT_EQ(trouble.of_library("call"),
            "rank 1 was lost (it stands still: no sign of life for 7.0 s) while rank 0 was in call");
}

TEST(Trouble, SilenceWithoutACallCountsWhereTheRankWaitsOutsideOfCalls) {
  WatchedTransport transport;
  Trouble trouble(transport, {.timeout = seconds(60), .silence = seconds(7)});
  transport.silent_[1] = seconds(8);
  EXPECT_FALSE(trouble.of_idle());  // not at work
  {
    const Stay computing(trouble.whereabouts(), [] { return RankPlace{"step 7", "computing"}; });
    EXPECT_FALSE(trouble.of_idle());
    EXPECT_FALSE(transport.lost_);
  }
  const Stay on_device(trouble.whereabouts(), [] { return RankPlace{"step 7", "waiting for the device", true}; });
  transport.silent_[1] = milliseconds(6900);
  EXPECT_FALSE(trouble.of_idle());
  transport.silent_[1] = seconds(8);
  EXPECT_EQ(trouble.of_idle(),
            "rank 1 was lost (it stands still: no sign of life for 8.0 s) while rank 0 was in step 7, waiting for the "
            "device");
}

TEST(Trouble, WithoutALimitOnlyTheTimeoutEndsTheWaitForASilentRank) {
  WatchedTransport transport;
  Trouble trouble(transport, {.timeout = seconds(60), .silence = seconds(0)});
  transport.silent_[1] = seconds(50);
  EXPECT_FALSE(trouble.of_waiting("call", "rank 1", seconds(50)));
  EXPECT_EQ(trouble.of_waiting("call", "rank 1", seconds(60)),
            "call: rank 0 has waited 60.0 s for rank 1; rank 1 has given no sign of life for 50.0 s");
}

TEST(Trouble, NamesThePlaceOfTheRankThatReportsIt) {
  WatchedTransport transport;
  Trouble trouble(transport, {});
  transport.lost_ = {1, "its connection closed"};
  EXPECT_FALSE(trouble.of_idle());  // not at work: needs nobody
  EXPECT_EQ(trouble.at("call"), "call");
  {
    const Stay planning(trouble.whereabouts(), "planning");
    EXPECT_EQ(trouble.of_idle(), "rank 1 was lost (its connection closed) while rank 0 was in planning");
    {
      const Stay step(trouble.whereabouts(), [] { return RankPlace{"step 7", "computing layer 3 mlp forward"}; });
      EXPECT_EQ(trouble.of_idle(),
                "rank 1 was lost (its connection closed) while rank 0 was in step 7, computing layer 3 mlp forward");
      EXPECT_EQ(trouble.of_waiting("call", "", milliseconds(50)),
                "rank 1 was lost (its connection closed) while rank 0 was in step 7, call");
    }
    EXPECT_EQ(trouble.at("call"), "planning, call");
  }
  EXPECT_FALSE(trouble.of_idle());
}

}  // namespace
}  // namespace weft
