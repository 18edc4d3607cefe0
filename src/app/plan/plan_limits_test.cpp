// What `weft` promises beside the other policies when memory or the budget of its search is short.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "app/test_cli.hpp"

namespace weft {
namespace {

// Fits wherever another does, and is then not slower than any that fits; where none fits, not slower than any.
void expect_weft_keeps_its_promise(const nlohmann::json& policies, const std::string& flags) {
  const nlohmann::json& own = policies.at("weft");
  for (const auto& [name, other] : policies.items()) {
    EXPECT_TRUE(own.at("fits").get<bool>() || !other.at("fits").get<bool>()) << name << " fits: " << flags;
    if (own.at("fits") != other.at("fits")) continue;
    EXPECT_LE(own.at("step_s").get<double>(), other.at("step_s").get<double>() * (1 + 1e-9)) << name << ": " << flags;
  }
}

TEST(PlanLimits, WeftIsNotSlowerThanOthersWhereAllFitSomeFitAndNoneFits) {
  std::mt19937_64 random(3);
  const auto one_of = [&](const std::vector<std::string>& options) { return options[random() % options.size()]; };
  int none_fits = 0, some_fit = 0;
  for (int round = 0; round < 12; ++round) {
    const std::string layers = " --layers " + one_of({"2", "3"});
    const std::string memory = one_of({"0.01", "0.05", "0.1", "0.2", "0.4"});
    const std::string layout = one_of({"--zero 3", "--zero 2 --tp 2", "--tp 2 --sequence-parallel --zero 1",
                                       "--pp 2 --schedule gpipe", "--pp 2 --zero 1", "--tp 2 --pp 2 --zero 3"});
    const std::string flags =
        "plan --json --hidden 512 --heads 8 --vocab 8192 --seq 256 --cluster dgx1-v100:2,gpus=4 " + layout + layers +
        " --micro-batch " + one_of({"1", "4"}) + " --global-batch " + one_of({"32", "128", "256"}) + " --memory " +
        memory + " --budget " + one_of({"0", "0.02", "0.1"});
    const CliResult result = weft_cli(flags);
    ASSERT_LE(result.code, kAnswerIsNo) << flags << "\n" << result.err;
    const nlohmann::json policies = nlohmann::json::parse(result.out).at("policies");
    expect_weft_keeps_its_promise(policies, flags);
    const auto fitting = std::count_if(policies.begin(), policies.end(),
                                       [](const nlohmann::json& p) { return p.at("fits").get<bool>(); });
    EXPECT_EQ(result.code, fitting == 0 ? kAnswerIsNo : kOk) << flags;
    none_fits += fitting == 0 ? 1 : 0;
    some_fit += fitting > 0 ? 1 : 0;
  }
  EXPECT_GE(none_fits, 3);
  EXPECT_GE(some_fit, 3);
}

TEST(PlanLimits, WithoutABudgetWeftIsTheBestOfTheOthers) {
  for (const char* flags :
       {"--model gpt2 --cluster dgx-h100:1", "--model gpt2 --cluster dgx-h100:1 --tp 2 --pp 2 --zero 1"}) {
    const CliResult result = weft_cli(fmt::format("plan --json --budget 0 {} --global-batch 16", flags));
    ASSERT_EQ(result.code, kOk) << result.err;
    const nlohmann::json policies = nlohmann::json::parse(result.out).at("policies");
    double best = 1e300;
    for (const auto& [name, policy] : policies.items()) {
      if (name != "weft") best = std::min(best, policy.at("step_s").get<double>());
    }
    EXPECT_NEAR(policies.at("weft").at("step_s").get<double>() / best, 1, 1e-9) << flags;
  }
}

// A step of 12 micro-batches is neither simulated whole by the search nor extrapolated.
TEST(PlanLimits, WeftFitsWhereAnotherPolicyFits) {
  for (const char* const flags : {"--pp 2 --zero 3 --global-batch 24 --memory 19.2",
                                  "--pp 2 --zero 3 --schedule gpipe --global-batch 128 --recompute full --memory 24"}) {
    SCOPED_TRACE(flags);
    const CliResult result = weft_cli(
        std::string("plan --json --model llama2-7b --cluster dgx-a100:1 --seq 1024 --policy serial,weft ") + flags);
    ASSERT_EQ(result.code, kOk) << result.err;
    const nlohmann::json policies = nlohmann::json::parse(result.out).at("policies");
    ASSERT_TRUE(policies.at("serial").at("fits").get<bool>());
    EXPECT_TRUE(policies.at("weft").at("fits").get<bool>());
    EXPECT_LE(policies.at("weft").at("step_s").get<double>(), policies.at("serial").at("step_s").get<double>());
  }
}

}  // namespace
}  // namespace weft
