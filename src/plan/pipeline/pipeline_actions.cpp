#include "plan/pipeline/pipeline_actions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/error.hpp"
#include "graph/pipeline_run.hpp"

namespace weft {
namespace {

constexpr std::array<std::string_view, 11> kLetters{"F",      "B",      "I",       "W",       "SEND_F",     "RECV_F",
                                                    "SEND_B", "RECV_B", "UNSHARD", "RESHARD", "REDUCE_GRAD"};

std::optional<ActionKind> pass_of(BlockKind kind) {
  switch (kind) {
    case BlockKind::forward:
      return ActionKind::forward;
    case BlockKind::backward:
      return ActionKind::backward;
    case BlockKind::input_grad:
      return ActionKind::input_grad;
    case BlockKind::weight_grad:
      return ActionKind::weight_grad;
    default:
      return std::nullopt;
  }
}

std::vector<PipelineAction> passes_of(const Plan& plan, ClassId rank_class) {
  const ClassPlan& issued = plan.classes[rank_class];
  std::vector<PipelineAction> passes;
  for (const IssueSlot& slot : issued.order) {
    const IssueBlock& block = block_of(issued, slot);
    const auto kind = pass_of(block.kind);
    if (!kind || !ends_block(issued, slot)) continue;
    const std::int64_t stage = shape_of(plan.layout).number_of(plan.graph.classes[rank_class].stage, block.chunk);
    passes.push_back({*kind, stage, slot.micro_batch.value});
  }
  return passes;
}

}  // namespace

std::string_view letters_of(ActionKind kind) {
  return kLetters[static_cast<std::size_t>(kind)];
}

std::optional<ActionKind> action_with_letters(std::string_view letters) {
  const auto found = std::find(kLetters.begin(), kLetters.end(), letters);
  if (found == kLetters.end()) return std::nullopt;
  return static_cast<ActionKind>(found - kLetters.begin());
}

std::string name_of(const PipelineAction& action) {
  const std::string of = action.micro_batch < 0 ? "" : fmt::format("{}", action.micro_batch);
  return fmt::format("{}{}{}", action.stage, letters_of(action.kind), of);
}

PipelineActions passes_of(const Plan& plan) {
  PipelineActions actions(static_cast<std::size_t>(plan.layout.pp));
  for (const ClassId id : plan.classes.ids()) {
    std::vector<PipelineAction>& rank = actions[static_cast<std::size_t>(plan.graph.classes[id].stage)];
    if (rank.empty()) rank = passes_of(plan, id);
  }
  return actions;
}

PipelineActions with_reductions(const PipelineActions& passes) {
  PipelineActions actions(passes.size());
  for (std::size_t rank = 0; rank < passes.size(); ++rank) {
    std::map<std::int64_t, std::size_t> last;  // by stage
    for (std::size_t i = 0; i < passes[rank].size(); ++i) {
      if (ends_backward(passes[rank][i].kind)) last[passes[rank][i].stage] = i;
    }
    for (std::size_t i = 0; i < passes[rank].size(); ++i) {
      const PipelineAction& pass = passes[rank][i];
      actions[rank].push_back(pass);
      const auto found = last.find(pass.stage);
      if (found != last.end() && found->second == i) actions[rank].push_back({ActionKind::reduce_grad, pass.stage, -1});
    }
  }
  return actions;
}

StageRanks stage_ranks(const PipelineActions& actions) {
  StageRanks ranks;
  for (std::size_t rank = 0; rank < actions.size(); ++rank) {
    for (const PipelineAction& action : actions[rank]) {
      const auto stage = static_cast<std::size_t>(action.stage);
      if (stage >= ranks.rank_of.size()) ranks.rank_of.resize(stage + 1, -1);
      if (is_compute(action.kind)) ranks.rank_of[stage] = static_cast<std::int64_t>(rank);
    }
  }
  return ranks;
}

bool StageRanks::receives(const PipelineAction& pass) const {
  if (pass.kind == ActionKind::weight_grad) return false;
  const std::int64_t from = pass.kind == ActionKind::forward ? pass.stage - 1 : pass.stage + 1;
  if (from < 0 || from >= stages()) return false;
  return rank_of[static_cast<std::size_t>(from)] != rank_of[static_cast<std::size_t>(pass.stage)];
}

bool StageRanks::sends(const PipelineAction& pass) const {
  if (pass.kind == ActionKind::weight_grad) return false;
  const std::int64_t to = pass.kind == ActionKind::forward ? pass.stage + 1 : pass.stage - 1;
  if (to < 0 || to >= stages()) return false;
  return rank_of[static_cast<std::size_t>(to)] != rank_of[static_cast<std::size_t>(pass.stage)];
}

bool StageRanks::can_run(const PipelineAction& pass, const std::set<PipelineAction>& done) const {
  if (receives(pass)) return done.contains(received_by(pass));
  const auto is_done = [&](ActionKind kind, std::int64_t stage) {
    return done.contains({kind, stage, pass.micro_batch});
  };
  if (pass.kind == ActionKind::forward) return pass.stage == 0 || is_done(ActionKind::forward, pass.stage - 1);
  if (pass.kind == ActionKind::weight_grad) return is_done(ActionKind::input_grad, pass.stage);
  if (pass.stage + 1 == stages()) return is_done(ActionKind::forward, pass.stage);
  return is_done(ActionKind::backward, pass.stage + 1) || is_done(ActionKind::input_grad, pass.stage + 1);
}

PipelineAction received_by(const PipelineAction& pass) {
  const bool forward = pass.kind == ActionKind::forward;
  return {forward ? ActionKind::receive_forward : ActionKind::receive_backward, pass.stage, pass.micro_batch};
}

PipelineAction sent_by(const PipelineAction& pass) {
  const bool forward = pass.kind == ActionKind::forward;
  return {forward ? ActionKind::send_forward : ActionKind::send_backward, pass.stage, pass.micro_batch};
}

PipelineAction counterpart(const PipelineAction& message) {
  switch (message.kind) {
    case ActionKind::send_forward:
      return {ActionKind::receive_forward, message.stage + 1, message.micro_batch};
    case ActionKind::receive_forward:
      return {ActionKind::send_forward, message.stage - 1, message.micro_batch};
    case ActionKind::send_backward:
      return {ActionKind::receive_backward, message.stage - 1, message.micro_batch};
    case ActionKind::receive_backward:
      return {ActionKind::send_backward, message.stage + 1, message.micro_batch};
    default:
      WEFT_CHECK(!"a message");
      return message;
  }
}

namespace {

// Carries passes out as far as they can be, and writes down every message when it is sent.
class MessageWriter {
 public:
  explicit MessageWriter(const PipelineActions& passes)
      : passes_(passes), ranks_(stage_ranks(passes)), next_(passes.size()), written_(passes.size()) {}

  std::optional<PipelineActions> write() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < passes_.size(); ++rank) {
        if (next_[rank] < passes_[rank].size() && can_run(passes_[rank][next_[rank]])) {
          run(rank, passes_[rank][next_[rank]++]);
          moved = true;
        }
      }
    }
    for (std::size_t rank = 0; rank < passes_.size(); ++rank) {
      if (next_[rank] < passes_[rank].size()) return std::nullopt;
    }
    return std::move(written_);
  }

 private:
  // What a rank does for itself alone waits for no other.
  bool can_run(const PipelineAction& action) const { return !is_compute(action.kind) || ranks_.can_run(action, done_); }

  void run(std::size_t rank, const PipelineAction& pass) {
    written_[rank].push_back(pass);
    done_.insert(pass);
    if (!is_compute(pass.kind) || !ranks_.sends(pass)) return;
    const PipelineAction sent = sent_by(pass), received = counterpart(sent);
    written_[rank].push_back(sent);
    written_[static_cast<std::size_t>(ranks_.rank_of[static_cast<std::size_t>(received.stage)])].push_back(received);
    done_.insert(received);
  }

  const PipelineActions& passes_;
  StageRanks ranks_;
  std::vector<std::size_t> next_;
  PipelineActions written_;
  std::set<PipelineAction> done_;
};

}  // namespace

std::optional<PipelineActions> with_messages(const PipelineActions& passes) {
  return MessageWriter(passes).write();
}

}  // namespace weft
