// Megatron-LM's --pipeline-model-parallel-layout: "Et*3|(tt|)*2tL" is the model in order, stages separated by |, with t
// for a layer, E for the embedding, L for the loss, m for a layer of multi-token prediction, *N and (...)*N to repeat.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace weft {

struct PipelineLayout {
  std::vector<std::int64_t> layers;  // of each stage
  bool predicts_more = false;        // it has layers of multi-token prediction
};

// Nothing where it is no such text, or has more than `limit` stages or layers.
std::optional<PipelineLayout> parse_pipeline_layout(std::string_view text, std::size_t limit);

}  // namespace weft
