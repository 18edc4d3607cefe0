// The ranks of a run or a calibration, as its options and the launch say.
#pragma once

#include <ostream>

#include "app/flags.hpp"
#include "app/world/world.hpp"
#include "study/run/run_options.hpp"
#include "study/run/run_session.hpp"

namespace weft {

RanksAs ranks_as(const Launch& launch);
// Whether this process has rank 0, which reports.
bool has_rank_0(const Launch& launch);

// Runs `body` on every rank of this process, with the links that the options say.
void run_on_ranks(const Flags& flags, const RunOptions& options, const Launch& launch, std::ostream& err,
                  const WorldBody& body);

}  // namespace weft
