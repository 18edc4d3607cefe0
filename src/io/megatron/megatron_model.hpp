// The model's half of a Megatron launch.
#pragma once

#include <optional>

#include "io/megatron/megatron_reader.hpp"
#include "model/transformer.hpp"

namespace weft {

// Nothing where the launch names none of --num-layers, --hidden-size and --num-attention-heads.
std::optional<Transformer> read_megatron_model(MegatronReader& flags);

}  // namespace weft
