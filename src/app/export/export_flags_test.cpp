// Nothing that a user said of the layout is dropped silently. The flags are those that `weft plan --help` lists, so
// that a new one without an example here fails, and an export is judged by what it says alone: with the flag its file
// or its words are others than without.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>

#include "app/files.hpp"
#include "app/test_cli.hpp"
#include "io/export/export_format.hpp"

namespace weft {
namespace {

struct FlagExample {
  std::string base;  // other flags, given both times
  std::string with;  // the flag itself
};

const std::string kSmall = "--layers 4 --hidden 512 --heads 8 --vocab 1024 --seq 256 --cluster dgx-a100:2 ";
const std::string kExperts = kSmall + "--experts 16 --top-k 2 --ep 8 --global-batch 32 ";

// By flag. An example changes the plan: what a plan does not show nobody can export.
std::map<std::string, FlagExample> examples(const ScratchFolder& folder) {
  const std::string extra = folder.write("extra.json", R"({"weft_extra": 1, "tasks": [{"name": "evaluate",
      "seconds": 0.001}]})");
  return {
      {"tp", {kSmall + "--global-batch 32", "--tp 2"}},
      {"pp", {kSmall + "--global-batch 32", "--pp 2"}},
      {"vpp", {kSmall + "--pp 2 --global-batch 32", "--vpp 2"}},
      {"dp", {kSmall + "--global-batch 32", "--dp 8 --pp 2"}},
      {"cp", {kSmall + "--global-batch 32", "--cp 2"}},
      {"ep", {kSmall + "--experts 16 --top-k 2 --global-batch 32", "--ep 8"}},
      {"etp", {kSmall + "--experts 16 --top-k 2 --tp 2 --sequence-parallel --ep 4 --global-batch 32", "--etp 1"}},
      {"expert-exchange", {kExperts + "--capacity-factor 1", "--expert-exchange uneven"}},
      {"dispatch-fp8", {kExperts, "--dispatch-fp8"}},
      {"ep-forwarding", {kSmall + "--experts 16 --top-k 2 --ep 16 --global-batch 32", "--ep-forwarding"}},
      {"micro-batch", {kSmall + "--global-batch 64", "--micro-batch 2"}},
      {"global-batch", {kSmall, "--global-batch 64"}},
      {"micro-batches", {kSmall, "--micro-batches 4"}},
      {"round-batch", {kSmall, "--global-batch 40 --round-batch"}},
      {"seq", {"--layers 4 --hidden 512 --heads 8 --vocab 1024 --cluster dgx-a100:2 --global-batch 32", "--seq 512"}},
      {"zero", {kSmall + "--global-batch 32", "--zero 2"}},
      {"zero-shards", {kSmall + "--zero 3 --global-batch 32", "--zero-shards 8"}},
      {"zero-replicas", {kSmall + "--zero 3 --global-batch 32", "--zero-replicas 2"}},
      {"zero-secondary", {kSmall + "--zero 3 --global-batch 32", "--zero-secondary 8"}},
      {"layer-group", {kSmall + "--zero 3 --global-batch 64", "--layer-group 2"}},
      {"reduce-every", {kSmall + "--zero 2 --global-batch 64", "--reduce-every step"}},
      {"slices", {kSmall + "--pp 2 --global-batch 32", "--slices 2"}},
      {"sequence-parallel", {kSmall + "--tp 2 --global-batch 32", "--sequence-parallel"}},
      {"dropout", {kSmall + "--global-batch 32", "--dropout 0.2"}},
      {"no-dropout", {kSmall + "--global-batch 32", "--no-dropout"}},
      {"recompute", {kSmall + "--global-batch 32", "--recompute full"}},
      {"recompute-layers", {kSmall + "--recompute full --global-batch 32", "--recompute-layers 2"}},
      {"attention", {kSmall + "--global-batch 32", "--attention unfused"}},
      {"precision", {kSmall + "--global-batch 32", "--precision fp32"}},
      {"grad-dtype", {kSmall + "--global-batch 32", "--grad-dtype bf16"}},
      {"compress", {kSmall + "--global-batch 32", "--compress gradients=int8"}},
      {"compress-min", {kSmall + "--compress gradients=int8 --global-batch 32", "--compress-min 300000"}},
      {"products", {"--cluster dgx-h100:2 --layers 4 --hidden 512 --heads 8 --vocab 1024 --seq 256", "--products fp8"}},
      {"fp8-param-gather",
       {"--cluster dgx-h100:2 --layers 4 --hidden 512 --heads 8 --vocab 1024 --seq 256 --zero 1 --products fp8",
        "--fp8-param-gather"}},
      {"kfac-interval", {kSmall + "--global-batch 32", "--kfac-interval 2"}},
      {"extra", {kSmall + "--global-batch 32", "--extra " + extra}},
      {"clip-grad", {kSmall + "--global-batch 32", "--clip-grad 0.5"}},
      {"schedule", {kSmall + "--pp 2 --global-batch 64", "--schedule zb-h1"}},
      {"warm-up-depth", {kSmall + "--pp 4 --global-batch 64", "--warm-up-depth 6"}},
      {"stage-layers", {kSmall + "--pp 2 --global-batch 32", "--stage-layers 1,3"}},
      {"mesh-order", {kSmall + "--tp 2 --pp 2 --global-batch 32", "--mesh-order tp,cp,pp,dp"}},
      {"device-map", {kSmall + "--tp 2 --global-batch 32", "--device-map 2,3,0,1,4,5,6,7,8,9,10,11,12,13,14,15"}},
  };
}

// Traces and measures of operations say what is computed and how long it takes, not how a job is launched; one rank's
// visible devices do not say where other nodes are.
const std::set<std::string> kNotOfTheLayout{"chrome", "chakra", "xla-pgle"};

std::set<std::string> layout_flags() {
  std::set<std::string> flags;
  bool inside = false;
  for (const std::string& line : split(weft_cli("plan --help").out, '\n')) {
    if (!line.empty() && line.front() != ' ') inside = line.starts_with("Layout");
    std::smatch match;
    if (inside && std::regex_search(line, match, std::regex("^ +--([a-z0-9-]+)"))) flags.insert(match[1]);
  }
  return flags;
}

// All that a user sees of an export: its files, its words, or its refusal.
std::string exported(const ScratchFolder& folder, const std::string& plan, const ExportFormat& format) {
  const std::string to = folder.file("exported");
  std::filesystem::remove_all(to);
  const CliResult result = weft_cli(fmt::format("export {} --to {} -o {}", plan, format.name, to));
  std::string text = result.err;
  if (result.code != kOk) return text;
  if (!std::filesystem::is_directory(to)) return text + read_text_file(to);
  std::set<std::string> files;
  for (const auto& file : std::filesystem::directory_iterator(to)) files.insert(file.path().string());
  for (const std::string& file : files) text += file + "\n" + read_text_file(file);
  return text;
}

TEST(ExportOfFlags, NoFlagOfTheLayoutIsDroppedSilently) {
  const ScratchFolder folder("export_flags");
  const std::map<std::string, FlagExample> all = examples(folder);
  const std::set<std::string> declared = layout_flags();
  ASSERT_GT(declared.size(), 30U);
  for (const std::string& flag : declared) EXPECT_TRUE(all.contains(flag)) << "--" << flag << " has no example here";
  for (const auto& [flag, example] : all) {
    SCOPED_TRACE("--" + flag);
    EXPECT_TRUE(declared.contains(flag));
    const std::string policy = contains(example.base, "--zero 3") ? " --policy fsdp" : " --policy ddp";
    for (const bool with : {false, true}) {
      const CliResult planned = weft_cli("plan " + example.base + " " + (with ? example.with : "") + policy +
                                         " --out " + folder.file(with ? "with" : "without"));
      ASSERT_EQ(planned.code, kOk) << planned.err;
    }
    for (const ExportFormat& format : export_formats()) {
      if (kNotOfTheLayout.contains(std::string(format.name))) continue;
      const std::string before = exported(folder, folder.file("without/plan.json"), format),
                        after = exported(folder, folder.file("with/plan.json"), format);
      const bool refuses_both = after == before && before.starts_with("weft: --to ");
      EXPECT_TRUE(after != before || refuses_both) << format.name << " says nothing of it:\n" << after;
    }
  }
}

}  // namespace
}  // namespace weft
