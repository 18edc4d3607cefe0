// DeepSpeed's configuration file as settings of `weft plan` (docs/export.md).
#pragma once

#include <string>

#include "io/launch_job.hpp"

namespace weft {

// The file says no model and no degrees of parallelism. Values "auto" are left to flags. Throws Error naming the file,
// the key, its value and what is allowed.
LaunchJob read_deepspeed_config(const std::string& text, const std::string& file_name);

}  // namespace weft
