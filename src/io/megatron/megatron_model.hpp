// The model's half of a Megatron launch.
#pragma once

#include <optional>

#include "io/megatron/megatron_reader.hpp"
#include "model/transformer.hpp"

namespace weft {

// Nothing where the launch names none of --num-layers, --hidden-size and --num-attention-heads.
std::optional<Transformer> read_megatron_model(MegatronReader& flags);
// Returns whether the launch turns off all dropout. Megatron's default is 0.1.
bool has_no_dropout(MegatronReader& flags);

}  // namespace weft
