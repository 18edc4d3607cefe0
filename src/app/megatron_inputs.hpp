// Files of other launchers as flags of ours: --megatron-args, --mindspeed-args, --deepspeed-config,
// --torchtitan-config.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "app/flags.hpp"
#include "io/launch_job.hpp"
#include "model/transformer.hpp"

namespace weft {

void declare_launch_flags(Flags& flags, const std::string& group);

// The file that one of these flags names. Throws Error where several are given.
std::optional<std::string> launch_file(const Flags& flags);

// Sets what the launch says and neither the command line nor --config gives. Returns what has no effect; nothing
// without such a file.
std::vector<IgnoredFlag> apply_launch(Flags& flags);

// The model that the launch describes, if there is a launch and it describes one.
std::optional<Transformer> launch_model(const Flags& flags);

// For a person: what does not matter in one line, the rest one by one.
// Returns those that decide what is trained, as the file has them: "--rotary-base 500000".
std::vector<std::string> model_flags_of(const std::vector<IgnoredFlag>& ignored);
void print_ignored(std::ostream& err, const std::string& file, const std::vector<IgnoredFlag>& ignored);

}  // namespace weft
