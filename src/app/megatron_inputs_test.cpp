// `weft plan --megatron-args`: the launch decides, the command line overrides, nothing is dropped silently.
#include "app/megatron_inputs.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/test_cli.hpp"

namespace weft {
namespace {

const char* const kScript = R"(ARGS=(
  --num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length 256 --max-position-embeddings 256
  --vocab-size 1000 --micro-batch-size 2 --global-batch-size 32 --bf16 --lr 1e-4
  --tensor-model-parallel-size 2 --use-distributed-optimizer --tp-comm-overlap-cfg ub.yaml --hiden-dropout 0.1
)
torchrun pretrain_gpt.py "${ARGS[@]}"
)";

class MegatronInputs : public ::testing::Test {
 protected:
  ScratchFolder folder{"megatron"};
  std::string script = folder.write("train.sh", kScript);
  CliResult plan(const std::string& flags) {
    return weft_cli("plan --cluster dgx-a100:1 --policy serial --megatron-args " + script + " " + flags);
  }
};

TEST_F(MegatronInputs, TheScriptIsThePlan) {
  const CliResult result = plan("--json");
  ASSERT_EQ(result.code, kOk) << result.err;
  nlohmann::json imported = nlohmann::json::parse(result.out);
  // The same by hand.
  const CliResult typed = weft_cli(
      "plan --json --cluster dgx-a100:1 --policy serial --layers 8 --hidden 512 --heads 8 --seq 256 --vocab 1000 "
      "--micro-batch 2 --global-batch 32 --tp 2 --zero 1 --clip-grad 1");
  const nlohmann::json by_hand = nlohmann::json::parse(typed.out);
  EXPECT_EQ(imported.at("layout"), by_hand.at("layout"));
  // 2048 learned positions there, 256 here.
  EXPECT_EQ(imported.at("model").at("parameters").get<std::int64_t>(),
            by_hand.at("model").at("parameters").get<std::int64_t>() - (2048 - 256) * 512);
}

TEST_F(MegatronInputs, IgnoredFlagsAreNamed) {
  const CliResult result = plan("--json");
  const nlohmann::json flags = nlohmann::json::parse(result.out).at("ignored_flags");
  std::map<std::string, std::string> reasons;
  for (const nlohmann::json& flag : flags) reasons[flag.at("flag")] = flag.at("reason");
  EXPECT_TRUE(contains(reasons.at("--tp-comm-overlap-cfg"), "give weft plan --tp-comm-overlap-cfg"));
  EXPECT_EQ(reasons.at("--lr"), "does not change the step");
  EXPECT_EQ(reasons.at("--hiden-dropout"), "is not known; did you mean '--hidden-dropout'?");
  EXPECT_TRUE(contains(result.err, "without effect on a plan: --lr")) << result.err;
  EXPECT_TRUE(contains(result.err, "ignored --tp-comm-overlap-cfg ub.yaml: its file is not read from here"))
      << result.err;
  EXPECT_TRUE(contains(result.err, "did you mean '--hidden-dropout'?")) << result.err;
}

TEST_F(MegatronInputs, TheLaunchStandsBetweenNoOverlapAndTheBest) {
  const std::string flags = "plan --cluster dgx-a100:1 --budget 0.5 --megatron-args " + script;
  const CliResult result = weft_cli(flags + " --json");
  ASSERT_EQ(result.code, kOk) << result.err;
  const nlohmann::json json = nlohmann::json::parse(result.out);
  std::vector<std::string> policies;
  for (const auto& [name, policy] : json.at("policies").items()) policies.push_back(name);
  std::sort(policies.begin(), policies.end());
  EXPECT_EQ(policies, (std::vector<std::string>{"megatron-dist", "serial", "weft"}));
  const nlohmann::json& launch = json.at("launch");
  const double own = json.at("policies").at("megatron-dist").at("step_s");
  const double best = json.at("policies").at(json.at("best").get<std::string>()).at("step_s");
  EXPECT_EQ(launch.at("policy"), "megatron-dist");
  EXPECT_DOUBLE_EQ(launch.at("speedup").get<double>(), own / best);
  EXPECT_GE(launch.at("speedup").get<double>(), 1);
  EXPECT_TRUE(contains(weft_cli(flags).out, "Over the launch as it is (megatron-dist: "));
  EXPECT_FALSE(nlohmann::json::parse(plan("--json").out).contains("launch"));  // policies are named there
}

// Whatever policies are compared, what Megatron refuses is bad input, and what a typed flag leaves without meaning is
// named.
TEST_F(MegatronInputs, OverlapFlagsAreCheckedAgainstTheLayoutOnce) {
  const std::string shape = "plan --layers 4 --hidden 512 --heads 8 --seq 512 --cluster dgx-a100:1 --budget 0 ";
  for (const char* const flags : {"--tp-comm-overlap", "--tp 2 --tp-comm-overlap", "--delay-wgrad-compute",
                                  "--experts 8 --ep 8 --overlap-moe-expert-parallel-comm --recompute full",
                                  "--experts 8 --ep 8 --overlap-moe-expert-parallel-comm --expert-exchange gathered"}) {
    EXPECT_EQ(weft_cli(shape + flags).code, kBadInput) << flags;
  }
  const CliResult unread = weft_cli(shape + "--tp 2 --sequence-parallel --tp-comm-overlap --policy serial");
  EXPECT_EQ(unread.code, kOk);
  EXPECT_TRUE(contains(unread.err, "--tp-comm-overlap: no policy")) << unread.err;
}

TEST_F(MegatronInputs, ATypedDegreeLeavesTheScriptsExpertsWithoutExchange) {
  const std::string experts =
      folder.write("moe.sh",
                   "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 256 --num-attention-heads 4 --seq-length 128 "
                   "--max-position-embeddings 128 --vocab-size 500 --micro-batch-size 1 --global-batch-size 16 --bf16 "
                   "--num-experts 8 --expert-model-parallel-size 4\n");
  const std::string flags = "plan --policy serial --cluster dgx-a100:1 --megatron-args " + experts;
  for (const char* const typed : {"", " --ep 1", " --ep-forwarding", " --lengths 64,128"}) {
    const CliResult result = weft_cli(flags + typed);
    EXPECT_EQ(result.code, kOk) << typed << result.err;
    const std::string named = std::string(typed) == " --lengths 64,128" ? "ignored --seq" : "ignored --expert-exchange";
    EXPECT_EQ(contains(result.err, named), *typed != 0) << typed << "\n" << result.err;
  }
}

// Eight devices, tensor parallel in pairs: four ranks hold the same parameters.
TEST_F(MegatronInputs, InstancesOfTheOptimizerBecomeShards) {
  std::string text = kScript;
  text.replace(text.find("--lr 1e-4"), 9, "--num-distributed-optimizer-instances 2");
  const std::string file = folder.write("two.sh", text);
  const auto layout = [&](const std::string& flags) {
    const CliResult result =
        weft_cli("plan --json --cluster dgx-a100:1 --policy serial --megatron-args " + file + " " + flags);
    EXPECT_EQ(result.code, kOk) << result.err;
    return nlohmann::json::parse(result.out).at("layout");
  };
  EXPECT_EQ(layout("").at("zero_shards"), 2);
  EXPECT_EQ(layout("--zero-shards 1").at("zero_shards"), 1);
  EXPECT_FALSE(layout("--zero 0").contains("zero_shards"));
}

TEST_F(MegatronInputs, TheCommandLineWins) {
  const nlohmann::json json = nlohmann::json::parse(plan("--json --tp 4 --zero 0 --layers 4").out);
  EXPECT_EQ(json.at("layout").at("tp"), 4);
  EXPECT_EQ(json.at("layout").at("zero"), 0);
  const nlohmann::json eight = nlohmann::json::parse(plan("--json").out);
  EXPECT_LT(json.at("model").at("parameters"), eight.at("model").at("parameters"));
}

TEST_F(MegatronInputs, ASweepVariesWhatTheScriptSays) {
  const CliResult result = plan("--json --sweep tp=1,2,4;micro-batch=1,2");
  ASSERT_EQ(result.code, kOk) << result.err;
  const nlohmann::json json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json.at("sweep").at("feasible"), 6);
  EXPECT_TRUE(json.contains("ignored_flags"));
}

TEST_F(MegatronInputs, MessagesNameTheLine) {
  const std::string bad =
      folder.write("bad.sh", "--num-layers 8 --hidden-size 512 \\\n --num-attention-heads 8 \\\n --bf16 yes");
  const CliResult result = weft_cli("plan --cluster dgx-a100:1 --megatron-args " + bad);
  EXPECT_EQ(result.code, kBadInput);
  EXPECT_TRUE(contains(result.err, "bad.sh: line 3: --bf16: takes no value, but 'yes' follows")) << result.err;
}

// Whose file it is says whose host and kernels run the step; --framework still wins.
TEST(LaunchFiles, SayWhichFrameworkRunsTheStep) {
  const ScratchFolder folder("launch_framework");
  const std::string deepspeed = folder.write("ds.json", R"({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},
      "zero_optimization": {"stage": 3, "reduce_bucket_size": 5e8}})");
  const std::string torchtitan = folder.write("tt.toml", "[training]\nlocal_batch_size = 1\nseq_len = 512\n");
  const auto step = [](const std::string& flags) {
    const CliResult result =
        weft_cli("plan --model llama3-8b --layers 2 --cluster dgx-h100:1 --seq 512 --micro-batches 2 --json " + flags);
    EXPECT_TRUE(result.code == kOk) << result.err;
    return nlohmann::json::parse(result.out).at("policies").front().at("step_s").get<double>();
  };
  for (const auto& [file, name] : {std::pair{"--deepspeed-config " + deepspeed, "deepspeed"},
                                   {"--torchtitan-config " + torchtitan, "torchtitan"}}) {
    const std::string flags = file + " --micro-batches 2";
    EXPECT_EQ(step(file), step(file + " --framework " + name)) << flags;
    EXPECT_NE(step(file), step(file + " --framework megatron")) << flags;
  }
}

}  // namespace
}  // namespace weft
