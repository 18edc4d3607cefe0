// What ranks compare before a run. Every flag of `weft run` either changes the list, or stands here among those that
// may differ between ranks: a new flag is forgotten nowhere.
#include "app/run/run_settings.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "app/lengths.hpp"
#include "app/run/checkpoint_options.hpp"
#include "app/test_cli.hpp"
#include "app/world/world_flags.hpp"
#include "base/error.hpp"
#include "cluster/presets.hpp"
#include "collective/algorithms.hpp"
#include "io/msccl/msccl_xml.hpp"
#include "io/profile_json.hpp"

namespace weft {
namespace {

using FlagValues = std::map<std::string, std::string>;  // "true": a toggle; "": not given

// Where a rank reports to, what it does about others' silence, and flags whose values
// others of this list have, or follow from them (dp: devices over tp, pp and cp).
const std::set<std::string> kMayDiffer = {"cache",
                                          "out",
                                          "json",
                                          "record",
                                          "losses-of",
                                          "processes",
                                          "threads",
                                          "timeout",
                                          "silence",
                                          "config",
                                          "dp",
                                          "round-batch",
                                          "no-dropout",
                                          "megatron-args",
                                          "mindspeed-args",
                                          "deepspeed-config",
                                          "torchtitan-config"};
// What no run on this machine has yet: nothing to compare.
const std::set<std::string> kRefused = {"ep-forwarding",     "dispatch-fp8", "precision", "grad-dtype",
                                        "router-group-topk", "framework",    "products",  "fp8-param-gather",
                                        "cuda-graphs",       "power-cap",    "in-network"};

// `nvidia-smi topo -m` of two GPUs.
constexpr const char* kMatrixOfTwo = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV2\t0-1\nGPU1\tNV2\t X \t0-1\n";

constexpr const char* kTaskOfOne = R"({"weft_extra": 1, "tasks": [{"name": "evaluate", "stage": 0, "seconds": 0.001,
    "release": "layer 0 ffn_residual forward", "deadline": "layer 0 ffn_out input_grad"}]})";

const FlagValues kUsual = {
    {"layers", "2"},  {"hidden", "32"},     {"heads", "4"},        {"seq", "16"},
    {"vocab", "256"}, {"micro-batch", "2"}, {"global-batch", "8"}, {"cluster", "local:2,nic=200Mb/s"}};

Flags all_flags() {
  Flags flags("run", "", "");
  declare_run_flags(flags);
  declare_checkpoint_flags(flags);
  declare_lengths_flag(flags);
  return flags;
}

AgreedSettings settings_of(const FlagValues& given) {
  FlagValues values = kUsual;
  for (const auto& [name, value] : given) values[name] = value;
  std::vector<std::string> arguments;
  for (const auto& [name, value] : values) {
    if (value.empty()) continue;
    arguments.push_back("--" + name);
    if (value != "true") arguments.push_back(value);
  }
  Flags flags = all_flags();
  flags.parse(arguments);
  Launch launch;
  launch.kind = LaunchKind::mpi;
  const std::string& cluster = values.at("cluster");
  launch.ranks = cluster.empty() ? 2 : parse_cluster(cluster).nodes;
  const std::vector<std::int64_t> lengths = read_lengths(flags);
  RunOptions options = read_run_options(flags, launch);
  options.lengths = lengths;
  read_checkpoint_options(flags, options);
  return agreed_run_settings(options, read_world_options(flags, launch));
}

struct FlagCase {
  std::string value;       // of the flag on one rank
  FlagValues common = {};  // what both ranks have beside it
};

std::map<std::string, FlagCase> flag_cases(const ScratchFolder& folder) {
  const FlagValues experts = {{"experts", "4"}, {"capacity-factor", "1.25"}};
  const FlagValues stages = {{"pp", "2"}, {"layers", "4"}};
  const FlagValues saves = {{"checkpoint", folder.file("saves")}};
  const Program ring_of_two = make_program({.ranks = 2, .in_place = true});
  const std::string profile = folder.write("profile.json", R"({"weft_profile": 1})");
  return {
      {"model", {"gpt2"}},
      {"layers", {"3"}},
      {"hidden", {"64"}},
      {"heads", {"2"}},
      {"kv-heads", {"2"}},
      {"ffn", {"96"}},
      {"vocab", {"300"}},
      {"tied", {"false"}},
      {"experts", {"8", experts}},
      {"experts-per-rank", {"2", {{"capacity-factor", ""}}}},
      {"moe-every", {"2", experts}},
      {"top-k", {"2", experts}},
      {"capacity-factor", {"2", experts}},
      {"token-drop-policy", {"gshard", experts}},
      {"shared-ffn", {"16", experts}},
      {"router-groups", {"2", experts}},
      {"aux-loss-coeff", {"0.5", experts}},
      {"cluster", {"local:2,nic=100Mb/s"}},
      {"device", {"cuda", {{"cluster", ""}}}},
      {"memory", {"0.5"}},
      {"reserve", {"0.5"}},
      {"tp", {"2"}},
      {"pp", {"2"}},
      {"vpp", {"2", stages}},
      {"cp", {"2"}},
      {"ep", {"2", experts}},
      {"etp", {"2", experts}},
      {"expert-exchange", {"uneven", experts}},
      {"micro-batch", {"1"}},
      {"global-batch", {"12"}},
      {"micro-batches", {"3", {{"global-batch", ""}}}},
      {"seq", {"8"}},
      {"zero", {"1"}},
      {"zero-shards", {"1", {{"zero", "1"}}}},
      {"zero-replicas", {"2", {{"zero", "1"}}}},
      {"zero-secondary", {"2", {{"zero", "3"}, {"cluster", "local:4,nic=200Mb/s"}}}},
      {"layer-group", {"2", {{"zero", "2"}}}},
      {"reduce-every", {"step", {{"zero", "2"}}}},
      {"slices", {"2", {{"pp", "2"}, {"layers", "4"}, {"micro-batch", "1"}}}},
      {"sequence-parallel", {"true", {{"tp", "2"}}}},
      {"dropout", {"0.3"}},
      {"recompute", {"full"}},
      {"recompute-layers", {"1", {{"recompute", "full"}}}},
      {"attention", {"unfused"}},
      {"compress", {"gradients=int8"}},
      {"compress-min", {"100", {{"compress", "gradients=int8"}}}},
      {"clip-grad", {"1"}},
      {"extra", {folder.write("extra.json", kTaskOfOne)}},
      {"kfac-interval", {"2", {{"optimizer", "kfac"}}}},
      {"kfac-lr", {"0.1", {{"optimizer", "kfac"}}}},
      {"kfac-decay", {"0.5", {{"optimizer", "kfac"}}}},
      {"kfac-damping", {"0.2", {{"optimizer", "kfac"}}}},
      {"schedule", {"gpipe", stages}},
      {"warm-up-depth", {"1", stages}},
      {"stage-layers", {"1,3", stages}},
      {"mesh-order", {"dp,tp,cp,pp"}},
      {"device-map", {"1,0"}},
      {"topology", {"local:2,nic=100Mb/s"}},
      {"nvlink", {"50GB/s", {{"topology", folder.write("matrix.txt", kMatrixOfTwo)}}}},
      {"program", {"all_reduce=" + folder.write("ring.xml", write_msccl_xml(ring_of_two))}},
      {"bucket-size", {"1000"}},
      {"bucket-mib", {"1"}},
      {"part-mib", {"1"}},
      {"tp-comm-overlap", {"true", {{"tp", "2"}, {"sequence-parallel", "true"}}}},
      {"tp-comm-overlap-cfg", {"recipes", {{"tp", "2"}, {"sequence-parallel", "true"}, {"tp-comm-overlap", "true"}}}},
      {"overlap-moe-expert-parallel-comm", {"true", {{"experts", "4"}, {"capacity-factor", "1.25"}, {"ep", "2"}}}},
      {"delay-wgrad-compute",
       {"true",
        {{"experts", "4"}, {"capacity-factor", "1.25"}, {"ep", "2"}, {"overlap-moe-expert-parallel-comm", "true"}}}},
      {"prefetch", {"2"}},
      {"budget", {"1"}},
      {"profile", {profile}},
      {"policy", {"ddp"}},
      {"steps", {"20"}},
      {"warm-up", {"1"}},
      {"data", {folder.write("data.txt", std::string(100, 'a'))}},
      {"seed", {"7"}},
      {"optimizer", {"sgd"}},
      {"lr", {"0.02"}},
      {"lr-warmup", {"2"}},
      {"lr-schedule", {"cosine"}},
      {"lr-min", {"0.0001", {{"lr-schedule", "linear"}}}},
      {"lr-decay-steps", {"5", {{"lr-schedule", "linear"}}}},
      {"eval-every", {"5"}},
      {"eval-batches", {"2", {{"eval-every", "5"}}}},
      {"eval-data", {folder.write("held_out.txt", std::string(100, 'b')), {{"eval-every", "5"}}}},
      {"eval-share", {"0.2", {{"eval-every", "5"}}}},
      {"weight-decay", {"0.1"}},
      {"momentum", {"0.9", {{"optimizer", "sgd"}}}},
      {"calibrate-seconds", {"1"}},
      {"transport", {"tcp"}},
      {"check", {"true"}},
      {"native", {"never"}},
      {"graphs", {"off", {{"device", "cuda"}, {"cluster", ""}}}},
      {"trials", {"3"}},
      {"checkpoint", {folder.file("saves")}},
      {"checkpoint-every", {"5", saves}},
      {"keep-checkpoints", {"3", saves}},
      {"resume", {"true", saves}},
      {"on-save-error", {"continue", saves}},
      {"lengths", {"8,16"}}};
}

TEST(RunSettings, EveryFlagIsComparedOrMayDiffer) {
  const ScratchFolder folder("run_settings");
  const std::map<std::string, FlagCase> cases = flag_cases(folder);
  for (const std::string& flag : all_flags().declared_names()) {
    if (kMayDiffer.contains(flag) || kRefused.contains(flag)) continue;
    if (flag == "program" && !can_read_msccl_xml()) continue;
    const auto found = cases.find(flag);
    ASSERT_NE(found, cases.end()) << "--" << flag << ": is it compared between ranks, or may it differ?";
    FlagValues other = found->second.common;
    if (flag == "lengths") other["seq"] = "";
    other[flag] = found->second.value;
    try {
      const std::string words = disagreement({settings_of(found->second.common), settings_of(other)});
      EXPECT_FALSE(words.empty()) << "--" << flag << " " << found->second.value << ": nobody notices";
    } catch (const Error& error) {
      ADD_FAILURE() << "--" << flag << ": " << error.what();
    }
  }
}

TEST(RunSettings, FlagsAreNamedWithBothValues) {
  const auto words = [](const FlagValues& other) { return disagreement({settings_of({}), settings_of(other)}); };
  EXPECT_EQ(words({{"lr", "0.02"}}), "rank 1 has --lr 0.02, rank 0 has --lr 0.001");
  EXPECT_EQ(words({{"seed", "7"}}), "rank 1 has --seed 7, rank 0 has --seed 1");
  EXPECT_EQ(words({{"dropout", "0.3"}}), "rank 1 has --dropout 0.3, rank 0 has --dropout 0");
  EXPECT_EQ(words({{"recompute", "full"}}), "rank 1 has --recompute full, rank 0 has --recompute none");
  EXPECT_EQ(words({{"clip-grad", "1"}}), "rank 1 has --clip-grad 1.0, rank 0 has --clip-grad 0.0");
}

// What is compared is what flags mean, not how they are written.
TEST(RunSettings, TheSameSaidInAnotherWayAgrees) {
  const auto words = [](const FlagValues& other) { return disagreement({settings_of({}), settings_of(other)}); };
  EXPECT_EQ(words({{"lr", "1e-3"}, {"steps", "10"}, {"optimizer", "adam"}}), "");
  EXPECT_EQ(words({{"out", "elsewhere"}, {"json", "true"}, {"timeout", "5"}, {"threads", "1"}}), "");
}

TEST(RunSettings, DataIsComparedByItsContent) {
  const ScratchFolder folder("run_settings_data");
  const auto words = [&](const std::string& a, const std::string& b) {
    return disagreement({settings_of({{"data", a}}), settings_of({{"data", b}})});
  };
  std::string text(100, 'a');
  const std::string one = folder.write("one.txt", text), same = folder.write("same.txt", text);
  text.back() = 'b';
  const std::string other = folder.write("other.txt", text);
  EXPECT_EQ(words(one, same), "");
  const std::string said = words(one, other);
  EXPECT_NE(said.find("rank 1 has --data " + other + " (100 bytes, checksum "), std::string::npos) << said;
}

TEST(RunSettings, NamesAreUnique) {
  for (const FlagValues& given : {FlagValues{}, FlagValues{{"experts", "4"}}, FlagValues{{"model", "llama2-7b"}}}) {
    std::set<std::string> names;
    for (const AgreedSetting& setting : settings_of(given)) {
      EXPECT_TRUE(names.insert(setting.name).second) << setting.name << " stands there twice";
    }
  }
}

}  // namespace
}  // namespace weft
