#include "app/megatron_inputs.hpp"

#include "app/files.hpp"

namespace weft {
namespace {

std::optional<LaunchJob> read_job(const Flags& flags) {
  const auto file = flags.text("megatron-args");
  if (!file) return std::nullopt;
  return read_megatron_args(read_text_file(*file), *file);
}

bool is_one(const Flags& flags, const std::string& degree) {
  return flags.given(degree) && flags.text(degree) == "1";
}

// Why the command line leaves a setting of the script without meaning; empty: it does not.
std::string overridden_by(const Flags& flags, const std::string& setting) {
  const bool of_experts = setting == "expert-exchange" || setting == "ep-forwarding" ||
                          setting == "overlap-moe-expert-parallel-comm" || setting == "delay-wgrad-compute";
  if (of_experts && is_one(flags, "ep")) return "has no effect with --ep 1";
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

std::vector<IgnoredFlag> apply_megatron_args(Flags& flags) {
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
  return job->ignored;
}

std::optional<Transformer> megatron_model(const Flags& flags) {
  std::optional<LaunchJob> job = read_job(flags);
  return job ? std::move(job->model) : std::nullopt;
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
