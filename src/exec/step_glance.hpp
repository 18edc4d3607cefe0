// A step at a glance, for whoever watches a run: computed on a rank from its own spans, cheap enough for every step.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "exec/rank_span.hpp"

namespace weft {

struct StepGlance {
  std::int64_t nanos = 0;  // from its first compute to that of the next step
  // The share of the time with transfers of this step in which the rank computed, this step or the next; NaN without
  // transfers.
  double hidden = 0;
};

class StepGlancer {
 public:
  // Instances of a step that compute, the first of them first, and those that are transfers.
  StepGlancer(std::vector<std::int32_t> computes, std::vector<std::int32_t> transfers);
  // `step`: by instance. `next`: of the step after it, behind which transfers may hide; empty: there is none. `end`:
  // when that began. What has not ended counts for nothing. Allocates nothing.
  StepGlance look(std::span<const RankSpan> step, std::span<const RankSpan> next, std::int64_t end);
  std::int64_t begin_of(std::span<const RankSpan> step) const;

 private:
  void merge_transfers(std::span<const RankSpan> step);
  std::int64_t transfer_time_within(const RankSpan& span) const;

  std::vector<std::int32_t> computes_, transfers_;
  std::vector<std::pair<std::int64_t, std::int64_t>> intervals_;  // with a transfer under way, disjoint, in order
};

}  // namespace weft
