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
  bool with_next = false;  // a forward that is a pair with the backward behind it
  friend bool operator==(const PipelineSlot&, const PipelineSlot&) = default;
};

// `paired`: from the first backward on, a forward and the backward behind it are a pair that runs side by side. What
// either needs of other stages, or of its own forward, was made a pair earlier; so more micro-batches are under way.
// (GPipe has no such pairs.)
std::vector<PipelineSlot> pipeline_order(const Layout& layout, std::int64_t stage, bool paired = false);

}  // namespace weft
