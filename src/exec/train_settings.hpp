// How to train: what neither model nor layout says.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

#include "exec/learning_rate.hpp"
#include "kernels/kernels.hpp"

namespace weft {

// kfac: K-FAC with momentum for the linear layers of the transformer, AdamW for all other parameters.
enum class Optimizer : std::uint8_t { adam, sgd, kfac };
inline std::string_view name_of(Optimizer optimizer) {
  return optimizer == Optimizer::adam ? "adam" : optimizer == Optimizer::sgd ? "sgd" : "kfac";
}

// K-FAC with what trains the parameters that it leaves out, and Layout::kfac_interval.
struct KfacWithAdam {
  KfacSettings kfac;
  AdamSettings adam;
  std::int64_t interval = 1;
};
using OptimizerSettings = std::variant<AdamSettings, SgdSettings, KfacWithAdam>;

struct TrainSettings {
  std::int64_t steps = 10;
  std::uint64_t seed = 1;  // of weights and data order
  Optimizer optimizer = Optimizer::adam;
  AdamSettings adam;
  SgdSettings sgd;
  KfacSettings kfac = {};
  LearningRateSchedule schedule;

  // What the schedule starts from.
  double peak_learning_rate() const { return optimizer == Optimizer::sgd ? sgd.learning_rate : adam.learning_rate; }
  // Out of line: where g++ 12 for x86_64 inlines it into an assignment, the weight decay becomes the learning rate (its
  // scalar replacement of aggregates, -ftree-sra, takes one member for another).
  OptimizerSettings of_optimizer(std::int64_t kfac_interval) const;
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
