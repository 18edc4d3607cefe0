// TorchTitan's configuration file, the TOML of before February 2026, as settings of `weft plan` (docs/export.md).
#pragma once

#include <string>

#include "io/launch_job.hpp"

namespace weft {

// The model is named there and its shape is not; it is given by flags. Throws Error naming the file, the key, its value
// and what is allowed.
LaunchJob read_torchtitan_config(const std::string& text, const std::string& file_name);

}  // namespace weft
