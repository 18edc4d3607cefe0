// The flags by which Megatron-LM, and MindSpeed with it, is told a model.
#pragma once

#include <string>
#include <vector>

#include "model/transformer.hpp"

namespace weft {

// "--num-layers 32", one for each flag. io/megatron/megatron_model.hpp reads them back.
std::vector<std::string> megatron_model_flags(const Transformer& model, bool dropout);

}  // namespace weft
