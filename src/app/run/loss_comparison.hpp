// Losses of a run beside those of an earlier one, step by step: what compressed gradients change in training.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "study/run/run_study.hpp"

namespace weft {

// The losses of the best policy in what `weft run --json` printed.
struct EarlierLosses {
  std::string file, policy;
  std::vector<double> losses = {};  // by step
};
// Throws Error naming the file, the key and what is needed.
EarlierLosses read_earlier_losses(const std::string& file);

// Returns by how many percent losses are above the earlier ones, over the steps that both have.
std::vector<double> loss_differences_pct(const std::vector<double>& losses, const EarlierLosses& earlier);

// A line for every policy: the last step and the one that is furthest off.
std::string loss_comparison_text(const RunStudy& study, const EarlierLosses& earlier);
// Adds `earlier_losses` to the report, and `loss_differences_pct` to every policy.
void add_loss_comparison(const RunStudy& study, const EarlierLosses& earlier, nlohmann::ordered_json& report);

}  // namespace weft
