// From which checkpoint a training goes on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "study/run/run_options.hpp"

namespace weft {

// Looks at the newest checkpoint of these steps that can be read, and refuses it if it is of another training. A run
// that may choose its policy takes the one of this checkpoint.
void adopt_newest_checkpoint(RunOptions& options, const std::vector<std::int64_t>& steps);

// The newest checkpoint that is whole.
struct ResumePoint {
  std::int64_t step = 0;  // 0: there is none, and none that is broken
  CheckpointManifest manifest;
  std::vector<std::string> broken;  // newer ones, in words
};
// Reads all files of the checkpoint. Throws Error where there are checkpoints but none is whole, or where they are of
// another training. Sets broken ones aside.
ResumePoint find_resume_point(const RunOptions& options);

}  // namespace weft
