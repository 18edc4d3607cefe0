// What each pipeline rank does in a step, as lists of actions: the language of torch.distributed.pipelining.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.hpp"

namespace weft {

// As the rows of the table in the source file.
enum class ActionKind : std::uint8_t {
  forward,
  backward,
  input_grad,
  weight_grad,
  send_forward,
  receive_forward,
  send_backward,
  receive_backward,
  unshard,
  reshard,
  reduce_grad
};
std::string_view letters_of(ActionKind kind);  // "F", "SEND_F"
std::optional<ActionKind> action_with_letters(std::string_view letters);
constexpr bool is_compute(ActionKind kind) {
  return kind <= ActionKind::weight_grad;
}
constexpr bool ends_backward(ActionKind kind) {
  return kind == ActionKind::backward || kind == ActionKind::weight_grad;
}
constexpr bool is_message(ActionKind kind) {
  return kind >= ActionKind::send_forward && kind <= ActionKind::receive_backward;
}

struct PipelineAction {
  ActionKind kind = ActionKind::forward;
  // A model chunk, counted in the order of the model; what PyTorch calls a stage.
  std::int64_t stage = 0;
  std::int64_t micro_batch = -1;  // -1: of none, as unshard
  friend auto operator<=>(const PipelineAction&, const PipelineAction&) = default;
};
std::string name_of(const PipelineAction& action);  // "2F0", "1UNSHARD"

// By pipeline rank, in order.
using PipelineActions = std::vector<std::vector<PipelineAction>>;

// Returns the passes of every pipeline rank in the order in which they end. Ranks of one stage do the same.
PipelineActions passes_of(const Plan& plan);

// The passes with a REDUCE_GRAD behind the last backward of every stage: there PyTorch reduces gradients over data
// parallel ranks and divides them by the number of micro-batches.
PipelineActions with_reductions(const PipelineActions& passes);

// The passes with a send behind every one that another rank waits for, and the receive at the same moment at the other
// end, so that all ranks have their messages in one order. Nothing where the passes wait for each other in a circle.
std::optional<PipelineActions> with_messages(const PipelineActions& passes);

// What follows from where stages are.
struct StageRanks {
  std::vector<std::int64_t> rank_of;  // by stage; -1: on none
  std::int64_t stages() const { return static_cast<std::int64_t>(rank_of.size()); }
  // Whether a pass waits for a message of another rank: of the stage before it, in backward of the one behind.
  bool receives(const PipelineAction& pass) const;
  // Whether another rank waits for its result.
  bool sends(const PipelineAction& pass) const;
  // Whether what a pass needs is among what is done: its message, or the pass before it where both are on one rank.
  bool can_run(const PipelineAction& pass, const std::set<PipelineAction>& done) const;
};
StageRanks stage_ranks(const PipelineActions& actions);
// The message that a pass waits for, and the one that follows it; of a pass that receives or sends.
PipelineAction received_by(const PipelineAction& pass);
PipelineAction sent_by(const PipelineAction& pass);
// The other end of a message.
PipelineAction counterpart(const PipelineAction& message);

}  // namespace weft
