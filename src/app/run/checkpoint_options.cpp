#include "app/run/checkpoint_options.hpp"

#include "app/run/stop_signal.hpp"
#include "base/error.hpp"
#include "exec/checkpoint/checkpoint_folder.hpp"
#include "exec/checkpoint/run_identity.hpp"
#include "study/run/resume_point.hpp"

namespace weft {
namespace {

constexpr const char* kCheckpoints = "Checkpoints";

void refuse_several_policies(const RunOptions& options) {
  if (options.only_best || options.policies.size() < 2) return;
  fail("--checkpoint: a training has one policy; {} are given", options.policies.size());
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
  checkpoint.every = flags.integer("checkpoint-every", 1, kMaxNumber).value_or(0);
  checkpoint.keep = flags.integer("keep-checkpoints", 1, kMaxNumber).value_or(checkpoint.keep);
  checkpoint.resume = flags.is_set("resume");
  checkpoint.stop_on_error = flags.one_of("on-save-error", {"stop", "continue"}).value_or(0) == 0;
  checkpoint.stop_asked = stop_signal_came;
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
  adopt_newest_checkpoint(options, steps);
}

}  // namespace weft
