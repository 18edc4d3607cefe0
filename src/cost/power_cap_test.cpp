#include "cost/power_cap.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/error.hpp"
#include "cluster/presets.hpp"

namespace weft {
namespace {

TEST(PowerCap, TheClockFallsWithTheCubeRootOfWhatIsLeftForIt) {
  EXPECT_DOUBLE_EQ(capped_clock(700, 700), 1);
  // 210 of 700 W do not depend on the clock; an eighth of the other 490 W is half the clock.
  EXPECT_NEAR(capped_clock(210 + 490.0 / 8, 700), 0.5, 1e-12);
  EXPECT_NEAR(capped_clock(500, 700), std::cbrt(290.0 / 490.0), 1e-12);
}

TEST(PowerCap, SlowsArithmeticAndLeavesMemoryAndLinks) {
  const Profile free = default_profile();
  const Profile capped = with_power_cap(free, parse_cluster("dgx-h100:1"), 500);
  const DeviceProfile &before = free.device("h100"), &after = capped.device("h100");
  const double clock = capped_clock(500, 700);
  EXPECT_NEAR(after.matrix_efficiency, before.matrix_efficiency * clock, 1e-12);
  EXPECT_NEAR(after.fp8_efficiency, before.fp8_efficiency * clock, 1e-12);
  EXPECT_NEAR(after.attention_efficiency, before.attention_efficiency * clock, 1e-12);
  EXPECT_EQ(after.memory_efficiency, before.memory_efficiency);
  EXPECT_EQ(after.links, before.links);
  EXPECT_EQ(capped.device("a100-80"), free.device("a100-80"));
}

TEST(PowerCap, RefusesWhatADeviceDoesNotAllow) {
  const auto refusal = [](const char* cluster, double watts) {
    try {
      with_power_cap(default_profile(), parse_cluster(cluster), watts);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal("dgx-a100:1", 700), "--power-cap 700: a100-80 allows 160 to 400 watts");
  EXPECT_NE(refusal("dgx-h100:1", 100).find("280 to 700"), std::string::npos);
  EXPECT_NE(refusal("local:2", 100).find("cpu"), std::string::npos);
  EXPECT_EQ(refusal("dgx-b200:1", 800), "accepted");
}

}  // namespace
}  // namespace weft
