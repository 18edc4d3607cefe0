// How to train: what neither model nor layout says.
#pragma once

#include <cstdint>

#include "exec/learning_rate.hpp"
#include "kernels/kernels.hpp"

namespace weft {

enum class Optimizer : std::uint8_t { adam, sgd };

struct TrainSettings {
  std::int64_t steps = 10;
  std::uint64_t seed = 1;  // of weights and data order
  Optimizer optimizer = Optimizer::adam;
  AdamSettings adam;
  SgdSettings sgd;
  LearningRateSchedule schedule;

  // What the schedule starts from.
  double peak_learning_rate() const { return optimizer == Optimizer::adam ? adam.learning_rate : sgd.learning_rate; }
};

struct ValidationLoss {
  std::int64_t steps = 0;  // that had been trained, those before this run among them
  double loss = 0;         // the mean over all tokens
  friend bool operator==(const ValidationLoss&, const ValidationLoss&) = default;
};

// Operations know batches of validation as steps below zero: nothing is dropped out there, and losses are kept apart.
constexpr bool is_validation(std::int64_t step) {
  return step < 0;
}
constexpr std::int64_t step_of_validation(std::int64_t batch) {
  return -1 - batch;
}
constexpr std::int64_t validation_batch(std::int64_t step) {
  return -1 - step;
}

inline constexpr double kNormEpsilon = 1e-5;
inline constexpr double kRotaryBase = 10'000;

}  // namespace weft
