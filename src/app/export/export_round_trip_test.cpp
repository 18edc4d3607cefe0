// What is exported and read back is the same plan: every operation, its order and its place in memory.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/files.hpp"
#include "app/test_cli.hpp"

namespace weft {
namespace {

// The plan without the names of model and policy, which exported files need not say.
nlohmann::json plan_in(const ScratchFolder& folder) {
  nlohmann::json plan = nlohmann::json::parse(read_text_file(folder.file("plan.json")));
  plan["model"].erase("name");
  return plan;
}

void expect_megatron_round_trip(const std::string& cluster, const std::string& flags) {
  SCOPED_TRACE(flags);
  const ScratchFolder first("export_first"), second("export_second");
  const std::string common = "plan --cluster " + cluster + " --reserve 0 --out ";
  const CliResult planned = weft_cli(common + first.path() + " " + flags);
  ASSERT_NE(planned.code, kBadInput) << planned.err;
  const std::string script = first.file("flags.sh");
  const CliResult exported = weft_cli("export " + first.file("plan.json") + " --to megatron -o " + script);
  ASSERT_EQ(exported.code, kOk) << exported.err;
  const std::string policy = flags.substr(flags.find("--policy"));
  const CliResult again = weft_cli(common + second.path() + " --megatron-args " + script + " " + policy);
  ASSERT_NE(again.code, kBadInput) << again.err;
  EXPECT_EQ(plan_in(first) == plan_in(second), true) << read_text_file(script);
  // The script says the policy too.
  const CliResult launch = weft_cli("plan --cluster " + cluster + " --megatron-args " + script);
  EXPECT_PRED2(contains, launch.out, policy.substr(9));
}

TEST(ExportRoundTrip, MegatronFlagsMakeTheSamePlan) {
  expect_megatron_round_trip("dgx-a100:2",
                             "--model gpt2 --tp 2 --pp 2 --zero 1 --global-batch 32 --policy megatron-param");
  expect_megatron_round_trip(
      "dgx-a100:2",
      "--model llama2-7b --layers 8 --tp 4 --pp 2 --vpp 2 --zero 1 --sequence-parallel --recompute "
      "selective --clip-grad 1 --global-batch 32 --policy megatron-grad");
  // Buckets of a size of their own, and stages of unequal layers.
  expect_megatron_round_trip(
      "dgx-a100:2",
      "--model llama2-7b --layers 10 --pp 4 --stage-layers 2,3,3,2 --zero 1 --bucket-size 300000000 "
      "--global-batch 32 --policy megatron-grad");
  expect_megatron_round_trip("dgx-a100:2",
                             "--model llama2-7b --layers 8 --pp 2 --recompute full --recompute-layers 3 --global-batch "
                             "32 --policy megatron-grad");
  expect_megatron_round_trip("dgx-a100:1",
                             "--model gpt2 --bucket-size 9000000 --global-batch 32 --policy megatron-grad");
}

TEST(ExportRoundTrip, MegatronFlagsSayExpertsAndLatentAttention) {
  expect_megatron_round_trip(
      "dgx-a100:2",
      "--model mixtral-8x7b --layers 4 --tp 2 --sequence-parallel --ep 4 --etp 1 --zero 1 --global-batch 32 --policy "
      "megatron-dist");
  expect_megatron_round_trip("dgx-a100:2",
                             "--model deepseek-v3 --layers 4 --pp 2 --ep 8 --global-batch 32 --policy megatron-dist");
}

// Plans, exports, and plans again with the file and `known`, which the file cannot say. Returns both layouts and
// orders.
void expect_config_round_trip(const std::string& format, const std::string& flag, const std::string& known,
                              const std::string& said) {
  SCOPED_TRACE(said);
  const ScratchFolder first("export_first"), second("export_second");
  const CliResult planned = weft_cli("plan " + known + " " + said + " --out " + first.path());
  ASSERT_NE(planned.code, kBadInput) << planned.err;
  const std::string file = first.file("config");
  const CliResult exported = weft_cli("export " + first.file("plan.json") + " --to " + format + " -o " + file);
  ASSERT_EQ(exported.code, kOk) << exported.err;
  const std::string policy = said.substr(said.find("--policy"));
  const CliResult again =
      weft_cli("plan " + known + " " + flag + " " + file + " " + policy + " --out " + second.path());
  ASSERT_NE(again.code, kBadInput) << again.err;
  EXPECT_EQ(plan_in(first).at("layout"), plan_in(second).at("layout")) << read_text_file(file);
  EXPECT_EQ(plan_in(first) == plan_in(second), true) << read_text_file(file);
}

// No time depends on these, and the model is another one without them.
TEST(ExportRoundTrip, MegatronFlagsRepeatWhatAScriptSaysOfTheModel) {
  const ScratchFolder folder("export_launch");
  const std::string script =
      folder.write("train.sh",
                   "torchrun pretrain_gpt.py --num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 512 "
                   "--max-position-embeddings 512 --micro-batch-size 1 --global-batch-size 16 --vocab-size 1024 "
                   "--position-embedding-type rope --rotary-base 500000 --norm-epsilon 1e-6 --init-method-std 0.0134 "
                   "--bf16 --lr 1e-4 "
                   "--use-rope-scaling\n");
  ASSERT_EQ(
      weft_cli("plan --cluster dgx-a100:1 --policy ddp --megatron-args " + script + " --out " + folder.path()).code,
      kOk);
  const CliResult said = weft_cli("export " + folder.file("plan.json") + " --to megatron");
  for (const char* flag :
       {"--rotary-base 500000", "--norm-epsilon 1e-6", "--init-method-std 0.0134", "--use-rope-scaling"})
    EXPECT_PRED2(contains, said.out, std::string("\n  ") + flag + "\n");
  EXPECT_FALSE(contains(said.out, "--lr")) << said.out;
  EXPECT_FALSE(contains(said.err, "defaults stand")) << said.err;
  // A preset does not say them, and the export says so.
  ASSERT_EQ(weft_cli("plan --model llama3-8b --layers 4 --cluster dgx-a100:1 --policy ddp --out " + folder.path()).code,
            kOk);
  const CliResult unsaid = weft_cli("export " + folder.file("plan.json") + " --to megatron");
  EXPECT_PRED2(contains, unsaid.err, "--rotary-base 10000");
  // Nothing in a plan file runs in the shell that reads the flags.
  nlohmann::ordered_json plan = nlohmann::ordered_json::parse(read_text_file(folder.file("plan.json")));
  plan["conditions"]["launch_flags"] = {"--rotary-base $(reboot)"};
  std::ofstream(folder.file("plan.json")) << plan.dump();
  EXPECT_PRED2(contains, weft_cli("export " + folder.file("plan.json") + " --to megatron").out,
               "  --rotary-base '$(reboot)'\n");
}

TEST(ExportRoundTrip, DeepSpeedConfigsMakeTheSamePlan) {
  const std::string known = "--model llama2-7b --layers 4 --cluster dgx-a100:1 --seq 512 --framework deepspeed";
  expect_config_round_trip("deepspeed", "--deepspeed-config", known,
                           "--zero 3 --micro-batch 2 --global-batch 64 --clip-grad 1 --policy fsdp");
  expect_config_round_trip("deepspeed", "--deepspeed-config", known,
                           "--zero 2 --global-batch 16 --precision fp16 --grad-dtype fp16 --policy serial");
  expect_config_round_trip("deepspeed", "--deepspeed-config", known,
                           "--precision fp32 --global-batch 16 --policy serial");
}

TEST(ExportRoundTrip, TorchTitanConfigsMakeTheSamePlan) {
  const std::string known = "--model llama2-7b --layers 8 --cluster dgx-a100:2 --framework torchtitan";
  expect_config_round_trip(
      "torchtitan-toml", "--torchtitan-config", known,
      "--seq 512 --tp 2 --sequence-parallel --zero 3 --global-batch 64 --clip-grad 1 --policy fsdp");
  expect_config_round_trip("torchtitan-toml", "--torchtitan-config", known,
                           "--seq 512 --pp 2 --vpp 2 --stage-layers 1,2,3,2 --zero 2 --micro-batch 2 --global-batch 32 "
                           "--recompute full --policy fsdp");
  expect_config_round_trip("torchtitan-toml", "--torchtitan-config", known,
                           "--seq 512 --zero 3 --zero-replicas 2 --global-batch 32 --policy fsdp");
}

TEST(ExportRoundTrip, MindSpeedFlagsSayTheOverlapOfTensorParallelism) {
  const ScratchFolder folder("export_mindspeed");
  const std::string common = "plan --cluster dgx-a100:1 --out " + folder.path();
  ASSERT_EQ(
      weft_cli(common +
               " --model llama2-7b --layers 4 --tp 4 --sequence-parallel --tp-comm-overlap --global-batch 8 --policy "
               "megatron-grad")
          .code,
      kOk);
  const nlohmann::json before = plan_in(folder);
  const std::string script = folder.file("flags.sh");
  ASSERT_EQ(weft_cli("export " + folder.file("plan.json") + " --to mindspeed -o " + script).code, kOk);
  EXPECT_PRED2(contains, read_text_file(script), "--use-ascend-coc");
  ASSERT_EQ(weft_cli(common + " --mindspeed-args " + script + " --policy megatron-grad").code, kOk);
  EXPECT_EQ(before == plan_in(folder), true) << read_text_file(script);
  EXPECT_PRED2(contains, weft_cli(common + " --mindspeed-args " + script + " --megatron-args " + script).err,
               "--mindspeed-args: is given with --megatron-args");
}

// What is exported as a schedule is proven by the reader of such schedules, and a row that is lost is found.
TEST(ExportRoundTrip, SchedulesAreVerified) {
  const ScratchFolder folder("export_schedule");
  ASSERT_EQ(
      weft_cli("plan --cluster dgx-a100:1 --model gpt2 --pp 4 --vpp 3 --global-batch 16 --policy megatron-grad --out " +
               folder.path())
          .code,
      kOk);
  for (const char* format : {"torch-pipeline", "torch-pipeline-comms"}) {
    const std::string file = folder.file(std::string(format) + ".csv");
    ASSERT_EQ(weft_cli("export " + folder.file("plan.json") + " --to " + format + " -o " + file).code, kOk);
    const CliResult verified = weft_cli("verify " + file);
    EXPECT_EQ(verified.code, kOk) << verified.out;
    EXPECT_PRED2(contains, verified.out, "safe: 4 ranks, 12 stages");
    const std::string text = read_text_file(file);
    const CliResult lost = weft_cli("verify " + folder.write("lost.csv", text.substr(text.find('\n') + 1)));
    EXPECT_EQ(lost.code, kAnswerIsNo);
    EXPECT_PRED2(contains, lost.out, "not safe");
  }
}

}  // namespace
}  // namespace weft
