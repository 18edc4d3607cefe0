#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/test_cli.hpp"
#include "io/chakra/chakra_file.hpp"

namespace weft {
namespace {

using nlohmann::json;

void export_traces(const ScratchFolder& folder, const std::string& flags) {
  ASSERT_EQ(weft_cli("plan --layers 4 --hidden 512 --heads 8 --vocab 1024 --seq 128 --micro-batch 2 " + flags +
                     " --out " + folder.file("plan"))
                .code,
            0);
  ASSERT_EQ(weft_cli("export " + folder.file("plan/plan.json") + " --to chakra -o " + folder.file("traces")).code, 0);
}

json plan_of_traces(const std::string& where, const std::string& flags = "") {
  const CliResult result = weft_cli("plan --chakra " + where + " --json " + flags);
  EXPECT_EQ(result.code, 0) << result.err;
  return json::parse(result.out);
}

// One by one, the step is the sum of all operations as the file states them.
TEST(PlanChakra, SerialIsTheSumOfTheOperations) {
  const ScratchFolder folder("chakra_sum");
  export_traces(folder, "--cluster dgx-a100:1 --dp 8 --policy ddp");
  const ChakraFile file = read_chakra_file(folder.file("traces/step.0.et"));
  double sum = 0;
  for (const ChakraNode& node : file.nodes) sum += static_cast<double>(node.duration.value) * 1e-9;
  const json report = plan_of_traces(folder.file("traces"));
  EXPECT_NEAR(report["policies"]["serial"]["step_s"].get<double>(), sum, 1e-9);
  EXPECT_EQ(report["chakra"]["ranks"], 1);
  EXPECT_LE(report["bound_s"].get<double>(), report["policies"]["weft"]["step_s"].get<double>() + 1e-9);
}

// What was planned is written as traces, whose own order then is the plan.
TEST(PlanChakra, AWrittenOrderIsTheOrderOfTheTrace) {
  const ScratchFolder folder("chakra_again");
  export_traces(folder, "--cluster dgx-a100:1 --tp 2 --pp 2 --global-batch 16 --policy megatron");
  const json first = plan_of_traces(folder.file("traces"), "--out " + folder.file("again"));
  EXPECT_EQ(weft_cli("verify " + folder.file("traces")).code, 0);
  EXPECT_EQ(weft_cli("verify " + folder.file("again")).code, 0);
  const json again = plan_of_traces(folder.file("again"));
  EXPECT_NEAR(again["policies"]["trace"]["step_s"].get<double>(), first["policies"]["weft"]["step_s"].get<double>(),
              1e-9);
  EXPECT_LT(first["policies"]["weft"]["step_s"].get<double>(), first["policies"]["trace"]["step_s"].get<double>());
  const CliResult page = weft_cli("report " + folder.file("again") + " -o " + folder.file("page.html"));
  EXPECT_EQ(page.code, 0) << page.err;
}

TEST(PlanChakra, LinksOfAClusterChangeTheTransfers) {
  const ScratchFolder folder("chakra_links");
  export_traces(folder, "--cluster dgx-a100:1 --dp 8 --policy ddp");
  const json near = plan_of_traces(folder.file("traces"), "--cluster dgx-a100:1");
  const json far = plan_of_traces(folder.file("traces"), "--cluster p3dn:1");
  EXPECT_LT(near["policies"]["serial"]["step_s"].get<double>(), far["policies"]["serial"]["step_s"].get<double>());
}

TEST(PlanChakra, SaysWhatIsWrong) {
  const ScratchFolder folder("chakra_wrong");
  export_traces(folder, "--cluster dgx-a100:1 --dp 8 --policy ddp");
  const std::string trace = folder.file("traces/step.0.et");
  const auto refused = [](const std::string& line, const std::string& words) {
    const CliResult result = weft_cli(line);
    EXPECT_EQ(result.code, 2) << line;
    EXPECT_TRUE(contains(result.err, words)) << result.err;
  };
  refused("plan --chakra " + folder.file("plan"), "has no Chakra trace");
  refused("plan --chakra " + trace + " --tp 2", "--tp: is not for --chakra");
  refused("plan --chakra " + trace + " --profile x.json", "needs --cluster");
  refused("plan --comm-groups x.json --model gpt2", "belongs to --chakra");
  refused("plan --chakra " + trace + "," + trace, "both are of rank 0");
  refused("plan --chakra " + folder.write("bad.et", "no trace") + "," + trace, "does not say its rank");
  refused("plan --chakra " + folder.write("bad.1.et", "\x7fshort"), "bad.1.et");
  refused("plan --chakra " + trace + " --comm-groups " + folder.write("groups.json", R"({"dp.0": [1, 2]})"),
          "do not include rank 0");
  refused("verify " + trace + " --memory 3", "say nothing of buffers");
}

}  // namespace
}  // namespace weft
