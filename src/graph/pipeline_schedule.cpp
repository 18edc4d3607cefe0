#include "graph/pipeline_schedule.hpp"

#include <algorithm>
#include <iterator>

#include "base/enum_name.hpp"
#include "graph/layout.hpp"

namespace weft {
namespace {

// Returns the k-th forward (or backward) of a rank with several chunks: micro-batches in rounds of `stages`, each round
// through all chunks in turn (Narayanan et al. 2021, section 2.2); with one chunk simply micro-batch k.
PipelinePass nth(BlockKind kind, std::int64_t k, std::int64_t stages, std::int64_t chunks) {
  if (chunks == 1) return {kind, 0, make_id<MicroBatch>(k)};
  const std::int64_t round = k / (stages * chunks);
  const std::int64_t in_round = k % (stages * chunks);
  const std::int64_t chunk = in_round / stages;
  return {kind, static_cast<std::int32_t>(kind == BlockKind::forward ? chunk : chunks - 1 - chunk),
          make_id<MicroBatch>(round * stages + in_round % stages)};
}

std::int64_t passes_of_step(const Layout& layout) {
  return layout.micro_batches() * layout.vpp;
}

// Forwards of the warm-up; then a forward and a backward take turns; the backwards that are left.
std::vector<PipelinePass> in_turns(const Layout& layout, std::int64_t warm_up, bool paired) {
  const std::int64_t total = passes_of_step(layout);
  warm_up = std::min(warm_up, total);
  const auto slot = [&](BlockKind kind, std::int64_t k) { return nth(kind, k, layout.pp, layout.vpp); };
  std::vector<PipelinePass> order;
  for (std::int64_t k = 0; k < warm_up; ++k) order.push_back(slot(BlockKind::forward, k));
  for (std::int64_t k = warm_up; k < total; ++k) {
    order.push_back(slot(BlockKind::forward, k));
    order.back().with_next = paired;
    order.push_back(slot(BlockKind::backward, k - warm_up));
  }
  for (std::int64_t k = total - warm_up; k < total; ++k) order.push_back(slot(BlockKind::backward, k));
  return order;
}

std::int64_t one_f_one_b_warm_up(const Layout& layout, std::int64_t stage, bool paired) {
  const std::int64_t later = layout.pp - 1 - stage;
  // A pair passes on its results when all of it has ended, so each stage is two pairs ahead of the next.
  return paired ? 2 * later + 1 : later;
}

std::int64_t interleaved_warm_up(const Layout& layout, std::int64_t stage, bool paired) {
  return 2 * (layout.pp - 1 - stage) + (layout.vpp - 1) * layout.pp + (paired ? 1 : 0);
}

std::vector<PipelinePass> all_forwards_first(const Layout& layout, std::int64_t, bool) {
  return in_turns(layout, passes_of_step(layout), false);
}

std::int64_t all_in_flight(const Layout& layout, std::int64_t) {
  return passes_of_step(layout);
}

// Every micro-batch passes a chunk before the first goes on to the next chunk (Lamy-Poirier 2023; LoopedBFS of
// PyTorch).
std::vector<PipelinePass> chunk_after_chunk(const Layout& layout, std::int64_t, bool) {
  std::vector<PipelinePass> order;
  for (const BlockKind kind : {BlockKind::forward, BlockKind::backward}) {
    for (std::int64_t k = 0; k < layout.vpp; ++k) {
      const auto chunk = static_cast<std::int32_t>(kind == BlockKind::forward ? k : layout.vpp - 1 - k);
      for (const MicroBatch mb : IdRange<MicroBatch>(layout.micro_batches())) order.push_back({kind, chunk, mb});
    }
  }
  return order;
}

using WarmUp = std::int64_t(const Layout& layout, std::int64_t stage, bool paired);

template <WarmUp warm_up>
std::vector<PipelinePass> order_after(const Layout& layout, std::int64_t stage, bool paired) {
  return in_turns(layout, warm_up(layout, stage, paired), paired);
}

// The forward that alternates with the first backward comes before it.
template <WarmUp warm_up>
std::int64_t in_flight_after(const Layout& layout, std::int64_t stage) {
  return std::min(passes_of_step(layout), warm_up(layout, stage, false) + 1);
}

constexpr ScheduleRow kSchedules[] = {
    {.name = "gpipe", .takes_turns = false, .order = all_forwards_first, .passes_in_flight = all_in_flight},
    {.name = "1f1b",
     .order = order_after<one_f_one_b_warm_up>,
     .passes_in_flight = in_flight_after<one_f_one_b_warm_up>},
    {.name = "interleaved",
     .several_chunks = true,
     .in_rounds = true,
     .order = order_after<interleaved_warm_up>,
     .passes_in_flight = in_flight_after<interleaved_warm_up>},
    {.name = "breadth-first",
     .several_chunks = true,
     .takes_turns = false,
     .order = chunk_after_chunk,
     .passes_in_flight = all_in_flight},
};
static_assert(std::size(kSchedules) == static_cast<std::size_t>(PipelineSchedule::breadth_first) + 1);

}  // namespace

std::string_view name_of(BlockKind kind) {
  constexpr std::string_view kNames[kBlockKinds] = {"forward",     "backward", "input_grad",
                                                    "weight_grad", "update",   "extra"};
  return enum_name(kNames, kind);
}

const ScheduleRow& row_of(PipelineSchedule schedule) {
  return kSchedules[static_cast<std::size_t>(schedule)];
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const ScheduleRow& row : kSchedules) names.emplace_back(row.name);
  return names;
}

std::vector<PipelinePass> pipeline_order(const Layout& layout, std::int64_t stage, bool paired) {
  return row_of(layout.schedule).order(layout, stage, paired);
}

std::int64_t passes_in_flight(const Layout& layout, std::int64_t stage) {
  return row_of(layout.schedule).passes_in_flight(layout, stage);
}

}  // namespace weft
