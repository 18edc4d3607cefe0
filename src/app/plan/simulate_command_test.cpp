// `weft simulate`: a saved plan has the step that `weft plan` gave it; a changed one has another, or is refused.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/files.hpp"
#include "app/test_cli.hpp"

namespace weft {
namespace {

const std::string kSmall = "plan --model gpt2 --cluster dgx-a100:2 --global-batch 32 --zero 1 --policy ddp";

nlohmann::json simulated(const std::string& arguments) {
  const CliResult result = weft_cli("simulate --json " + arguments);
  EXPECT_EQ(result.code, kOk) << result.out << result.err;
  return nlohmann::json::parse(result.out);
}

TEST(Simulate, AnUnchangedPlanIsWhatPlanSaidOfIt) {
  for (const char* flags :
       {"--model gpt2 --cluster dgx-a100:1 --tp 2 --pp 2 --global-batch 8 --policy weft",
        "--model llama2-7b --cluster dgx-a100:2 --zero 3 --global-batch 32 --policy fsdp",
        "--model gpt2-s-moe --cluster p4de:2 --ep 16 --seq 512 --global-batch 32 --policy lancet",
        "--layers 4 --hidden 512 --heads 8 --vocab 1024 --seq 128 --cluster local:2 --policy ddp"}) {
    SCOPED_TRACE(flags);
    const ScratchFolder folder("simulate");
    const CliResult planned = weft_cli(std::string("plan --json --out ") + folder.path() + " " + flags);
    ASSERT_EQ(planned.code, kOk) << planned.err;
    const nlohmann::json before = nlohmann::json::parse(planned.out), after = simulated(folder.file("plan.json"));
    EXPECT_TRUE(after.at("safe").get<bool>());
    EXPECT_EQ(after.at("bound_s"), before.at("bound_s"));
    EXPECT_EQ(after.at("policies"), before.at("policies"));  // step, accounting, memory: all of it
  }
}

// Makes every transfer of a role block computation, as somebody would with an editor.
void make_blocking(const std::string& file, const std::string& role) {
  std::istringstream before(read_text_file(file));
  std::string after;
  for (std::string line; std::getline(before, line);) {
    if (contains(line, "\"role\":\"" + role + "\"") && !contains(line, "\"blocking\":true")) {
      line.insert(line.rfind('}'), ",\"blocking\":true");
    }
    after += line + "\n";
  }
  std::ofstream(file) << after;
}

TEST(Simulate, ATransferThatIsMadeBlockingIsNoLongerHidden) {
  const ScratchFolder folder("simulate_blocking");
  ASSERT_EQ(weft_cli(kSmall + " --out " + folder.path()).code, kOk);
  const std::string plan = folder.file("plan.json");
  const nlohmann::json before = simulated(plan).at("policies").at("ddp");
  make_blocking(plan, "grad_reduce");
  const nlohmann::json after = simulated(plan).at("policies").at("ddp");
  EXPECT_GT(after.at("step_s").get<double>(), before.at("step_s").get<double>());
  // Nothing computes beside a blocking transfer: the reductions are exposed for all of their time.
  EXPECT_GT(after.at("exposed_by_kind").at("dp_grad").get<double>(),
            before.at("exposed_by_kind").at("dp_grad").get<double>());
  EXPECT_EQ(after.at("slowdown_s").get<double>(), 0);
  EXPECT_EQ(after.at("compute_s"), before.at("compute_s"));
}

TEST(Simulate, AnUnsafePlanIsReportedAsVerifyDoes) {
  const ScratchFolder folder("simulate_unsafe");
  ASSERT_EQ(weft_cli(kSmall + " --out " + folder.path()).code, kOk);
  // The update is never issued: its block leaves the order.
  nlohmann::ordered_json plan = nlohmann::ordered_json::parse(read_text_file(folder.file("plan.json")));
  plan["classes"][0]["order"].erase(plan["classes"][0]["order"].size() - 1);
  const std::string file = folder.write("changed.json", plan.dump());
  for (const char* json : {"", " --json"}) {
    const CliResult verified = weft_cli("verify " + file + json), result = weft_cli("simulate " + file + json);
    EXPECT_EQ(result.code, kAnswerIsNo) << result.out << result.err;
    EXPECT_EQ(result.out, verified.out);
  }
}

TEST(Simulate, APlanThatDoesNotFitIsSimulatedAndTheAnswerIsNo) {
  const ScratchFolder folder("simulate_large");
  ASSERT_EQ(weft_cli("plan --model llama2-7b --cluster dgx-a100:1 --policy ddp --out " + folder.path()).code,
            kAnswerIsNo);
  const CliResult result = weft_cli("simulate " + folder.file("plan.json"));
  EXPECT_EQ(result.code, kAnswerIsNo);
  EXPECT_PRED2(contains, result.out, "Does not fit: stage 0 needs");
  EXPECT_PRED2(contains, result.out, "--zero 1");
}

TEST(Simulate, ExplainsAndWritesTheTraceAndLeavesThePlanAlone) {
  const ScratchFolder folder("simulate_out");
  ASSERT_EQ(weft_cli(kSmall + " --out " + folder.path()).code, kOk);
  const std::string plan = read_text_file(folder.file("plan.json")), trace = read_text_file(folder.file("trace.json"));
  std::filesystem::remove(folder.file("trace.json"));
  const CliResult result = weft_cli("simulate " + folder.file("plan.json") + " --explain --out " + folder.path());
  EXPECT_EQ(result.code, kOk) << result.err;
  EXPECT_PRED2(contains, result.out, "What is exposed");
  EXPECT_EQ(read_text_file(folder.file("plan.json")), plan);
  EXPECT_EQ(read_text_file(folder.file("trace.json")), trace);
  EXPECT_PRED2(contains, weft_cli("simulate --explain-full " + folder.file("plan.json")).out, "Communication of ddp");
}

TEST(Simulate, AFileThatIsNoPlanIsBadInput) {
  const ScratchFolder folder("simulate_noplan");
  EXPECT_EQ(weft_cli("simulate").code, kBadInput);
  EXPECT_EQ(weft_cli("simulate " + folder.file("absent.json")).code, kBadInput);
  EXPECT_EQ(weft_cli("simulate " + folder.write("plan.json", "{}")).code, kBadInput);
}

}  // namespace
}  // namespace weft
