// Where `weft run` saves, and from where it goes on.
#pragma once

#include <filesystem>

#include "app/run/run_options.hpp"

namespace weft {

void declare_checkpoint_flags(Flags& flags);

// Reads the flags into `options`. Refuses, before anything starts, a folder with checkpoints of another training, or
// with any at all where the run shall not go on from them. Without --policy, a run goes on with the policy it had.
void read_checkpoint_options(const Flags& flags, RunOptions& options);

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
