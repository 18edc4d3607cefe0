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
  // The share of the time with transfers in which the rank computed; NaN without transfers. Everything that is not
  // compute counts as waiting for transfers, so this is a little below what the accounting of a timeline finds.
  double hidden = 0;
};

class StepGlancer {
 public:
  // Instances of a step that compute, the first of them first, and those that are transfers.
  StepGlancer(std::vector<std::int32_t> computes, std::vector<std::int32_t> transfers);
  // `step`: by instance. `end`: when the next step began. Transfers that have not ended count for nothing. Allocates
  // nothing.
  StepGlance look(std::span<const RankSpan> step, std::int64_t end);
  std::int64_t begin_of(std::span<const RankSpan> step) const;

 private:
  std::int64_t communication(std::span<const RankSpan> step);

  std::vector<std::int32_t> computes_, transfers_;
  std::vector<std::pair<std::int64_t, std::int64_t>> intervals_;
};

}  // namespace weft
