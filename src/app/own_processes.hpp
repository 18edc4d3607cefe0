// --processes N: the same command once per rank, as processes on this machine joined by TCP.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace weft {

// `command`: the words before the arguments, {"collective", "bench"}. Each process finds its rank in its environment.
// Returns the exit code.
int run_own_processes(std::int64_t count, const std::vector<std::string>& command,
                      const std::vector<std::string>& arguments, std::ostream& err);

}  // namespace weft
