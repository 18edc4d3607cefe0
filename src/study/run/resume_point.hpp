// From which checkpoint a training goes on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "study/run/run_options.hpp"

namespace weft {

// Of the checkpoints of these steps, newest first: refuses the newest that can be read where it is of another training.
// A run that was to take the best policy goes on with the policy that this checkpoint has.
void adopt_newest_checkpoint(RunOptions& options, const std::vector<std::int64_t>& steps);

// The newest checkpoint that is whole.
struct ResumePoint {
  std::int64_t step = 0;  // 0: there is none, and none that is broken
  CheckpointManifest manifest;
  std::vector<std::string> broken;  // newer ones, in words
};
// Reads all its files. Throws Error where there are checkpoints, but none is whole, or where they are of another
// training. Broken ones are set aside.
ResumePoint find_resume_point(const RunOptions& options);

}  // namespace weft
