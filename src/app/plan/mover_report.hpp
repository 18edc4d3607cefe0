// Who moves the transfers of a plan inside nodes, in words and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "study/plan/mover_choices.hpp"

namespace weft {

std::string mover_text(const std::vector<MovedTransfers>& rows);
nlohmann::ordered_json mover_json(const std::vector<MovedTransfers>& rows);

}  // namespace weft
