// --processes N: the same command once per rank, as processes on this machine joined by TCP.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace weft {

// `command`: the words before the arguments, {"collective", "bench"}. Each process finds its rank in its environment.
// A signal that this process gets is passed on; ranks that save when they get one are not hurried. Returns the exit
// code.
enum class AfterSignal : std::uint8_t { ranks_end_soon, ranks_end_themselves };
int run_own_processes(std::int64_t count, const std::vector<std::string>& command,
                      const std::vector<std::string>& arguments, std::ostream& err,
                      AfterSignal after_signal = AfterSignal::ranks_end_soon);

}  // namespace weft
