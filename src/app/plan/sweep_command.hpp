// `weft plan --sweep ...`
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "app/flags.hpp"
#include "io/megatron/megatron_args.hpp"

namespace weft {

void declare_sweep_flags(Flags& flags);
// Throws Error where a flag that only a sweep reads is given without one.
void require_no_sweep_flags(const Flags& flags);

// The best combination is planned once more the whole way: verified, bounded, reported, written with --out. Returns
// kAnswerIsNo where no combination is feasible.
int run_sweep_command(const Flags& flags, const std::vector<std::string>& policies,
                      const std::vector<IgnoredFlag>& ignored, std::ostream& out, std::ostream& err);

}  // namespace weft
