// Everything that decides a run, as ranks compare it before they begin (app/world/agreed_settings.hpp).
#pragma once

#include "app/run/run_options.hpp"
#include "app/world/agreed_settings.hpp"
#include "app/world/world.hpp"

namespace weft {

// What the flags say, by flag. What only one rank uses or shows may differ and is left out: --out, --json, --record,
// --threads, --timeout, --silence. Names are unique.
AgreedSettings agreed_run_settings(const RunOptions& options, const WorldOptions& world);

// What follows from flags and measurements: a digest of the plan of every policy.
AgreedSettings agreed_plans(const std::vector<const Plan*>& plans);

}  // namespace weft
