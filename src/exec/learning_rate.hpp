// The learning rate of every step, as Megatron-LM's OptimizerParamScheduler has it.
#pragma once

#include <cstdint>
#include <string_view>

namespace weft {

struct TrainSettings;

enum class DecayStyle : std::uint8_t { constant, linear, cosine };
std::string_view name_of(DecayStyle style);

struct LearningRateSchedule {
  DecayStyle style = DecayStyle::constant;
  std::int64_t warmup = 0;       // steps in which the rate rises from 0; the first of them has 0
  double minimum = 0;            // what it falls to; not of `constant`
  std::int64_t decay_steps = 0;  // from then on it is the minimum; not of `constant`
  friend bool operator==(const LearningRateSchedule&, const LearningRateSchedule&) = default;
};

// Of a step, counted from 0: up to `warmup` the peak rate times step / warmup; then from the peak to the minimum, along
// a line or half a cosine wave, which `decay_steps` ends.
double learning_rate_at(const TrainSettings& settings, std::int64_t step);

}  // namespace weft
