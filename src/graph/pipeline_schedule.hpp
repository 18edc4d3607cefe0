// Pipeline schedules: the order in which a pipeline rank works through its micro-batches, and how many of them are
// under way. One row of the table in the source file holds all that is known of a schedule; planner, memory bound,
// flags and files ask that table.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"

namespace weft {

struct Layout;

// What a block of a plan does (plan/plan.hpp). A backward makes the gradients of inputs and of weights; a schedule that
// splits it has a block for each of the two.
enum class BlockKind : std::uint8_t { forward, backward, input_grad, weight_grad, update, extra };
inline constexpr int kBlockKinds = 6;
std::string_view name_of(BlockKind kind);
// Returns whether a block of this kind is the last of a micro-batch's pass through a model chunk.
constexpr bool ends_pass(BlockKind kind) {
  return kind == BlockKind::backward || kind == BlockKind::weight_grad;
}

// As the rows of the table.
enum class PipelineSchedule {
  gpipe,
  one_f_one_b,
  interleaved,
  breadth_first,
  zb_h1,
  zb_h2,
  zbv,
  v_half,
  v_min,
  hanayo,
  dualpipev,
  searched,
  searched_waves,
  searched_loops,
  dualpipe
};

// A pass at its place in the order of a pipeline rank.
struct PipelinePass {
  BlockKind kind = BlockKind::forward;
  std::int32_t chunk = 0;  // model chunk of this pipeline rank
  MicroBatch micro_batch{0};
  bool with_next = false;  // a forward that forms a pair with the backward behind it
  std::int32_t slice = 0;  // of the micro-batch's sequence (Layout::slice_tokens)
  friend bool operator==(const PipelinePass&, const PipelinePass&) = default;
};

using PipelineOrders = std::vector<std::vector<PipelinePass>>;  // by stage

struct ScheduleRow {
  std::string_view name;
  bool several_chunks = false;  // it is for ranks with several model chunks, and only for them
  bool in_rounds = false;       // its micro-batches come in rounds of as many as there are stages
  bool in_waves = false;        // micro-batches go back and forth through the chunks of every stage (PipelineShape)
  bool several_waves = false;   // they may do so more than once: two chunks of every stage for each time
  // Whether policy weft looks for the order (planner/schedule/pipeline_search.hpp); the other policies have that of
  // `unsearched`.
  bool searched = false;
  // Whether the gradients of inputs and of weights are passes of their own. An input gradient is a stage's answer to
  // the one before it; weight gradients fill the time in which stages would wait.
  bool splits_backward = false;
  // Whether forwards and backwards alternate from the first backward on: the number of passes under way does not depend
  // on the micro-batches of a step.
  bool takes_turns = true;
  // Whether slices of a sequence may pass one after the other: forward in their order, backward in the reverse one.
  bool takes_slices = false;
  // Whether a forward and the backward of another micro-batch may run side by side, as a pair. Ask the function of that
  // name, which knows searched orders too.
  bool may_pair = false;
  PipelineOrders (*orders)(const Layout& layout, bool paired);
  // Whether micro-batches enter at both ends, half of them at each. A pipeline rank holds two stages, its own and the
  // one that is as far from the other end, and every stage is on two ranks: parameters are there twice.
  bool two_directions = false;
};
const ScheduleRow& row_of(PipelineSchedule schedule);
inline std::string_view name_of(PipelineSchedule schedule) {
  return row_of(schedule).name;
}
std::vector<std::string> schedule_names();  // in the order of the table

// Returns the schedule of a pipeline with so many chunks a stage. A searched one says where chunks lie: two in waves,
// more in loops, unless its name says it.
PipelineSchedule with_placement(PipelineSchedule schedule, std::int64_t chunks);

// Returns the named schedule whose orders a layout has where its own is searched for, and nobody searches: 1F1B; in
// waves ZBV; in loops interleaved, or breadth-first where micro-batches do not come in whole rounds.
PipelineSchedule unsearched(const Layout& layout);

// Returns whether a forward and the backward of another micro-batch may run side by side, as a pair.
bool may_pair(const Layout& layout);

// With `paired`, from the first backward on a forward and the backward behind it form a pair that runs side by side.
// What either needs from other stages, or from its own forward, was made a pair earlier, so more micro-batches are
// under way. A schedule that does not alternate has no such pairs.
PipelineOrders pipeline_orders(const Layout& layout, bool paired = false);
std::vector<PipelinePass> pipeline_order(const Layout& layout, std::int64_t stage, bool paired = false);

// By stage, the most passes between their forward and the end of their backward, where nothing is paired. Where
// sequences are cut into slices, a pass is of one slice. Of a split backward only the input gradient counts: what
// weight gradients still read is less than what a forward left. Of a schedule that is yet to be found, one.
std::vector<std::int64_t> passes_in_flight(const Layout& layout);

}  // namespace weft
