#include "io/figure/pipeline_boxes.hpp"

#include <algorithm>
#include <string_view>

namespace weft {
namespace {

PassDirection direction_of(const TimelineOperation& operation, std::string_view phase) {
  if (operation.micro_batch == kOncePerStep) return PassDirection::update;
  if (phase == "forward") return PassDirection::forward;
  return phase == "weight_grad" ? PassDirection::weights : PassDirection::backward;
}

bool is_backward(PassDirection direction) {
  return direction == PassDirection::backward || direction == PassDirection::weights;
}

}  // namespace

std::vector<std::vector<PipelineBox>> pipeline_boxes(const Timeline& timeline) {
  std::vector<std::vector<PipelineBox>> rows(timeline.ranks.size());
  for (const Span& span : timeline.spans) {
    const TimelineOperation& operation = timeline.operations[static_cast<std::size_t>(span.operation)];
    if (operation.activity != Activity::compute) continue;
    const PassDirection direction = direction_of(operation, timeline.names[static_cast<std::size_t>(operation.phase)]);
    std::vector<PipelineBox>& row = rows[static_cast<std::size_t>(operation.rank)];
    PipelineBox* last = row.empty() ? nullptr : &row.back();
    const bool goes_on = last != nullptr && last->micro_batch == operation.micro_batch.value &&
                         last->iteration == span.iteration &&
                         (last->direction == direction || (is_backward(last->direction) && is_backward(direction)));
    if (!goes_on) {
      row.push_back({operation.micro_batch.value, span.iteration, direction, span.start, span.end});
      continue;
    }
    last->end = std::max(last->end, span.end);
    if (direction != last->direction) last->direction = PassDirection::backward;
  }
  return rows;
}

}  // namespace weft
