// Compares predictions with runs that were measured: the step and the memory of each, and how far they are off.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cost/measured_links.hpp"
#include "cost/profile.hpp"
#include "plan/memory/use.hpp"
#include "study/inputs.hpp"
#include "timeline/accounting.hpp"

namespace weft {

struct RunPrediction {
  double step_s = 0;
  RankAccount account;               // where the step's time goes, as a mean over ranks
  std::vector<MemoryUse> memory;     // by class; the first is that of rank 0
  Bytes first_stage, fullest_stage;  // with what the framework's allocator keeps
  bool fits = true;
  double fullest_share = 0;                  // of a device's memory
  std::optional<double> chance_of_fit = {};  // where the framework's memory has a known spread
};

// `most_held`: the most passes that a stage of a searched pipeline holds; 0: whatever fits.
RunPrediction predict_run(const Inputs& inputs, const Profile& profile, const std::string& policy,
                          std::int64_t most_held = 0);

// The profile with what a job measured of its own links.
Profile with_links(Profile profile, const Inputs& inputs, const std::vector<MeasuredCollective>& links);

// Steps in seconds of one plan under each of the profiles; it is made by the first.
std::vector<double> predict_steps(const Inputs& inputs, const std::vector<Profile>& profiles,
                                  const std::string& policy);

struct ErrorSummary {
  std::size_t rows = 0;
  double median_pct = 0, mean_pct = 0, worst_pct = 0;  // of the errors' sizes
  double bias_pct = 0;                                 // mean with signs: below zero where predictions are too small
};
// `errors` are predicted / measured - 1.
ErrorSummary summarize(const std::vector<double>& errors);

}  // namespace weft
