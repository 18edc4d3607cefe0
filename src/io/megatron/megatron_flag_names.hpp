// Flags of Megatron-LM launch scripts that Weft knows and has no use for.
#pragma once

#include <string>
#include <vector>

namespace weft {

enum class MegatronFlagUse {
  run,        // data, schedule of learning, checkpoints, logs: the step is the same with any value
  model,      // what is trained: the step is the same with any value, and an export to Megatron repeats it
  kernels,    // which kernel or allocation trick is used: below what Weft's cost model tells apart
  unmodelled  // changes the step's time or memory in a way that Weft has no word for
};

struct MegatronFlagName {
  std::string name;
  MegatronFlagUse use;
};

// In no particular order, each name once.
const std::vector<MegatronFlagName>& unused_megatron_flags();

}  // namespace weft
