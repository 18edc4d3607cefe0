#include "planner/policy/nanotron.hpp"

#include "planner/partition/buckets.hpp"
#include "planner/partition/own_row_cuts.hpp"

namespace weft {

Overlap nanotron_overlap(const PlanRequest& request, const StepGraph& graph) {
  // Buckets of 25 MiB are counted on bf16 gradients, and their fp32 sums travel.
  constexpr double kBucketMib = 50;
  Overlap overlap{
      .partition = {.buckets = bucket_sets(graph, ddp_buckets(request.options.bucket_mib.value_or(kBucketMib)))},
      .beside = {.reductions = true, .receives = receives_early(request), .linear_backward = request.layout.tp > 1}};
  // _ColumnLinearAsyncCommunication and _RowLinearAsyncCommunication (parallel/tensor_parallel/functional.py) multiply
  // the rank's own rows while those of others are gathered.
  if (request.layout.tp > 1 && request.layout.sequence_parallel) {
    overlap.partition.layers = own_row_cuts(graph);
    overlap.beside.own_rows_first = true;
  }
  return overlap;
}

}  // namespace weft
