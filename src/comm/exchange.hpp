// How ranks that do not know each other yet tell each other a few words.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace weft {

// All ranks call it, in the same order; each gives a string and gets those of all, by rank. Blocks; throws RunFailed.
using Exchange = std::function<std::vector<std::string>(const std::string&)>;

}  // namespace weft
