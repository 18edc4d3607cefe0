// The order in which a pipeline rank works through micro-batches: GPipe, 1F1B, interleaved 1F1B.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/layout.hpp"

namespace weft {

struct PipelineSlot {
  bool forward = true;
  std::int32_t chunk = 0;  // model chunk of this pipeline rank
  std::int32_t micro_batch = 0;
  friend bool operator==(const PipelineSlot&, const PipelineSlot&) = default;
};

std::vector<PipelineSlot> pipeline_order(const Layout& layout, std::int64_t stage);

}  // namespace weft
