// A Megatron-LM launch line or script as Weft's model, layout and policy.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/launch_job.hpp"

namespace weft {

// What Megatron-LM would take where a flag is absent is taken here too (feed-forward size, clipping at 1.0, fp32
// without --bf16 or --fp16, two experts a token). Throws Error naming the file, the line, the flag, its value and what
// is allowed.
LaunchJob read_megatron_args(const std::string& text, const std::string& file_name);

// [0]*3+[1]*58 as a list of zeros and ones; nothing where it is not such an expression or longer than `limit`.
std::optional<std::vector<int>> parse_layer_pattern(std::string_view text, std::size_t limit);

}  // namespace weft
