// Buckets by unit: each layer's transfers travel together, apart from those of other layers.
#pragma once

#include <vector>

#include "planner/partition/merge.hpp"

namespace weft {

// Does what one_bucket does, but with the once-a-step reductions and gathers of every layer on their own, and the
// embedding and the head apart. All updates stay one.
std::vector<MergeSet> one_bucket_per_layer(const StepGraph& graph);
// The same, but what ZeRO 2 and 3 gather and reduce of a layer in every micro-batch travels in parts: its attention and
// the rest apart, each norm with the products that read it; or every parameter `single`. A part is gathered while
// products read those before it, and reduced while backward makes those behind it; parts have the sizes that the
// parameters have.
std::vector<MergeSet> buckets_within_layers(const StepGraph& graph, bool single);

}  // namespace weft
