#include "study/run/resume_point.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "exec/checkpoint/checkpoint_folder.hpp"
#include "exec/checkpoint/owned_pieces.hpp"
#include "exec/checkpoint/run_identity.hpp"
#include "exec/checkpoint/shard_check.hpp"

namespace weft {
namespace {

void refuse_conflict(const RunOptions& options, std::int64_t step, const CheckpointManifest& manifest) {
  const std::string conflict = identity_conflict(manifest.run, options.checkpoint->identity);
  if (conflict.empty()) return;
  fail("--resume: {} is of another training: {}", (options.checkpoint->folder / checkpoint_name(step)).string(),
       conflict);
}

}  // namespace

// Whether the files of a checkpoint are whole is found out when it is used.
void adopt_newest_checkpoint(RunOptions& options, const std::vector<std::int64_t>& steps) {
  for (const std::int64_t step : steps) {
    CheckpointManifest manifest;
    try {
      manifest = read_manifest(options.checkpoint->folder / checkpoint_name(step));
    } catch (const Error&) {
      continue;  // find_resume_point says it
    }
    refuse_conflict(options, step, manifest);
    const std::string policy = policy_of(manifest.run);
    if (options.only_best && std::ranges::count(options.policies, policy) > 0) {
      options.policies = {policy};
      options.only_best = false;
    }
    return;
  }
}

ResumePoint find_resume_point(const RunOptions& options) {
  const std::filesystem::path& folder = options.checkpoint->folder;
  ResumePoint point;
  const std::vector<std::int64_t> steps = checkpoints_in(folder);
  std::vector<std::int64_t> broken;
  for (const std::int64_t step : steps) {
    try {
      point.manifest = read_checkpoint(folder / checkpoint_name(step));
      if (point.manifest.step != step) {
        fail("{}: says that it is of step {}", (folder / checkpoint_name(step)).string(), point.manifest.step);
      }
      check_cover((folder / checkpoint_name(step)).string(), point.manifest, options.inputs.model,
                  kinds_of(options.settings));
      point.step = step;
      break;
    } catch (const Error& error) {
      broken.push_back(step);
      point.broken.emplace_back(error.what());
    }
  }
  if (point.step == 0 && !broken.empty()) {
    std::string words;
    for (const std::string& one : point.broken) words += fmt::format("\n  {}", one);
    fail("--resume: no checkpoint in {} is whole:{}", folder.string(), words);
  }
  if (point.step > 0) refuse_conflict(options, point.step, point.manifest);
  for (std::size_t i = 0; i < broken.size(); ++i) {
    point.broken[i] += fmt::format("; not used (now {})", set_aside(folder, broken[i]));
  }
  return point;
}

}  // namespace weft
