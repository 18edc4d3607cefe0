// --megatron-args: a Megatron-LM launch as flags of ours.
#pragma once

#include <optional>
#include <ostream>
#include <vector>

#include "app/flags.hpp"
#include "io/megatron/megatron_args.hpp"
#include "model/transformer.hpp"

namespace weft {

// Sets what the launch says and neither the command line nor --config gives. Returns what has no effect; nothing
// without --megatron-args.
std::vector<IgnoredFlag> apply_megatron_args(Flags& flags);

// The model that the launch describes, if there is a launch and it describes one.
std::optional<Transformer> megatron_model(const Flags& flags);

// For a person: what does not matter in one line, the rest one by one.
void print_ignored(std::ostream& err, const std::string& file, const std::vector<IgnoredFlag>& ignored);

}  // namespace weft
