// Model shapes and optimizer settings as records (docs/oracle.md) and checkpoints (docs/checkpoint-format.md) have
// them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <variant>

#include "kernels/kernels.hpp"
#include "model/transformer.hpp"

namespace weft {

nlohmann::ordered_json shape_to_json(const Transformer& model);
nlohmann::ordered_json optimizer_to_json(const std::variant<AdamSettings, SgdSettings>& optimizer);

}  // namespace weft
