// How the errors of predictions are said: a row of a table, an object of JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "study/against/prediction.hpp"

namespace weft {

std::vector<std::string> summary_cells(const std::string& name, const ErrorSummary& summary);
nlohmann::ordered_json summary_json(const ErrorSummary& summary);

}  // namespace weft
