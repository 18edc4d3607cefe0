#include "study/run/checkpoint_study.hpp"

#include <limits>

namespace weft {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

}  // namespace

CheckpointStudy study_saves(const TrainResult& result, const std::vector<double>& step_times_s, std::string folder,
                            std::int64_t resumed_from) {
  CheckpointStudy study{std::move(folder),
                        resumed_from,
                        resumed_from + std::ssize(result.losses),
                        result.stopped,
                        result.saves,
                        kNone,
                        kNone};
  double sums[2] = {0, 0};
  std::int64_t counts[2] = {0, 0};
  for (std::size_t i = 0; i < step_times_s.size(); ++i) {
    const std::size_t step = static_cast<std::size_t>(result.run.before + result.run.warm_up) + i;
    const std::size_t busy = step < result.saves.busy_steps.size() && result.saves.busy_steps[step] ? 1 : 0;
    sums[busy] += step_times_s[i];
    ++counts[busy];
  }
  if (counts[1] > 0) study.step_beside_save_s = sums[1] / static_cast<double>(counts[1]);
  if (counts[0] > 0) study.step_without_save_s = sums[0] / static_cast<double>(counts[0]);
  return study;
}

}  // namespace weft
