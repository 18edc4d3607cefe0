#include "exec/learning_rate.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "exec/train_settings.hpp"

namespace weft {
namespace {

TrainSettings settings_of(const LearningRateSchedule& schedule, Optimizer optimizer = Optimizer::adam) {
  TrainSettings settings;
  settings.optimizer = optimizer;
  settings.adam.learning_rate = optimizer == Optimizer::adam ? 1 : 77;
  settings.sgd.learning_rate = optimizer == Optimizer::sgd ? 1 : 77;
  settings.schedule = schedule;
  return settings;
}

TEST(LearningRate, IsThePeakWithoutASchedule) {
  for (const std::int64_t step : {0, 1, 1'000'000}) {
    EXPECT_EQ(learning_rate_at(settings_of({}), step), 1);
    EXPECT_EQ(learning_rate_at(settings_of({}, Optimizer::sgd), step), 1);
  }
}

// Four steps of warm-up: 0, 1/4, 2/4, 3/4, and the peak from there.
TEST(LearningRate, RisesInALineFromZero) {
  const TrainSettings settings = settings_of({.style = DecayStyle::constant, .warmup = 4});
  const double expected[] = {0, 0.25, 0.5, 0.75, 1, 1, 1};
  for (std::int64_t step = 0; step < 7; ++step) EXPECT_DOUBLE_EQ(learning_rate_at(settings, step), expected[step]);
}

// From 1 at step 4 to 0.1 at step 12: halfway at step 8 it is 0.55, and the minimum for ever after.
TEST(LearningRate, FallsInALine) {
  const TrainSettings settings =
      settings_of({.style = DecayStyle::linear, .warmup = 4, .minimum = 0.1, .decay_steps = 12});
  EXPECT_DOUBLE_EQ(learning_rate_at(settings, 2), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate_at(settings, 4), 1);
  EXPECT_DOUBLE_EQ(learning_rate_at(settings, 8), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate_at(settings, 12), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate_at(settings, 13), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate_at(settings, 1000), 0.1);
}

// A quarter of the way (1 + cos(pi / 4)) / 2 = (2 + sqrt 2) / 4 of the fall is left.
TEST(LearningRate, FallsAlongHalfACosineWave) {
  const TrainSettings settings =
      settings_of({.style = DecayStyle::cosine, .warmup = 4, .minimum = 0.1, .decay_steps = 12}, Optimizer::sgd);
  EXPECT_DOUBLE_EQ(learning_rate_at(settings, 4), 1);
  EXPECT_DOUBLE_EQ(learning_rate_at(settings, 6), 0.1 + 0.9 * (2 + std::sqrt(2.0)) / 4);
  EXPECT_DOUBLE_EQ(learning_rate_at(settings, 8), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate_at(settings, 10), 0.1 + 0.9 * (2 - std::sqrt(2.0)) / 4);
  EXPECT_NEAR(learning_rate_at(settings, 12), 0.1, 1e-15);
  EXPECT_DOUBLE_EQ(learning_rate_at(settings, 13), 0.1);
  // Without warm-up the first step has the peak.
  EXPECT_DOUBLE_EQ(learning_rate_at(settings_of({.style = DecayStyle::cosine, .decay_steps = 10}), 0), 1);
}

}  // namespace
}  // namespace weft
