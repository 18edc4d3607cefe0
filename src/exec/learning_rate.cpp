#include "exec/learning_rate.hpp"

#include <cmath>
#include <numbers>

#include "exec/train_settings.hpp"

namespace weft {

std::string_view name_of(DecayStyle style) {
  return style == DecayStyle::constant ? "constant" : style == DecayStyle::linear ? "linear" : "cosine";
}

double learning_rate_at(const TrainSettings& settings, std::int64_t step) {
  const LearningRateSchedule& schedule = settings.schedule;
  const double peak = settings.peak_learning_rate();
  if (schedule.warmup > 0 && step <= schedule.warmup) {
    return peak * static_cast<double>(step) / static_cast<double>(schedule.warmup);
  }
  if (schedule.style == DecayStyle::constant) return peak;
  if (step > schedule.decay_steps) return schedule.minimum;
  const double passed =
      static_cast<double>(step - schedule.warmup) / static_cast<double>(schedule.decay_steps - schedule.warmup);
  const double left =
      schedule.style == DecayStyle::linear ? 1 - passed : 0.5 * (std::cos(std::numbers::pi * passed) + 1);
  return schedule.minimum + left * (peak - schedule.minimum);
}

}  // namespace weft
