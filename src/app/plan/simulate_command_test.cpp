// `weft simulate`: a saved plan has the step that `weft plan` gave it; a changed one has another, or is refused.
#include <fmt/format.h>
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

// Whatever constants a plan was made with, its file has them by value: nothing has to be said again.
TEST(Simulate, TheFileKnowsWhatItsTimeDependsOn) {
  const ScratchFolder folder("simulate_conditions");
  const std::string links = folder.write("links.json", R"({"weft_links": 1, "collectives": [
      {"collective": "all_reduce", "members": 8, "bytes": [1024, 1048576, 1073741824], "bus_gb_per_s": [0.05, 40, 150]},
      {"collective": "all_gather", "members": 16, "per_node": 8, "bytes": [1073741824], "bus_gb_per_s": [18]}]})");
  const std::string profile = folder.write("profile.json", R"({"weft_profile": 1,
      "devices": {"a100-80": {"matrix_efficiency": 0.123456789, "launch_us": 7.003}},
      "links": {"nvlink": {"efficiency": 0.77}}})");
  const std::string gpt2 = "--model gpt2 --cluster dgx-a100:2 --global-batch 32 ";
  for (const std::string& flags :
       {gpt2 + "--zero 1 --policy ddp --framework nanotron", gpt2 + "--zero 3 --policy fsdp --framework deepspeed",
        gpt2 + "--policy ddp --cuda-graphs full",
        gpt2 + "--tp 4 --policy megatron-param --framework nemo --cuda-graphs layer",
        gpt2 + "--zero 1 --policy ddp --links " + links, gpt2 + "--policy ddp --nccl model --power-cap 300",
        gpt2 + "--tp 4 --policy priority --movers auto",
        gpt2 + "--tp 4 --sequence-parallel --policy megatron-grad --tp-comm-overlap",
        gpt2 + "--policy ddp --profile " + profile,
        gpt2 + "--policy ddp --framework nanotron --profile " + profile + " --power-cap 350 --cuda-graphs layer"}) {
    SCOPED_TRACE(flags);
    const CliResult planned = weft_cli("plan --json --out " + folder.path() + " " + flags);
    ASSERT_EQ(planned.code, kOk) << planned.err;
    const nlohmann::json before = nlohmann::json::parse(planned.out), after = simulated(folder.file("plan.json"));
    EXPECT_EQ(after.at("bound_s"), before.at("bound_s"));
    EXPECT_EQ(after.at("policies"), before.at("policies"));
    EXPECT_LT(read_text_file(folder.file("plan.json")).find("\"classes\""), 20'000U);  // what comes before it is small
  }
}

TEST(Simulate, SaysWhereTheConstantsInTheFileAreFrom) {
  const ScratchFolder folder("simulate_origin");
  ASSERT_EQ(weft_cli(kSmall + " --framework nanotron --out " + folder.path()).code, kOk);
  const std::string plan = folder.file("plan.json");
  EXPECT_TRUE(contains(weft_cli("simulate " + plan).out, "--framework nanotron"));
  // A file of an older weft does not have them.
  nlohmann::ordered_json older = nlohmann::ordered_json::parse(read_text_file(plan));
  older.erase("conditions");
  std::ofstream(plan) << older.dump();
  EXPECT_TRUE(contains(weft_cli("simulate " + plan).out, "does not say what its times depend on"));
}

// nanotron's own memory is a part of what a device must have, for the verifier as for everybody else.
TEST(Simulate, VerifyCountsTheFrameworksMemory) {
  const ScratchFolder folder("verify_framework");
  const CliResult planned = weft_cli(kSmall + " --framework nanotron --json --out " + folder.path());
  ASSERT_EQ(planned.code, kOk) << planned.err;
  const nlohmann::json policy = nlohmann::json::parse(planned.out).at("policies").at("ddp");
  const double needed = policy.at("memory_peak_bytes").get<double>() / (1 << 30);
  const std::string verify = "verify " + folder.file("plan.json") + " --memory ";
  EXPECT_EQ(weft_cli(verify + fmt::format("{}", 1.001 * needed)).code, kOk);
  const CliResult refused = weft_cli(verify + fmt::format("{}", 0.999 * needed));
  EXPECT_EQ(refused.code, kAnswerIsNo);
  EXPECT_TRUE(contains(refused.out, "nanotron")) << refused.out;
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
