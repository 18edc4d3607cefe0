// Model shapes and optimizer settings as records (docs/oracle.md) and checkpoints (docs/checkpoint-format.md) have
// them.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "exec/train_settings.hpp"
#include "graph/layout.hpp"
#include "model/transformer.hpp"

namespace weft {

nlohmann::ordered_json shape_to_json(const Transformer& model);
// Null where it trains without.
nlohmann::ordered_json dropout_to_json(const Transformer& model, const Layout& layout);
nlohmann::ordered_json optimizer_to_json(const OptimizerSettings& optimizer);
nlohmann::ordered_json schedule_to_json(const LearningRateSchedule& schedule);

}  // namespace weft
