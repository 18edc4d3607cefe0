// Everything that decides a run, as ranks compare it before they begin (study/run/agreed_settings.hpp).
#pragma once

#include "app/run/run_options.hpp"
#include "app/world/world.hpp"
#include "study/run/agreed_settings.hpp"

namespace weft {

// What the flags say, by flag. What only one rank uses or shows may differ and is left out: --out, --json, --record,
// --threads, --timeout, --silence. Names are unique.
AgreedSettings agreed_run_settings(const RunOptions& options, const WorldOptions& world);

}  // namespace weft
