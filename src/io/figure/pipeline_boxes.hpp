// The passes of a pipeline as boxes: consecutive compute of one micro-batch in one direction.
#pragma once

#include <cstdint>
#include <vector>

#include "timeline/timeline.hpp"

namespace weft {

// `weights`: gradients of weights alone. `update`: what a step has once.
enum class PassDirection : std::uint8_t { forward, backward, weights, update };

struct PipelineBox {
  std::int32_t micro_batch = -1, iteration = 0;
  PassDirection direction = PassDirection::forward;
  Nanos begin, end;
  friend bool operator==(const PipelineBox&, const PipelineBox&) = default;
};

// By rank. The spans come by rank, queue and start, as a page has them.
std::vector<std::vector<PipelineBox>> pipeline_boxes(const Timeline& timeline);

}  // namespace weft
