// Published models by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/transformer.hpp"

namespace weft {

// Sorted names of all presets.
std::vector<std::string> model_preset_names();
// Throws Error with the nearest name where there is no such preset.
Transformer model_preset(std::string_view name);

}  // namespace weft
