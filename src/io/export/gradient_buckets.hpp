// The buckets of a plan's gradients, and the limit by which a framework would cut them alike.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/plan.hpp"

namespace weft {

// Gradients that a rank class reduces together, in the order in which the transfer has them.
struct GradientBucket {
  std::int32_t chunk = 0;
  std::vector<std::int64_t> parameters = {};  // of each gradient
  std::vector<Bytes> bytes = {};
};

// Returns the buckets of the first rank class of a stage for its dense parameters, in the order of issue. A step that
// reduces every micro-batch has its buckets once.
std::vector<GradientBucket> gradient_buckets(const Plan& plan, std::int64_t stage);

// Limits that cut a list at the same places. A bucket is closed once it has reached its limit, so the last
// gradient may carry it beyond: a limit is above what was there before that gradient and at most what is there with it.
struct BucketLimits {
  std::int64_t above = 0;
  std::optional<std::int64_t> at_most = {};  // nothing: no limit is too large
  bool possible() const { return !at_most || *at_most > above; }
  bool allow(std::int64_t limit) const { return limit > above && (!at_most || limit <= *at_most); }
};

// Each bucket as the sizes of its gradients. The last one may have been closed by the end of the list.
BucketLimits limits_of_bucket(const std::vector<std::int64_t>& sizes, bool last);
BucketLimits limits_of_all(const std::vector<std::vector<std::int64_t>>& buckets);

}  // namespace weft
