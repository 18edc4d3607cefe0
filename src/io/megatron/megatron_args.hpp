// A Megatron-LM launch line or script as Weft's model, layout and policy.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/transformer.hpp"

namespace weft {

// A flag of `weft plan`, as the script sets it.
struct MegatronSetting {
  std::string flag;   // "tp"
  std::string value;  // "8"
  std::string from;   // for messages: "train.sh: line 12: --tensor-model-parallel-size"
  friend bool operator==(const MegatronSetting&, const MegatronSetting&) = default;
};

// A flag of the script that changed nothing, or not all that it would change.
struct IgnoredFlag {
  std::string flag, value, reason;
  bool harmless = false;  // a known flag that no plan depends on
  friend bool operator==(const IgnoredFlag&, const IgnoredFlag&) = default;
};

struct MegatronJob {
  std::optional<Transformer> model;  // nothing where the script gives no shape
  std::vector<MegatronSetting> settings;
  std::vector<IgnoredFlag> ignored;  // in order of the script
};

// What Megatron-LM would take where a flag is absent is taken here too (feed-forward size, clipping at 1.0, fp32
// without --bf16 or --fp16, two experts a token). Throws Error naming the file, the line, the flag, its value and what
// is allowed.
MegatronJob read_megatron_args(const std::string& text, const std::string& file_name);

// [0]*3+[1]*58 as a list of zeros and ones; nothing where it is not such an expression or longer than `limit`.
std::optional<std::vector<int>> parse_layer_pattern(std::string_view text, std::size_t limit);

}  // namespace weft
