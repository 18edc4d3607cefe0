// Losses of a run beside those of an earlier one, step by step and second by second: what compressed gradients or
// another optimizer change in training.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "study/run/run_study.hpp"

namespace weft {

// The losses of the best policy in what `weft run --json` printed.
struct EarlierLosses {
  std::string file, policy;
  std::vector<double> losses = {};  // by step
  double median_step_s = 0;         // 0: the report does not say
};
// Throws Error naming the file, the key and what is needed.
EarlierLosses read_earlier_losses(const std::string& file);

// Returns by how many percent losses are above the earlier ones, over the steps that both have.
std::vector<double> loss_differences_pct(const std::vector<double>& losses, const EarlierLosses& earlier);

// Losses of single steps depend on their batches, so means over this many steps are compared.
inline constexpr std::int64_t kStepsOfAMeanLoss = 10;
// Returns after how many steps the mean of the last kStepsOfAMeanLoss losses (of all where there are fewer) is not
// above that of the earlier run's end; nothing where it never is.
std::optional<std::int64_t> steps_to_last_loss(const std::vector<double>& losses, const EarlierLosses& earlier);

// Two lines for every policy: the last step and the one that is furthest off; when it has the earlier run's last loss.
std::string loss_comparison_text(const RunStudy& study, const EarlierLosses& earlier);
// Adds `earlier_losses` to the report, and `loss_differences_pct` and `to_earlier_loss` to every policy.
void add_loss_comparison(const RunStudy& study, const EarlierLosses& earlier, nlohmann::ordered_json& report);

}  // namespace weft
