#include "plan/pipeline/receive_buffers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace weft {
namespace {

bool is_receive(ActionKind kind) {
  return kind == ActionKind::receive_forward || kind == ActionKind::receive_backward;
}

// Where each micro-batch of a stage is last worked on, and the pass that does.
using LastPasses = std::map<std::pair<std::int64_t, std::int64_t>, std::pair<std::size_t, PipelineAction>>;

LastPasses last_passes(const std::vector<PipelineAction>& actions) {
  LastPasses last;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (is_compute(actions[i].kind)) last[{actions[i].stage, actions[i].micro_batch}] = {i, actions[i]};
  }
  return last;
}

std::optional<Violation> find_overwritten_on_rank(const std::vector<PipelineAction>& actions, std::size_t rank,
                                                  std::int64_t buffers) {
  const LastPasses last = last_passes(actions);
  std::map<std::pair<std::int64_t, ActionKind>, std::vector<std::int64_t>> received;  // micro-batches, in order
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const PipelineAction& action = actions[i];
    if (!is_receive(action.kind)) continue;
    std::vector<std::int64_t>& before = received[{action.stage, action.kind}];
    if (std::ssize(before) >= buffers) {
      const std::int64_t overwritten = before[before.size() - static_cast<std::size_t>(buffers)];
      const auto found = last.find({action.stage, overwritten});
      if (found != last.end() && found->second.first > i) {
        return Violation{Rule::hazard,
                         fmt::format("rank {}: {} fills the receive buffer of micro-batch {}, which {} still needs "
                                     "({} for each stage and direction)",
                                     rank, name_of(action), overwritten, name_of(found->second.second), buffers)};
      }
    }
    before.push_back(action.micro_batch);
  }
  return std::nullopt;
}

}  // namespace

std::optional<Violation> find_overwritten_message(const PipelineActions& actions, std::int64_t buffers) {
  for (std::size_t rank = 0; rank < actions.size(); ++rank) {
    if (auto fault = find_overwritten_on_rank(actions[rank], rank, buffers)) return fault;
  }
  return std::nullopt;
}

std::int64_t receive_buffers_needed(const PipelineActions& actions) {
  std::int64_t most = 0;  // with a buffer for every message nothing is filled twice
  for (const std::vector<PipelineAction>& rank : actions) {
    most = std::max<std::int64_t>(
        most, std::ranges::count_if(rank, [](const PipelineAction& action) { return is_receive(action.kind); }));
  }
  for (std::int64_t buffers = 1; buffers <= most; ++buffers) {
    if (!find_overwritten_message(actions, buffers)) return buffers;
  }
  return most;
}

}  // namespace weft
