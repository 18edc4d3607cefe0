// The flags that say where `weft run` saves, and whether it goes on from there.
#pragma once

#include "app/run/run_options.hpp"

namespace weft {

void declare_checkpoint_flags(Flags& flags);

// Reads the flags into `options`. Refuses, before anything starts, a folder with checkpoints of another training, or
// with any at all where the run shall not go on from them. Without --policy, a run goes on with the policy it had.
void read_checkpoint_options(const Flags& flags, RunOptions& options);

}  // namespace weft
