// Two timelines of the same step side by side: what was predicted and what was measured. They need not have the same
// ranks (a prediction has one for each class of equal ranks) or iterations; each is looked at in its steady state.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "timeline/accounting.hpp"
#include "timeline/timeline.hpp"

namespace weft {

// "layer 3 qkv forward part 2" -> "qkv forward": what operations of all layers and parts have in common.
std::string_view kind_of_operation(std::string_view name);

// One kind of operation on one side; means over ranks, as many as each rank of the timeline stands for.
struct KindTimes {
  double executions = 0;  // a step
  double mean_s = 0;      // of one execution; 0 without any
  double step_s() const { return executions * mean_s; }
  friend bool operator==(const KindTimes&, const KindTimes&) = default;
};

struct KindComparison {
  std::string kind;
  Activity activity = Activity::compute;
  KindTimes predicted, measured;
  // Time that a rank spends on it in a step; transfers may hide behind compute, so this is not what the step gains.
  double difference_s() const { return measured.step_s() - predicted.step_s(); }
};

struct TimelineComparison {
  RankAccount predicted, measured;    // means over ranks
  std::vector<KindComparison> kinds;  // the largest difference first; ties by name
  // 100 * (predicted - measured) / measured.
  double prediction_error_pct() const;
};

// Throws Error where account() does on either.
TimelineComparison compare_timelines(const Timeline& predicted, const Timeline& measured);

}  // namespace weft
