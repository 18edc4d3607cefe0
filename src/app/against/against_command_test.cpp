// `weft plan --against`: the predictions of `weft plan` with a row's flags, compared with what the row measured.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/test_cli.hpp"

namespace weft {
namespace {

const std::string kBase = "--model llama2-7b --framework nanotron --policy nanotron ";
const std::string kHeader =
    "nodes,layers,hidden,heads,kv_heads,ffn,vocab,tied,seq,micro_batch,global_batch,dp,tp,pp,zero,";
const std::string kShape = "1,4,1024,16,16,2048,4096,true,512,1,16,";
const std::string kShapeFlags =
    "--layers 4 --hidden 1024 --heads 16 --kv-heads 16 --ffn 2048 --vocab 4096 --tied true --seq 512 --micro-batch 1 "
    "--global-batch 16 --cluster dgx-h100:1 ";

nlohmann::json plan_of(const std::string& flags) {
  const CliResult result = weft_cli("plan --json " + kBase + kShapeFlags + flags);
  EXPECT_EQ(result.code, kOk) << result.err;
  return nlohmann::json::parse(result.out).at("policies").at("nanotron");
}

nlohmann::json against(const ScratchFolder& folder, const std::string& more = "") {
  const CliResult result =
      weft_cli("plan --json --against " + folder.file("rows.csv") + " --cluster dgx-h100 " + kBase + more);
  EXPECT_EQ(result.code, kOk) << result.err;
  return nlohmann::json::parse(result.out);
}

TEST(Against, ARowIsThePlanOfItsFlags) {
  const ScratchFolder folder("against");
  const double whole = plan_of("--dp 8").at("step_s"), split = plan_of("--dp 2 --tp 4 --zero 1").at("step_s");
  // The first row ran twice as long as predicted, the second as long.
  folder.write("rows.csv", kHeader + "step_s,status\n" + kShape + fmt::format("8,1,1,0,{:.17g},ok\n", 2 * whole) +
                               kShape + fmt::format("2,4,1,1,{:.17g},ok\n", split));
  const nlohmann::json json = against(folder);
  EXPECT_EQ(json.at("without_plan"), 0);
  EXPECT_NEAR(json.at("rows")[0].at("step_error"), -0.5, 1e-9);
  EXPECT_NEAR(json.at("rows")[1].at("step_error"), 0, 1e-9);
  EXPECT_NEAR(json.at("step").at("mean_pct"), 25, 1e-6);
  EXPECT_NEAR(json.at("step").at("bias_pct"), -25, 1e-6);
  double terms = 0;
  for (const auto& [name, seconds] : json.at("rows")[0].at("terms_s").items()) terms += seconds.get<double>();
  EXPECT_NEAR(terms, whole, 1e-6);
}

TEST(Against, SaysWhichRunsFit) {
  const ScratchFolder folder("against_fits");
  folder.write("rows.csv",
               kHeader + "step_s,mem_reserved_gb,status\n" + kShape + "8,1,1,0,1,2,ok\n" + kShape + "8,1,1,0,,,oom\n");
  const nlohmann::json roomy = against(folder);
  EXPECT_EQ(roomy.at("finished").at("said_to_fit"), 1);
  EXPECT_EQ(roomy.at("out_of_memory").at("said_not_to_fit"), 0);
  EXPECT_EQ(roomy.at("reserved_memory").at("rows"), 1);
  const nlohmann::json narrow = against(folder, "--memory 0.1");
  EXPECT_EQ(narrow.at("finished").at("said_to_fit"), 0);
  EXPECT_EQ(narrow.at("out_of_memory").at("said_not_to_fit"), 1);
}

TEST(Framework, SaysItsMemoryByTermAndPlansItsOwnPolicy) {
  const std::string job = "plan " + kShapeFlags + "--model llama2-7b --tp 2 --dp 4 --policy nanotron";
  const CliResult result = weft_cli(job + " --framework nanotron");
  EXPECT_EQ(result.code, kOk) << result.err;
  EXPECT_TRUE(contains(result.out, "Needs of stage 0 include the framework's: ")) << result.out;
  EXPECT_TRUE(contains(result.out, "sequence parallel"));
  EXPECT_FALSE(contains(weft_cli(job).out, "include the framework's"));
  // DistributedDataParallel's copy of gradients: two bytes of each parameter of a rank, which gradients hold in four.
  const nlohmann::json memory = nlohmann::json::parse(weft_cli(job + " --framework nanotron --json").out)
                                    .at("policies")
                                    .at("nanotron")
                                    .at("memory")[0]
                                    .at("terms");
  EXPECT_LE(2 * memory.at("gradient buckets").get<double>(), memory.at("gradients").get<double>());
  EXPECT_GT(2.1 * memory.at("gradient buckets").get<double>(), memory.at("gradients").get<double>());
}

// A row in the columns of MLPerf's submissions is the plan of these flags.
TEST(Against, ReadsSubmissionsOfMlperf) {
  const ScratchFolder folder("against_mlperf");
  folder.write(
      "rows.csv",
      "benchmark,gpus,gpus_per_node,gpu,nic_gbps_per_gpu,global_batch,micro_batch,seq,tp,pp,vpp,cp,dp,precision,"
      "distributed_optimizer,tp_comm_overlap,fp8_param_gather,rank_order,cuda_graph,recompute,step_s\n"
      "llama31_405b,64,4,gb200,400,16,1,512,4,8,1,2,1,fp8,true,true,true,tp-cp-pp-dp,full,none,1\n");
  const CliResult result = weft_cli("plan --json --framework nemo --against " + folder.file("rows.csv"));
  ASSERT_EQ(result.code, kOk) << result.err;
  const CliResult alone = weft_cli(
      "plan --json --framework nemo --policy megatron --model llama3-405b --vocab 32000 --cluster "
      "gb200-nvl72:1,gpus=64,nic=25600Gb/s --global-batch 16 --micro-batch 1 --seq 512 --tp 4 --pp 8 --cp 2 --products "
      "fp8 --fp8-param-gather --zero 1 --tp-comm-overlap --mesh-order tp,cp,pp,dp --cuda-graphs full");
  ASSERT_EQ(alone.code, kOk) << alone.err;
  const double step = nlohmann::json::parse(alone.out).at("policies").at("megatron").at("step_s");
  EXPECT_NEAR(nlohmann::json::parse(result.out).at("rows")[0].at("step_s"), step, 1e-9);
}

TEST(Against, WhereKeepsRows) {
  const ScratchFolder folder("against_where");
  folder.write("rows.csv", kHeader + "step_s,use\n" + kShape + "8,1,1,0,1,yes\n" + kShape + "8,1,1,0,1,no\n");
  EXPECT_EQ(against(folder, "--where use=yes").at("step").at("rows"), 1);
}

TEST(Against, MistakesNameTheFileAndTheLine) {
  const ScratchFolder folder("against_mistakes");
  const std::string file = folder.write("rows.csv", kHeader + "step_s\n" + kShape + "8,1,1,0,soon\n");
  const std::string call = "plan --against " + file + " --cluster dgx-h100 " + kBase;
  EXPECT_TRUE(contains(weft_cli(call).err, "line 2: column 'step_s': 'soon' is no number above zero"));
  EXPECT_TRUE(contains(weft_cli(call + "--where used=yes").err, "has no column 'used'"));
  EXPECT_TRUE(contains(weft_cli(call + "--explain").err, "--against: is not for --explain"));
  EXPECT_TRUE(contains(weft_cli("plan --where tp=1 " + kBase).err, "--where: belongs to --against"));
  EXPECT_EQ(weft_cli(call).code, kBadInput);
}

}  // namespace
}  // namespace weft
