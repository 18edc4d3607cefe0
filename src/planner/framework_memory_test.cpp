#include "planner/framework_memory.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace weft {
namespace {

TEST(ChanceOfFit, IsThatOfALogarithmicNormalDistribution) {
  Framework framework{.name = "any", .policy = "serial", .kernels = {}, .devices = {}};
  EXPECT_FALSE(chance_of_fit(framework, 0.9));
  framework.memory.spread = 0.15;
  // At the limit it is even; one standard deviation above it 0.158655 of the usual runs fit, below it the others do.
  // One run in a hundred on either side is odd.
  EXPECT_NEAR(*chance_of_fit(framework, 1), 0.5, 1e-12);
  EXPECT_NEAR(*chance_of_fit(framework, std::exp(0.15)), 0.01 + 0.98 * 0.158655, 1e-6);
  EXPECT_NEAR(*chance_of_fit(framework, std::exp(-0.15)), 0.01 + 0.98 * (1 - 0.158655), 1e-6);
  EXPECT_NEAR(*chance_of_fit(framework, 0.1), 0.99, 1e-6);
}

}  // namespace
}  // namespace weft
