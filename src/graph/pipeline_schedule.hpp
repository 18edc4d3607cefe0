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

enum class PipelineSchedule { gpipe, one_f_one_b, interleaved, breadth_first };  // as the rows of the table

// A pass at its place in the order of a pipeline rank.
struct PipelinePass {
  BlockKind kind = BlockKind::forward;
  std::int32_t chunk = 0;  // model chunk of this pipeline rank
  MicroBatch micro_batch{0};
  bool with_next = false;  // a forward that forms a pair with the backward behind it
  friend bool operator==(const PipelinePass&, const PipelinePass&) = default;
};

struct ScheduleRow {
  std::string_view name;
  bool several_chunks = false;  // it is for ranks with several model chunks, and only for them
  bool in_rounds = false;       // its micro-batches come in rounds of as many as there are stages
  // Whether forwards and backwards alternate from the first backward on. They may then be paired, and the number of
  // passes under way does not depend on the micro-batches of a step.
  bool takes_turns = true;
  std::vector<PipelinePass> (*order)(const Layout& layout, std::int64_t stage, bool paired);
  std::int64_t (*passes_in_flight)(const Layout& layout, std::int64_t stage);
};
const ScheduleRow& row_of(PipelineSchedule schedule);
inline std::string_view name_of(PipelineSchedule schedule) {
  return row_of(schedule).name;
}
std::vector<std::string> schedule_names();  // in the order of the table

// With `paired`, from the first backward on a forward and the backward behind it form a pair that runs side by side.
// What either needs from other stages, or from its own forward, was made a pair earlier, so more micro-batches are
// under way. A schedule that does not alternate has no such pairs.
std::vector<PipelinePass> pipeline_order(const Layout& layout, std::int64_t stage, bool paired = false);

// The most passes of a stage between their forward and the end of their backward, where nothing is paired.
std::int64_t passes_in_flight(const Layout& layout, std::int64_t stage);

}  // namespace weft
