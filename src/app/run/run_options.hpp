// The flags of `weft run`, read and checked before anything starts.
#pragma once

#include <cstdint>
#include <optional>

#include "app/flags.hpp"
#include "comm/launch.hpp"
#include "study/run/run_options.hpp"

namespace weft {

void declare_run_flags(Flags& flags);

// Throws Error naming the flag or file, the value and what is allowed: what it returns can be trained.
RunOptions read_run_options(const Flags& flags, const Launch& launch);

// How many ranks --processes asks this process to start; none where it is a rank itself, or where ranks are threads.
std::optional<std::int64_t> processes_to_start(const Flags& flags, const Launch& launch);

}  // namespace weft
