#include "graph/pipeline_schedule.hpp"

#include <algorithm>
#include <iterator>

#include "base/enum_name.hpp"
#include "base/error.hpp"
#include "graph/layout.hpp"
#include "graph/split_backward.hpp"
#include "graph/waves.hpp"

namespace weft {
namespace {

// Returns the k-th forward (or backward) of a rank with one chunk: slice after slice, micro-batch after micro-batch. A
// slice's backward reads what those behind it left of the gradients of its keys, so slices go back in reverse order.
PipelinePass nth_slice(BlockKind kind, std::int64_t k, std::int64_t slices) {
  const std::int64_t slice = kind == BlockKind::forward ? k % slices : slices - 1 - k % slices;
  return {.kind = kind, .micro_batch = make_id<MicroBatch>(k / slices), .slice = static_cast<std::int32_t>(slice)};
}

// The same of a rank with several chunks: micro-batches in rounds of as many as there are stages, each round through
// all chunks in turn (Narayanan et al. 2021, section 2.2).
PipelinePass nth(BlockKind kind, std::int64_t k, const Layout& layout) {
  const std::int64_t stages = layout.pp, chunks = layout.vpp;
  if (chunks == 1) return nth_slice(kind, k, layout.slices());
  const std::int64_t round = k / (stages * chunks);
  const std::int64_t in_round = k % (stages * chunks);
  const std::int64_t chunk = in_round / stages;
  return {kind, static_cast<std::int32_t>(kind == BlockKind::forward ? chunk : chunks - 1 - chunk),
          make_id<MicroBatch>(round * stages + in_round % stages)};
}

std::int64_t passes_of_step(const Layout& layout) {
  return layout.micro_batches() * layout.vpp * layout.slices();
}

// Forwards of the warm-up; then a forward and a backward take turns; the backwards that are left.
std::vector<PipelinePass> in_turns(const Layout& layout, std::int64_t warm_up, bool paired) {
  const std::int64_t total = passes_of_step(layout);
  warm_up = std::min(warm_up, total);
  const auto slot = [&](BlockKind kind, std::int64_t k) { return nth(kind, k, layout); };
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
  std::int64_t later = layout.pp - 1 - stage + layout.slices() - 1;  // backward begins with the last slice
  if (layout.warm_up_depth > 0 && layout.pp > 1) {
    later = (layout.warm_up_depth - 1) * (layout.pp - 1 - stage) / (layout.pp - 1);
  }
  // A pair passes on its results when all of it has ended, so each stage is two pairs ahead of the next.
  return paired ? 2 * later + 1 : later;
}

std::int64_t interleaved_warm_up(const Layout& layout, std::int64_t stage, bool paired) {
  return 2 * (layout.pp - 1 - stage) + (layout.vpp - 1) * layout.pp + (paired ? 1 : 0);
}

// Every micro-batch passes a chunk before the first goes on to the next chunk (Lamy-Poirier 2023; LoopedBFS of
// PyTorch, which goes back through micro-batches from the last to the first).
PipelineOrders chunk_after_chunk(const Layout& layout, bool) {
  std::vector<PipelinePass> order;
  for (const BlockKind kind : {BlockKind::forward, BlockKind::backward}) {
    for (std::int64_t k = 0; k < layout.vpp; ++k) {
      const auto chunk = static_cast<std::int32_t>(kind == BlockKind::forward ? k : layout.vpp - 1 - k);
      for (const MicroBatch mb : IdRange<MicroBatch>(layout.micro_batches())) order.push_back({kind, chunk, mb});
    }
  }
  return PipelineOrders(static_cast<std::size_t>(layout.pp), order);
}

PipelineOrders all_forwards_first(const Layout& layout, bool) {
  return PipelineOrders(static_cast<std::size_t>(layout.pp), in_turns(layout, passes_of_step(layout), false));
}

using WarmUp = std::int64_t(const Layout& layout, std::int64_t stage, bool paired);

template <WarmUp warm_up>
PipelineOrders orders_after(const Layout& layout, bool paired) {
  PipelineOrders orders;
  for (std::int64_t stage = 0; stage < layout.pp; ++stage) {
    orders.push_back(in_turns(layout, warm_up(layout, stage, paired), paired));
  }
  return orders;
}

// Zero Bubble's schedules by hand (Qi et al. 2024, section 2): H1 holds as many passes as the first stage of 1F1B does,
// H2 as many as keep that stage busy until the first gradient has come back.
PipelineOrders zero_bubble(const Layout& layout, std::int64_t most_held) {
  const PipelineProblem problem = problem_in_units(shape_of(layout));
  most_held += layout.slices() - 1;  // backward begins with the last slice
  const std::vector<std::int64_t> of_stages(static_cast<std::size_t>(layout.pp), most_held);
  const auto orders = fill_with_weight_grads(problem, {.most_held = of_stages});
  WEFT_CHECK(orders.has_value());
  return *orders;
}

template <WaveSteps steps>
PipelineOrders in_waves(const Layout& layout, bool) {
  return repeat_in_waves(shape_of(layout), steps);
}

PipelineOrders zero_bubble_in_waves(const Layout& layout, bool) {
  return zero_bubble_waves(shape_of(layout));
}

PipelineOrders whole_waves(const Layout& layout, bool) {
  return hanayo_waves(shape_of(layout));
}

PipelineOrders dual_pipe_in_waves(const Layout& layout, bool paired) {
  return dual_pipe_waves(shape_of(layout), paired);
}

PipelineOrders dual_pipe(const Layout& layout, bool paired) {
  return dual_pipe_both_ways(shape_of(layout), paired);
}

PipelineOrders unless_searched(const Layout& layout, bool paired) {
  return row_of(unsearched(layout)).orders(layout, paired);
}

constexpr ScheduleRow kSchedules[] = {
    {.name = "gpipe", .takes_turns = false, .takes_slices = true, .orders = all_forwards_first},
    {.name = "1f1b", .takes_slices = true, .may_pair = true, .orders = orders_after<one_f_one_b_warm_up>},
    {.name = "interleaved",
     .several_chunks = true,
     .in_rounds = true,
     .may_pair = true,
     .orders = orders_after<interleaved_warm_up>},
    {.name = "breadth-first", .several_chunks = true, .takes_turns = false, .orders = chunk_after_chunk},
    {.name = "zb-h1",
     .splits_backward = true,
     .takes_slices = true,
     .orders = [](const Layout& layout, bool) { return zero_bubble(layout, layout.pp); }},
    {.name = "zb-h2",
     .splits_backward = true,
     .takes_slices = true,
     .orders = [](const Layout& layout, bool) { return zero_bubble(layout, 2 * layout.pp - 1); }},
    {.name = "zbv", .several_chunks = true, .in_waves = true, .splits_backward = true, .orders = zero_bubble_in_waves},
    {.name = "v-half",
     .several_chunks = true,
     .in_waves = true,
     .splits_backward = true,
     .orders = in_waves<WaveSteps{1, 2, 1, 1}>},
    {.name = "v-min",
     .several_chunks = true,
     .in_waves = true,
     .splits_backward = true,
     .orders = in_waves<WaveSteps{1, 1, 1, 1}>},
    {.name = "hanayo", .several_chunks = true, .in_waves = true, .several_waves = true, .orders = whole_waves},
    {.name = "dualpipev",
     .several_chunks = true,
     .in_waves = true,
     .splits_backward = true,
     .may_pair = true,
     .orders = dual_pipe_in_waves},
    {.name = "auto", .searched = true, .takes_slices = true, .orders = unless_searched},
    {.name = "auto-waves", .several_chunks = true, .in_waves = true, .searched = true, .orders = unless_searched},
    {.name = "auto-loops", .several_chunks = true, .searched = true, .orders = unless_searched},
    {.name = "dualpipe",
     .several_chunks = true,
     .in_waves = true,
     .splits_backward = true,
     .may_pair = true,
     .orders = dual_pipe,
     .two_directions = true},
};
static_assert(std::size(kSchedules) == static_cast<std::size_t>(PipelineSchedule::dualpipe) + 1);

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

PipelineSchedule with_placement(PipelineSchedule schedule, std::int64_t chunks) {
  if (schedule != PipelineSchedule::searched || chunks == 1) return schedule;
  return chunks == 2 ? PipelineSchedule::searched_waves : PipelineSchedule::searched_loops;
}

PipelineSchedule unsearched(const Layout& layout) {
  const ScheduleRow& row = row_of(layout.schedule);
  WEFT_CHECK(row.searched);
  if (!row.several_chunks) return PipelineSchedule::one_f_one_b;
  if (row.in_waves) return PipelineSchedule::zbv;
  return layout.has_whole_rounds() ? PipelineSchedule::interleaved : PipelineSchedule::breadth_first;
}

bool may_pair(const Layout& layout) {
  return row_of(row_of(layout.schedule).searched ? unsearched(layout) : layout.schedule).may_pair;
}

PipelineOrders pipeline_orders(const Layout& layout, bool paired) {
  return row_of(layout.schedule).orders(layout, paired);
}

std::vector<PipelinePass> pipeline_order(const Layout& layout, std::int64_t stage, bool paired) {
  return pipeline_orders(layout, paired)[static_cast<std::size_t>(stage)];
}

std::vector<std::int64_t> passes_in_flight(const Layout& layout) {
  if (row_of(layout.schedule).searched) return std::vector<std::int64_t>(static_cast<std::size_t>(layout.pp), 1);
  std::vector<std::int64_t> result;
  for (const std::vector<PipelinePass>& order : pipeline_orders(layout)) {
    std::int64_t now = 0, most = 0;
    for (const PipelinePass& pass : order) {
      if (pass.kind == BlockKind::forward) most = std::max(most, ++now);
      if (pass.kind == BlockKind::backward || pass.kind == BlockKind::input_grad) --now;
    }
    result.push_back(most);
  }
  return result;
}

}  // namespace weft
