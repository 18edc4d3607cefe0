#include "bound/slowed.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace weft {
namespace {

// The least period over how long the rank's transfers hold the link while it computes, in small steps. It computes for
// `computing` then, `beside` of it beside transfers, which do their work only there and outside of compute.
double least_of_many(const SharedPeriod& p) {
  constexpr int kSteps = 200'000;
  double least = p.compute + p.link;
  const double most = p.compute * (1 + p.compute_slowdown);
  for (int i = 0; i <= kSteps; ++i) {
    const double beside = most * i / kSteps;
    const double computing = p.compute - beside / (1 + p.compute_slowdown) + beside;
    const double moved = std::min(p.own, beside / (1 + p.transfer_slowdown));
    const double link = p.link + moved * p.transfer_slowdown;
    least = std::min(least, std::max({computing, link, computing + p.own - moved}));
  }
  return least;
}

TEST(Slowed, IsTheLeastOverAllOverlaps) {
  std::mt19937 random(3);
  const auto below = [&](double limit) { return limit * static_cast<double>(random() % 1000) / 1000; };
  for (int round = 0; round < 60; ++round) {
    SharedPeriod p{.compute = 1 + below(100), .own = below(100)};
    p.link = p.own + (round % 3 == 0 ? below(60) : 0);
    p.compute_slowdown = round % 5 == 0 ? 0 : below(1.5);
    p.transfer_slowdown = round % 7 == 0 ? 0 : below(1.5);
    const SlowedPeriod found = slowed(p);
    EXPECT_NEAR(std::max(found.compute, found.link), least_of_many(p), 2e-3) << "round " << round;
  }
}

TEST(Slowed, NothingIsAddedWithoutSlowDowns) {
  const SlowedPeriod found = slowed({.compute = 30, .link = 50, .own = 40});
  EXPECT_EQ(found.compute, 30);
  EXPECT_EQ(found.link, 50);
}

}  // namespace
}  // namespace weft
