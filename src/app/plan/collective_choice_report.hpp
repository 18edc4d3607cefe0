// What carries out the collectives of a plan and why, in words and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "study/plan/collective_choices.hpp"

namespace weft {

std::string collective_choice_text(const std::vector<CollectiveChoice>& choices);
nlohmann::ordered_json collective_choice_json(const std::vector<CollectiveChoice>& choices);

}  // namespace weft
