#include "app/run/checkpoint_options.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "exec/checkpoint/checkpoint_folder.hpp"
#include "exec/checkpoint/owned_pieces.hpp"
#include "exec/checkpoint/run_identity.hpp"
#include "exec/checkpoint/shard_check.hpp"

namespace weft {
namespace {

constexpr const char* kCheckpoints = "Checkpoints";
constexpr std::int64_t kMost = 1'000'000'000;

void refuse_several_policies(const RunOptions& options) {
  if (options.only_best || options.policies.size() < 2) return;
  fail("--checkpoint: a training has one policy; {} are given", options.policies.size());
}

void refuse_conflict(const RunOptions& options, std::int64_t step, const CheckpointManifest& manifest) {
  const std::string conflict = identity_conflict(manifest.run, options.checkpoint->identity);
  if (conflict.empty()) return;
  fail("--resume: {} is of another training: {}", (options.checkpoint->folder / checkpoint_name(step)).string(),
       conflict);
}

// The first whose manifest can be read; whether its files are whole is found out when it is used.
void look_at_newest(RunOptions& options, const std::vector<std::int64_t>& steps) {
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

}  // namespace

void declare_checkpoint_flags(Flags& flags) {
  flags.value("checkpoint", "DIR", "save there at the end, and when SIGTERM or SIGUSR1 arrives (docs/running.md)",
              kCheckpoints);
  flags.value("checkpoint-every", "N", "and after every N steps", kCheckpoints);
  flags.value("keep-checkpoints", "K", "delete all but the newest K (default: 2)", kCheckpoints);
  flags.toggle("resume", "go on from the newest checkpoint in DIR that is whole; --steps stays the total",
               kCheckpoints);
  flags.value("on-save-error", "stop|continue", "what a run does that cannot save (default: stop)", kCheckpoints);
}

void read_checkpoint_options(const Flags& flags, RunOptions& options) {
  const auto folder = flags.text("checkpoint");
  if (!folder) {
    for (const char* flag : {"checkpoint-every", "keep-checkpoints", "resume", "on-save-error"}) {
      if (flags.given(flag)) fail("--{}: needs --checkpoint DIR", flag);
    }
    return;
  }
  CheckpointOptions& checkpoint = options.checkpoint.emplace();
  checkpoint.folder = *folder;
  checkpoint.every = flags.integer("checkpoint-every", 1, kMost).value_or(0);
  checkpoint.keep = flags.integer("keep-checkpoints", 1, kMost).value_or(checkpoint.keep);
  checkpoint.resume = flags.on("resume");
  checkpoint.stop_on_error = flags.one_of("on-save-error", {"stop", "continue"}).value_or(0) == 0;
  refuse_several_policies(options);
  if (options.record && checkpoint.resume) fail("--record: records a training from its first step; not with --resume");
  checkpoint.identity = run_identity(options.inputs.model, options.inputs.layout, options.settings, *options.corpus);
  const std::vector<std::int64_t> steps = checkpoints_in(checkpoint.folder);
  if (!steps.empty() && !checkpoint.resume) {
    fail(
        "--checkpoint {}: has checkpoints already, the newest of step {}: give --resume to go on from it, or another "
        "folder",
        *folder, steps.front());
  }
  look_at_newest(options, steps);
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
