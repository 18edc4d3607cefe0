// Reads the config.json that Hugging Face models carry.
#pragma once

#include <string>
#include <vector>

#include "model/transformer.hpp"

namespace weft {

// The values of `model_type` that read_hf_config understands.
std::vector<std::string> hf_model_types();

// Throws Error naming the file, the key, its value and what is allowed. Keys that do not change the shape are
// ignored (so are sliding windows: FLOPs count full attention, and DeepSeek-V3's multi-token-prediction
// layers). An absent key takes the default of the Hugging Face class where that default is neutral or follows
// from other keys (untied embeddings, head_dim = hidden / heads); a default that is one particular model's
// number is not assumed.
Transformer read_hf_config(const std::string& text, const std::string& file_name);

}  // namespace weft
