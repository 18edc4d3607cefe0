// A training job as the files of other launchers say it (io/megatron, io/launchers): settings of `weft plan`, and what
// has no counterpart.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/transformer.hpp"

namespace weft {

// A flag of `weft plan`, as a file of another launcher sets it.
struct LaunchSetting {
  std::string flag;   // "tp"
  std::string value;  // "8"
  std::string from;   // for messages: "train.sh: line 12: --tensor-model-parallel-size"
  friend bool operator==(const LaunchSetting&, const LaunchSetting&) = default;
};

// A flag or key of that file that changed nothing, or not all that it would change.
struct IgnoredFlag {
  std::string flag, value, reason;
  bool harmless = false;  // a known flag that no plan depends on
  bool of_model = false;  // it decides what is trained
  friend bool operator==(const IgnoredFlag&, const IgnoredFlag&) = default;
};

struct LaunchJob {
  std::optional<Transformer> model;  // nothing where the file gives no shape
  std::vector<LaunchSetting> settings;
  std::vector<IgnoredFlag> ignored;  // in order of the file
};

}  // namespace weft
