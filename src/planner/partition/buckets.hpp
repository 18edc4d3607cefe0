// Cuts a class's once-a-step gradient reductions (and parameter gathers) into buckets: consecutive parameters that
// travel together. Who cuts how, and where the rules come from, is in docs/policies.md.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "graph/step_graph.hpp"
#include "planner/partition/merge.hpp"

namespace weft {

// A parameter is added to the open bucket, then the bucket's size is looked at: it is closed once it has reached its
// limit, so the last parameter may carry it far beyond.
struct BucketRule {
  static constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();
  enum class Unit : std::uint8_t { gradient_bytes, parameters };
  enum class Order : std::uint8_t { as_backward_finishes, last_declared_first };

  Unit unit = Unit::gradient_bytes;
  Order order = Order::as_backward_finishes;
  std::int64_t first_limit = kUnlimited;  // of the first bucket of a group
  std::int64_t limit = kUnlimited;        // of every other
  bool spans_chunks = true;               // model chunks share buckets
  bool cuts_first_chunk_only = false;     // the chunk with the model's first layers; every other chunk is one bucket
  // The first layers are chunk 0 of pipeline rank 0 and of this one. Where there are two copies of the model, ranks
  // that sum a parameter over the copies must cut alike (PipelineShape::two_directions).
  std::int64_t rank_with_copy = 0;
  bool shared_embedding_apart = false;  // an embedding tied across stages is a bucket of its own
  friend bool operator==(const BucketRule&, const BucketRule&) = default;
};

// PyTorch's DistributedDataParallel has buckets of 25 MiB, the first of 1 MiB so that communication starts early. Where
// a size is asked for, it is that of the first bucket too.
BucketRule ddp_buckets(std::optional<double> mib = {});
// Megatron-LM with --overlap-grad-reduce counts parameters (not bytes) in a bucket, by default max(40M, 1M * group).
BucketRule megatron_buckets(const StepGraph& graph, bool distributed_optimizer,
                            std::optional<std::int64_t> parameters = {});
// Megatron-LM without that flag has one bucket for each model chunk.
BucketRule megatron_whole_chunks(bool distributed_optimizer);

// A rule looks at one transfer of one parameter after the other.
struct BucketItem {
  OpId operation;
  std::int32_t chunk = 0;
  std::int64_t parameters = 0;
  Bytes gradient;
  bool shared_embedding = false;
};
// Cuts the transfers of one group of a rank class on pipeline rank `stage`.
std::vector<std::vector<OpId>> cut_into_buckets(const std::vector<BucketItem>& items, const BucketRule& rule,
                                                std::int64_t stage);

// Does what one_bucket does, but with the once-a-step gradient reductions cut by the rule, a group at a time; with
// `gathers` the once-a-step parameter gathers too, into the same buckets. The reduction of tensor-parallel replicas,
// which comes before that of data parallelism, and that over replicas of shards, which comes after it, are cut alike so
// that no bucket waits for another's gradients. Where data parallelism reduces in every micro-batch, the rule cuts the
// reduction over replicas of shards.
std::vector<MergeSet> bucket_sets(const StepGraph& graph, const BucketRule& rule, bool gathers = false);

// Puts each of the once-a-step transfers of a role with those of the bucket that its parameter's gradient travels in,
// and the rest of a class together.
std::vector<std::vector<OpId>> transfers_by_bucket(const StepGraph& graph, Role role,
                                                   const std::vector<std::vector<OpId>>& buckets);

// Returns by operation, for a once-a-step reduction, the last operation of backward whose result it reduces, in graph
// order, and -1 for any other operation.
std::vector<std::int32_t> last_gradient_writers(const StepGraph& graph);

}  // namespace weft
