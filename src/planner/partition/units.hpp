// Buckets by unit: each layer's transfers travel together, apart from those of other layers.
#pragma once

#include <vector>

#include "planner/partition/merge.hpp"

namespace weft {

// Does what one_bucket does, but with the once-a-step reductions and gathers of every layer on their own, and the
// embedding and the head apart. All updates stay one.
std::vector<MergeSet> one_bucket_per_layer(const StepGraph& graph);

}  // namespace weft
