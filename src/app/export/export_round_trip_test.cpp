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

}  // namespace
}  // namespace weft
