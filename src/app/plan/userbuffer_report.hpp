// What userbuffers of tensor parallelism take, in words and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "study/plan/userbuffer_uses.hpp"

namespace weft {

std::string userbuffer_text(const std::string& policy, const std::vector<UserbufferRow>& rows);
nlohmann::ordered_json userbuffer_json(const std::vector<UserbufferRow>& rows);

}  // namespace weft
