// Checks the stages of a policy in a JSON report, planned or measured.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace weft::test {

inline constexpr const char* kTermsOfStep[] = {"compute_s", "slowdown_s", "exposed_comm_s", "bubble_s", "idle_s"};

// The figures of an account that means and maxima are taken of.
inline std::vector<double> figures_of(const nlohmann::json& account) {
  std::vector<double> result{account.at("comm_s").get<double>()};
  for (const char* term : kTermsOfStep) result.push_back(account.at(term).get<double>());
  for (const auto& [kind, seconds] : account.at("exposed_by_kind").items()) result.push_back(seconds.get<double>());
  return result;
}

// The terms of every stage add up to the step; the stages, weighted by their ranks, to the means and maxima.
inline void expect_whole_stages(const nlohmann::json& policy, std::int64_t devices, const std::string& where) {
  const double step = policy.at("step_s").get<double>();
  const std::vector<double> mean = figures_of(policy), max = figures_of(policy.at("max"));
  std::vector<double> sum(mean.size(), 0), most(mean.size(), 0);
  std::int64_t ranks = 0;
  for (const nlohmann::json& stage : policy.at("stages")) {
    const std::string here = where + ", " + stage.at("stage").get<std::string>();
    double terms = 0;
    for (const char* term : kTermsOfStep) terms += stage.at(term).get<double>();
    EXPECT_NEAR(stage.at("step_s").get<double>() / step, 1, 1e-9) << here;
    EXPECT_NEAR(terms / step, 1, 1e-9) << here;
    const double comm = stage.at("comm_s").get<double>(), exposed = stage.at("exposed_comm_s").get<double>();
    if (comm > 0) {
      EXPECT_NEAR(stage.at("hidden_pct").get<double>(), 100 * (1 - exposed / comm), 1e-9) << here;
    }
    const std::vector<double> own = figures_of(stage);
    const auto weight = stage.at("ranks").get<std::int64_t>();
    for (std::size_t i = 0; i < own.size(); ++i) {
      sum[i] += static_cast<double>(weight) * own[i];
      most[i] = std::max(most[i], own[i]);
    }
    ranks += weight;
  }
  EXPECT_EQ(ranks, devices) << where;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    EXPECT_NEAR(sum[i] / static_cast<double>(devices), mean[i], 1e-9 * step) << where;
    EXPECT_NEAR(most[i], max[i], 1e-9 * step) << where;
  }
}

}  // namespace weft::test
