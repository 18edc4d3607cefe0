// Reads the config.json that Hugging Face models carry.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/transformer.hpp"

namespace weft {

// The values of `model_type` that read_hf_config understands.
std::vector<std::string> hf_model_types();

// Throws Error naming the file, the key, its value and what is allowed. Keys that do not change the shape are
// ignored (so are DeepSeek-V3's multi-token-prediction layers; for sliding windows see HfExtras). An absent key takes
// the default of the Hugging Face class where that default is neutral or follows from other keys (untied embeddings,
// head_dim = hidden / heads); a default that is one particular model's number is not assumed.
Transformer read_hf_config(const std::string& text, const std::string& file_name);

// What such a file says about a model beyond its shape.
struct HfExtras {
  // How many tokens back attention sees, in the layers that have a window; none where it sees all.
  std::optional<std::int64_t> sliding_window;
  std::string quantization;  // of the published weights: "fp8"; empty: none
};
HfExtras read_hf_extras(const std::string& text, const std::string& file_name);

}  // namespace weft
