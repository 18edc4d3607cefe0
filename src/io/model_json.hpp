// The shape of a model as JSON: the "model" of a plan file (docs/plan-format.md).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "model/transformer.hpp"

namespace weft {

// Every field, so that reading gives the same shape whatever the defaults become.
nlohmann::ordered_json model_to_json(const Transformer& model);
// `where` is what error messages open with, e.g. "plan.json: model". The shape is validated.
Transformer model_from_json(const nlohmann::json& value, const std::string& where);

}  // namespace weft
