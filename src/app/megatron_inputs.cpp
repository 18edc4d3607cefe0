#include "app/megatron_inputs.hpp"

#include <algorithm>
#include <initializer_list>

#include "app/files.hpp"
#include "app/inputs.hpp"
#include "base/error.hpp"
#include "graph/pipeline_schedule.hpp"
#include "io/launchers/deepspeed_job.hpp"
#include "io/launchers/torchtitan_job.hpp"
#include "io/megatron/megatron_args.hpp"

namespace weft {
namespace {

struct LaunchFormat {
  const char *flag, *help;
  LaunchJob (*read)(const std::string& text, const std::string& file_name);
  const char* framework = "";  // whose file it is, where its constants are others than those without --framework
};

constexpr LaunchFormat kFormats[] = {
    {"megatron-args", "a Megatron-LM launch line or script: model, layout and policy (flags here win)",
     read_megatron_args},
    {"mindspeed-args", "the same of MindSpeed", read_megatron_args},
    {"deepspeed-config", "DeepSpeed's JSON: batches, ZeRO and policy (flags here win)", read_deepspeed_config,
     "deepspeed"},
    {"torchtitan-config", "TorchTitan's TOML: layout and policy (flags here win)", read_torchtitan_config,
     "torchtitan"},
};

// Nothing where no flag names a file.
const LaunchFormat* given_format(const Flags& flags) {
  const LaunchFormat* given = nullptr;
  for (const LaunchFormat& format : kFormats) {
    if (!flags.given(format.flag)) continue;
    if (given != nullptr) fail("--{}: is given with --{}", format.flag, given->flag);
    given = &format;
  }
  return given;
}

std::optional<LaunchJob> read_job(const Flags& flags) {
  const LaunchFormat* const format = given_format(flags);
  if (format == nullptr) return std::nullopt;
  const std::string file = *flags.text(format->flag);
  return format->read(read_text_file(file), file);
}

bool is_one(const Flags& flags, const std::string& degree) {
  return flags.given(degree) && flags.text(degree) == "1";
}

bool gives_one_of(const Flags& flags, std::initializer_list<const char*> names) {
  return std::ranges::any_of(names, [&](const char* name) { return flags.given(name); });
}

// Whether the command line names a pipeline schedule of one model chunk.
bool names_one_chunk(const Flags& flags) {
  const auto names = schedule_names();
  const auto found = flags.given("schedule") ? std::ranges::find(names, *flags.text("schedule")) : names.end();
  if (found == names.end()) return false;
  const ScheduleRow& row = row_of(static_cast<PipelineSchedule>(found - names.begin()));
  return !row.several_chunks && !row.searched;
}

// Why the command line leaves a setting of the script without meaning; empty: it does not.
std::string overridden_by(const Flags& flags, const std::string& setting) {
  const bool of_experts = setting == "expert-exchange" || setting == "ep-forwarding" ||
                          setting == "overlap-moe-expert-parallel-comm" || setting == "delay-wgrad-compute";
  if (of_experts && is_one(flags, "ep")) return "has no effect with --ep 1";
  if (setting == "global-batch" && flags.given("micro-batches")) return "--micro-batches says what it says";
  if (setting == "micro-batches" && flags.given("global-batch")) return "--global-batch says what it says";
  const bool of_pipelines = setting == "vpp" || setting == "schedule" || setting == "stage-layers";
  if (of_pipelines && is_one(flags, "pp")) return "has no effect with --pp 1";
  if (setting == "vpp" && names_one_chunk(flags)) return "is not for --schedule " + *flags.text("schedule");
  if (setting == "dp" &&
      gives_one_of(flags, {"tp", "pp", "cp", "micro-batch", "global-batch", "micro-batches", "sweep"})) {
    return "follows from numbers that are given here: the cluster decides it";
  }
  if (setting == "cuda-graphs" && flags.given("cluster") && read_cluster(flags).execution.runtime != Runtime::none) {
    return "is planned for; ranks that run have no such graphs";
  }
  if (setting == "cuda-graphs" && flags.declares("graphs")) return "is planned for; weft run takes --graphs";
  if (setting == "no-dropout" && flags.given("dropout")) return "--dropout says what it says";
  if (setting == "tp-comm-overlap" && is_one(flags, "tp")) return "has no effect with --tp 1";
  if (setting == "zero-replicas" && flags.given("zero-shards")) return "--zero-shards says what --zero-replicas says";
  if (setting == "zero-replicas" && flags.given("zero") && flags.text("zero") == "0")
    return "has no effect with --zero 0";
  if (setting == "seq" && flags.given("lengths")) return "--lengths says what --seq says";
  if (setting != "expert-exchange") return "";
  for (const char* const other : {"dispatch-fp8", "ep-forwarding", "overlap-moe-expert-parallel-comm"}) {
    if (flags.given(other)) return std::string("is not for --") + other;
  }
  return "";
}

}  // namespace

void declare_launch_flags(Flags& flags, const std::string& group) {
  for (const LaunchFormat& format : kFormats) flags.value(format.flag, "FILE", format.help, group);
}

std::optional<std::string> launch_file(const Flags& flags) {
  const LaunchFormat* const format = given_format(flags);
  return format == nullptr ? std::nullopt : flags.text(format->flag);
}

std::vector<IgnoredFlag> apply_launch(Flags& flags) {
  std::optional<LaunchJob> job = read_job(flags);
  if (!job) return {};
  for (const LaunchSetting& setting : job->settings) {
    if (const std::string why = overridden_by(flags, setting.flag); !why.empty()) {
      job->ignored.push_back({"--" + setting.flag, setting.value, setting.from + " " + why});
    } else if (!flags.declares(setting.flag)) {
      job->ignored.push_back({"--" + setting.flag, setting.value, setting.from + " has no flag here to set"});
    } else if (!flags.given(setting.flag)) {
      flags.set(setting.flag, setting.value, setting.from);
    }
  }
  const LaunchFormat& format = *given_format(flags);
  if (*format.framework != '\0' && flags.declares("framework") && !flags.given("framework")) {
    flags.set("framework", format.framework, *flags.text(format.flag));
  }
  return job->ignored;
}

std::optional<Transformer> launch_model(const Flags& flags) {
  std::optional<LaunchJob> job = read_job(flags);
  return job ? std::move(job->model) : std::nullopt;
}

std::vector<std::string> model_flags_of(const std::vector<IgnoredFlag>& ignored) {
  std::vector<std::string> flags;
  for (const IgnoredFlag& flag : ignored) {
    if (flag.of_model) flags.push_back(flag.flag + (flag.value.empty() ? "" : " " + flag.value));
  }
  return flags;
}

void print_ignored(std::ostream& err, const std::string& file, const std::vector<IgnoredFlag>& ignored) {
  std::string harmless;
  for (const IgnoredFlag& flag : ignored) {
    if (flag.harmless) harmless += " " + flag.flag;
  }
  if (!harmless.empty()) err << "weft: " << file << ": without effect on a plan:" << harmless << "\n";
  for (const IgnoredFlag& flag : ignored) {
    if (flag.harmless) continue;
    err << "weft: " << file << ": ignored " << flag.flag << (flag.value.empty() ? "" : " ") << flag.value << ": "
        << flag.reason << "\n";
  }
}

}  // namespace weft
