// A layout as JSON: the "layout" of a plan file (docs/plan-format.md). Keys are the command line's flags.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "graph/layout.hpp"

namespace weft {

// Every field, so that reading gives the same layout whatever the defaults become.
nlohmann::ordered_json layout_to_json(const Layout& layout);
// `where` is what error messages open with, e.g. "plan.json: layout". Each number is checked alone; whether the layout
// fits its model and cluster is for validate() to say.
Layout layout_from_json(const nlohmann::json& value, const std::string& where);

}  // namespace weft
