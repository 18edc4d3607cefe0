#include "planner/schedule/pipeline.hpp"

#include <algorithm>

namespace weft {
namespace {

// The k-th forward (or backward) of a rank with several chunks: micro-batches in rounds of `stages`, each round
// through all chunks in turn (Narayanan et al. 2021, section 2.2); with one chunk simply micro-batch k.
PipelineSlot nth(bool forward, std::int64_t k, std::int64_t stages, std::int64_t chunks) {
  if (chunks == 1) return {forward, 0, static_cast<std::int32_t>(k)};
  const std::int64_t round = k / (stages * chunks);
  const std::int64_t in_round = k % (stages * chunks);
  const std::int64_t chunk = in_round / stages;
  return {forward, static_cast<std::int32_t>(forward ? chunk : chunks - 1 - chunk),
          static_cast<std::int32_t>(round * stages + in_round % stages)};
}

}  // namespace

std::vector<PipelineSlot> pipeline_order(const Layout& layout, std::int64_t stage, bool paired) {
  const std::int64_t stages = layout.pp, chunks = layout.vpp, total = layout.micro_batches() * chunks;
  std::int64_t warm_up = total;  // GPipe: all forwards first
  // A pair passes on what it made when all of it has ended, so each stage is two pairs ahead of the next.
  if (layout.schedule == PipelineSchedule::one_f_one_b) {
    warm_up = paired ? (stages - 1 - stage) * 2 + 1 : stages - 1 - stage;
  }
  if (layout.schedule == PipelineSchedule::interleaved) {
    warm_up = (stages - 1 - stage) * 2 + (chunks - 1) * stages + (paired ? 1 : 0);
  }
  warm_up = std::min(warm_up, total);

  std::vector<PipelineSlot> order;
  for (std::int64_t k = 0; k < warm_up; ++k) order.push_back(nth(true, k, stages, chunks));
  for (std::int64_t k = warm_up; k < total; ++k) {
    order.push_back(nth(true, k, stages, chunks));
    order.back().with_next = paired;
    order.push_back(nth(false, k - warm_up, stages, chunks));
  }
  for (std::int64_t k = total - warm_up; k < total; ++k) order.push_back(nth(false, k, stages, chunks));
  return order;
}

}  // namespace weft
