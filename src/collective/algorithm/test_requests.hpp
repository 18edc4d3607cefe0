// For tests: every request that there is for a number of ranks.
#pragma once

#include <string>
#include <vector>

#include "collective/algorithms.hpp"

namespace weft {

std::string in_words(const ProgramRequest& request);
// Every algorithm x collective x three roots where there is one x parts {1, 3} x in place or not x inner groups x
// servers.
std::vector<ProgramRequest> every_request(std::int64_t ranks);

}  // namespace weft
