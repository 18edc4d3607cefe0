// --links, --nccl and --movers of `weft plan`.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "app/test_cli.hpp"

namespace weft {
namespace {

const std::string kPlan =
    "plan --layers 4 --hidden 2048 --heads 16 --seq 1024 --cluster dgx-h100:2 --tp 8 --zero 1 --global-batch 8 "
    "--policy serial --json ";

double step_of(const std::string& flags) {
  const CliResult result = weft_cli(kPlan + flags);
  EXPECT_EQ(result.code, kOk) << result.err;
  return nlohmann::json::parse(result.out).at("policies").at("serial").at("step_s");
}

std::string links(double inside, double across) {
  return fmt::format(
      R"({{"weft_links": 1, "collectives": [
        {{"collective": "all_reduce", "members": 8, "bytes": [1073741824], "bus_gb_per_s": [{}]}},
        {{"collective": "all_reduce", "members": 16, "bytes": [1073741824], "bus_gb_per_s": [{}]}}]}})",
      inside, across);
}

TEST(Links, SlowerLinksMakeLongerSteps) {
  const ScratchFolder folder("links");
  const double usual = step_of("--links " + folder.write("usual.json", links(360, 340)));
  EXPECT_GT(step_of("--links " + folder.write("inside.json", links(180, 340))), 1.02 * usual);
  EXPECT_GT(step_of("--links " + folder.write("across.json", links(360, 80))), 1.02 * usual);
}

TEST(Links, SeveralFilesCount) {
  const ScratchFolder folder("links_files");
  const std::string all = folder.write("all.json", links(200, 100));
  const auto one = [&](const char* name, int members, int rate) {
    std::string text;
    for (int rank = 0; rank < members; ++rank) {
      text +=
          fmt::format("#  Rank {} Group 0 Pid 7 on node-{} device {} [0x07] NVIDIA H100\n", rank, rank / 8, rank % 8);
    }
    return folder.write(name, text + fmt::format("1073741824 268435456 float sum -1 1.0 1.0 {} 0\n", rate));
  };
  const std::string files = one("all_reduce-8.txt", 8, 200) + "," + one("all_reduce-16.txt", 16, 100);
  EXPECT_DOUBLE_EQ(step_of("--links " + files), step_of("--links " + all));
}

TEST(Links, ColumnsOfATableAreEachRowsOwn) {
  const ScratchFolder folder("links_columns");
  const std::string shape = "2,4,2048,16,1024,8,8,1,";
  const std::string table = folder.write(
      "rows.csv", "nodes,layers,hidden,heads,seq,global_batch,tp,zero,step_s,allreduce_gbs,allreduce_intra_gbs\n" +
                      shape + "1,340,360\n" + shape + "1,80,360\n");
  const CliResult result = weft_cli("plan --json --against " + table + " --links columns --cluster dgx-h100");
  EXPECT_EQ(result.code, kOk) << result.err;
  const nlohmann::json rows = nlohmann::json::parse(result.out).at("rows");
  const double fast = 1 + rows[0].at("step_error").get<double>(), slow = 1 + rows[1].at("step_error").get<double>();
  EXPECT_NEAR(fast, step_of("--links " + folder.write("fast.json", links(360, 340))), 1e-9);
  EXPECT_NEAR(slow, step_of("--links " + folder.write("slow.json", links(360, 80))), 1e-9);
}

TEST(Links, MistakesSayWhatToDo) {
  EXPECT_TRUE(contains(weft_cli(kPlan + "--links columns").err, "give --against, or files"));
  EXPECT_TRUE(contains(weft_cli(kPlan + "--links nowhere.json").err, "nowhere.json"));
  const ScratchFolder folder("links_mistakes");
  const std::string high = folder.write("high.json", links(360, 900));
  EXPECT_TRUE(contains(weft_cli(kPlan + "--links " + high).err, "times the 400 GB/s that its nic links carry"));
  const CliResult local = weft_cli("plan --layers 2 --hidden 64 --heads 4 --cluster local:2 --links " + high);
  EXPECT_TRUE(contains(local.err, "the links of local:2 are paced")) << local.err;
}

TEST(Nccl, ItsModelIsAChoice) {
  const double usual = step_of("");
  EXPECT_DOUBLE_EQ(step_of("--nccl efficiency"), usual);
  EXPECT_NE(step_of("--nccl model"), usual);
  EXPECT_TRUE(contains(weft_cli(kPlan + "--nccl ring").err, "--nccl"));
}

TEST(MoversFlag, PolicyWeftIsNotSlowerAndSaysWhoMovesWhat) {
  const std::string plan =
      "plan --layers 4 --hidden 2048 --heads 16 --seq 1024 --cluster dgx-h100:1 --zero 3 --policy fsdp,weft --budget "
      "0.1 ";
  const auto policies = [&](const std::string& flags) {
    const CliResult result = weft_cli(plan + flags + " --json --explain");
    EXPECT_EQ(result.code, kOk) << result.err;
    return nlohmann::json::parse(result.out).at("policies");
  };
  const nlohmann::json library = policies("--movers library"), chosen = policies("--movers auto");
  EXPECT_FALSE(library.at("weft").contains("movers"));
  EXPECT_DOUBLE_EQ(chosen.at("fsdp").at("step_s"), library.at("fsdp").at("step_s").get<double>());
  EXPECT_LE(chosen.at("weft").at("step_s"), library.at("weft").at("step_s"));
  bool copies = false;
  for (const nlohmann::json& row : chosen.at("weft").at("movers")) {
    copies |= row.at("chosen").at("mover") == "copy engine";
    EXPECT_TRUE(row.at("chosen").at("mover") != "copy engine" || row.at("collective") == "all_gather");
  }
  EXPECT_TRUE(copies);
  EXPECT_TRUE(contains(weft_cli(plan + "--movers auto --explain").out, "Who moves the collectives inside nodes"));
  EXPECT_TRUE(contains(weft_cli(plan + "--movers sms").err, "--movers"));
}

TEST(UserbufferFlag, SaysWhichProductTakesHowManySms) {
  const ScratchFolder folder("userbuffers");
  const std::string plan =
      "plan --model llama2-13b --layers 2 --cluster dgx-h100:1 --tp 4 --sequence-parallel --seq 4096 --global-batch 2 "
      "--policy megatron-grad --tp-comm-overlap ";
  const auto rows = [&](const std::string& flags) {
    const CliResult result = weft_cli(plan + flags + " --explain --json");
    EXPECT_EQ(result.code, kOk) << result.err;
    std::map<std::string, nlohmann::json> by_product;
    const nlohmann::json report = nlohmann::json::parse(result.out);
    for (const nlohmann::json& row : report.at("policies").at("megatron-grad").at("userbuffers")) {
      by_product[row.at("product")] = row;
    }
    return by_product;
  };
  const auto standard = rows("");
  EXPECT_EQ(standard.at("qkv_wgrad").at("thread_blocks"), 16);
  EXPECT_EQ(standard.at("qkv_wgrad").at("of_device"), 132);
  EXPECT_EQ(standard.at("qkv_fprop").at("thread_blocks"), 1);
  EXPECT_EQ(standard.at("qkv_fprop").at("copy_engine"), true);
  const std::string file = folder.write("ub.yaml", "qkv_wgrad:\n  method: bulk\n  num_sm: 24\n");
  EXPECT_EQ(rows("--tp-comm-overlap-cfg " + file).at("qkv_wgrad").at("thread_blocks"), 24);
  EXPECT_EQ(rows("--tp-comm-overlap-cfg recipes").at("fc1_dgrad").at("thread_blocks"), 2);
  EXPECT_TRUE(contains(weft_cli(plan + "--explain").out, "16 of 132"));
  const std::string wrong = folder.write("wrong.yaml", "qkv_wgrad:\n  num_sm: 99\n");
  const CliResult refused = weft_cli(plan + "--tp-comm-overlap-cfg " + wrong);
  EXPECT_EQ(refused.code, kBadInput);
  EXPECT_TRUE(contains(refused.err, "wrong.yaml:2: 'num_sm: 99': allowed: 1 to 32")) << refused.err;
  EXPECT_TRUE(contains(weft_cli("plan --model llama2-7b --cluster dgx-h100:1 --tp-comm-overlap-cfg recipes").err,
                       "which is not given"));
}

}  // namespace
}  // namespace weft
