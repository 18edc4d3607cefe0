#include "sim/fair_share.hpp"

#include <gtest/gtest.h>

#include <random>

namespace weft {
namespace {

using Uses = std::vector<std::vector<ResourceUse>>;

std::vector<double> speeds_of(const Uses& uses) {
  std::vector<std::span<const ResourceUse>> spans(uses.begin(), uses.end());
  return fair_speeds(spans);
}

double load_of(const Uses& uses, const std::vector<double>& speeds, std::int32_t resource) {
  double load = 0;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    for (const ResourceUse& use : uses[i]) load += use.resource == resource ? use.share * speeds[i] : 0.0;
  }
  return load;
}

// The definition of max-min fairness: nothing above capacity, and whoever runs below full speed uses a full resource
// on which nobody is faster.
void expect_max_min_fair(const Uses& uses, std::int32_t resources) {
  const std::vector<double> speeds = speeds_of(uses);
  for (std::int32_t r = 0; r < resources; ++r) EXPECT_LE(load_of(uses, speeds, r), 1 + 1e-9);
  const auto fastest_on = [&](std::int32_t resource) {
    double fastest = 0;
    for (std::size_t j = 0; j < uses.size(); ++j) {
      for (const ResourceUse& use : uses[j]) {
        if (use.resource == resource && use.share > 0) fastest = std::max(fastest, speeds[j]);
      }
    }
    return fastest;
  };
  for (std::size_t i = 0; i < uses.size(); ++i) {
    EXPECT_GT(speeds[i], 0);
    EXPECT_LE(speeds[i], 1);
    if (speeds[i] >= 1 - 1e-9) continue;
    bool held_up = false;
    for (const ResourceUse& use : uses[i]) {
      held_up |= use.share > 0 && load_of(uses, speeds, use.resource) >= 1 - 1e-9 &&
                 speeds[i] >= fastest_on(use.resource) - 1e-9;
    }
    EXPECT_TRUE(held_up) << "transfer " << i << " runs at " << speeds[i] << " and nothing holds it up";
  }
}

TEST(FairSpeeds, AreOneWhereNothingIsShared) {
  EXPECT_EQ(speeds_of({{{0, 1}}, {{1, 1}}, {}}), (std::vector<double>{1, 1, 1}));
  EXPECT_TRUE(speeds_of({}).empty());
}

TEST(FairSpeeds, RiseTogetherUntilAResourceIsFull) {
  EXPECT_EQ(speeds_of({{{0, 1}}, {{0, 1}}}), (std::vector<double>{0.5, 0.5}));
  // Shares count: 1 + 0.6 at one common speed of 1 / 1.6.
  EXPECT_EQ(speeds_of({{{0, 1}}, {{0, 0.6}}}), (std::vector<double>{0.625, 0.625}));
}

TEST(FairSpeeds, HoldOnEveryResourceAfterTheFirstOneIsFull) {
  // Resource 0 fills up first, at 1 / (0.2 + 0.9). In floating point that leaves a rest of its sum, which must not hide
  // that resource 1 is full at 1 / (0.5 + 0.55).
  const std::vector<double> speeds = speeds_of({{{0, 0.2}}, {{0, 0.9}}, {{1, 0.5}}, {{1, 0.55}}});
  for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(speeds[i], 1 / 1.1, 1e-12);
  for (std::size_t i = 2; i < 4; ++i) EXPECT_NEAR(speeds[i], 1 / 1.05, 1e-12);
}

TEST(FairSpeeds, AreMaxMinFairForRandomTransfers) {
  std::mt19937 random(20240607);
  for (int round = 0; round < 2000; ++round) {
    const auto resources = static_cast<std::int32_t>(1 + random() % 6);
    Uses uses(1 + random() % 10);
    for (auto& use : uses) {
      for (std::int32_t r = 0; r < resources; ++r) {
        if (random() % 3 != 0) continue;
        // Tenths repeat, so several transfers often stop at once; sometimes any number.
        const double share = random() % 4 != 0 ? 0.1 * static_cast<double>(1 + random() % 10)
                                               : std::uniform_real_distribution<>(1e-6, 1)(random);
        use.push_back({r, share});
      }
    }
    expect_max_min_fair(uses, resources);
    if (HasFailure()) FAIL() << "round " << round;
  }
}

}  // namespace
}  // namespace weft
