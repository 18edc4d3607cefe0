#include "io/export/gradient_buckets.hpp"

#include <algorithm>
#include <numeric>
#include <set>

namespace weft {
namespace {

bool begins_bucket(const Operation& op, Role role) {
  return op.role == role && op.is_transfer() && op.leg == 0 && !is_of_experts(op.communication->group) &&
         std::all_of(op.origins.begin(), op.origins.end(), [](const Origin& origin) { return origin.begin == 0; });
}

GradientBucket bucket_of(const StepGraph& graph, const Operation& op) {
  GradientBucket bucket{.chunk = op.chunk};
  for (const Read& read : op.reads) {
    bucket.parameters.push_back(graph.value(read.value).elements());
    bucket.bytes.push_back(graph.value(read.value).bytes());
  }
  return bucket;
}

std::vector<GradientBucket> buckets_of(const Plan& plan, ClassId rank_class, Role role) {
  std::vector<GradientBucket> buckets;
  std::set<OpId> seen;  // reductions of every micro-batch are issued several times
  for (const IssueSlot& slot : plan.classes[rank_class].order) {
    for (const OpId id : operations_of(plan.classes[rank_class], slot)) {
      const Operation& op = plan.graph.op(id);
      if (begins_bucket(op, role) && seen.insert(id).second) buckets.push_back(bucket_of(plan.graph, op));
    }
  }
  return buckets;
}

}  // namespace

std::vector<GradientBucket> gradient_buckets(const Plan& plan, std::int64_t stage) {
  for (const ClassId id : plan.classes.ids()) {
    if (plan.graph.classes[id].stage != stage) continue;
    std::vector<GradientBucket> buckets = buckets_of(plan, id, Role::grad_reduce);
    // Where every rank has all shards there are only the sums over replicas.
    return buckets.empty() ? buckets_of(plan, id, Role::shard_reduce) : buckets;
  }
  return {};
}

BucketLimits limits_of_bucket(const std::vector<std::int64_t>& sizes, bool last) {
  const std::int64_t sum = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  BucketLimits limits{.above = sum - (sizes.empty() ? 0 : sizes.back())};
  if (!last) limits.at_most = sum;
  return limits;
}

BucketLimits limits_of_all(const std::vector<std::vector<std::int64_t>>& buckets) {
  BucketLimits all;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const BucketLimits one = limits_of_bucket(buckets[i], i + 1 == buckets.size());
    all.above = std::max(all.above, one.above);
    if (one.at_most) all.at_most = std::min(all.at_most.value_or(*one.at_most), *one.at_most);
  }
  return all;
}

}  // namespace weft
