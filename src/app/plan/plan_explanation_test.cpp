// `weft plan --explain`: it agrees with the accounting it explains, and what it says would help does.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "app/cli.hpp"
#include "app/test_cli.hpp"
#include "planner/policy/policy.hpp"

namespace weft {
namespace {

constexpr const char* kCases[] = {
    "--model gpt2 --cluster dgx-a100:1 --tp 4 --dp 2 --global-batch 16",
    "--model llama2-7b --cluster dgx-a100:2 --tp 4 --pp 2 --global-batch 16 --clip-grad 1 --zero 1",
    "--model llama2-7b --cluster dgx-a100:2,nic=100Gb/s --global-batch 32 --zero 3",
    "--model gpt2-s-moe --cluster p4de:2 --ep 16 --seq 512 --global-batch 32",
    "--layers 4 --hidden 512 --heads 8 --vocab 1024 --seq 128 --cluster local:2,nic=200Mb/s"};

nlohmann::json explained(const std::string& flags) {
  const CliResult result = weft_cli("plan --json --explain " + flags);
  EXPECT_EQ(result.code, kOk) << result.err;
  return nlohmann::json::parse(result.out);
}

double sum_of(const nlohmann::json& list, const char* key) {
  double sum = 0;
  for (const nlohmann::json& entry : list) sum += entry.at(key).get<double>();
  return sum;
}

TEST(PlanExplanation, AddsUpToTheAccounting) {
  for (const char* flags : kCases) {
    SCOPED_TRACE(flags);
    const nlohmann::json json = explained(std::string(flags) + " --policy serial,ddp,priority");
    for (const auto& [name, policy] : json.at("policies").items()) {
      const nlohmann::json& all = policy.at("explanation").at("communication");
      EXPECT_NEAR(sum_of(all, "exposed_s"), policy.at("exposed_comm_s").get<double>(), 1e-12);
      EXPECT_NEAR(sum_of(all, "exposed_s") + sum_of(all, "hidden_s"), policy.at("comm_s").get<double>(), 1e-12);
      std::map<std::string, double> by_traffic;
      for (const nlohmann::json& transfer : all) {
        EXPECT_NEAR(sum_of(transfer.at("exposed_because"), "seconds"), transfer.at("exposed_s").get<double>(), 1e-12);
        EXPECT_NEAR(sum_of(transfer.at("hidden_behind"), "seconds"), transfer.at("hidden_s").get<double>(), 1e-12);
        by_traffic[transfer.at("traffic").get<std::string>()] += transfer.at("exposed_s").get<double>();
      }
      for (const auto& [kind, seconds] : policy.at("exposed_by_kind").items()) {
        EXPECT_NEAR(by_traffic[kind], seconds.get<double>(), 1e-12) << kind;
      }
      // Means over ranks are made of the stages.
      double exposed = 0, ranks = 0;
      for (const nlohmann::json& stage : policy.at("explanation").at("stages")) {
        exposed += stage.at("ranks").get<double>() * sum_of(stage.at("communication"), "exposed_s");
        ranks += stage.at("ranks").get<double>();
      }
      EXPECT_NEAR(exposed / ranks, policy.at("exposed_comm_s").get<double>(), 1e-12);
    }
  }
}

TEST(PlanExplanation, IsOfTheBestPolicyWhereNoneIsNamed) {
  const nlohmann::json json = explained(kCases[0]);
  int found = 0;
  for (const auto& [name, policy] : json.at("policies").items()) found += policy.contains("explanation") ? 1 : 0;
  EXPECT_EQ(found, 1);
  EXPECT_TRUE(json.at("policies").at(json.at("best").get<std::string>()).contains("explanation"));
}

TEST(PlanExplanation, NamesTheThreeLargestExposures) {
  for (const char* flags : kCases) {
    SCOPED_TRACE(flags);
    const nlohmann::json json = explained(std::string(flags) + " --policy serial");
    const nlohmann::json& policy = json.at("policies").at("serial");
    const nlohmann::json& largest = policy.at("explanation").at("largest");
    std::vector<double> all;
    for (const nlohmann::json& t : policy.at("explanation").at("communication")) {
      if (t.at("exposed_s").get<double>() > 0) all.push_back(t.at("exposed_s").get<double>());
    }
    std::sort(all.rbegin(), all.rend());
    ASSERT_EQ(largest.size(), std::min<std::size_t>(3, all.size()));
    for (std::size_t i = 0; i < largest.size(); ++i) {
      EXPECT_EQ(largest[i].at("exposed_s").get<double>(), all[i]);
      // Serial plans wait for every transfer: without one, the step is shorter by what it exposes, or by more where
      // other ranks waited too.
      EXPECT_LT(largest[i].at("step_without_s").get<double>(), policy.at("step_s").get<double>());
    }
  }
}

// The oracle is the command line itself, given the change.
TEST(PlanExplanation, WhatItNamesShortensTheStepAsItSays) {
  int tried = 0;
  for (const char* flags : kCases) {
    const nlohmann::json json = explained(std::string(flags) + " --policy ddp");
    const nlohmann::json& policy = json.at("policies").at("ddp");
    for (const nlohmann::json& exposure : policy.at("explanation").at("largest")) {
      for (const nlohmann::json& remedy : exposure.at("remedies")) {
        EXPECT_LT(remedy.at("step_s").get<double>(), policy.at("step_s").get<double>());
        const auto change = remedy.at("change").get<std::string>();
        if (!change.starts_with("--")) continue;
        SCOPED_TRACE(std::string(flags) + " " + change);
        if (change.starts_with("--tp") || change.starts_with("--zero")) {
          continue;  // the case gives these itself
        }
        const bool other_policy = change.starts_with("--policy");
        if (other_policy && searches(split(change, ' ')[1])) continue;  // tried with less time than the command takes
        const CliResult result =
            weft_cli("plan --json " + std::string(flags) + " " + change + (other_policy ? "" : " --policy ddp"));
        ASSERT_EQ(result.code, kOk) << result.err;
        const nlohmann::json again = nlohmann::json::parse(result.out);
        EXPECT_DOUBLE_EQ(again.at("policies").begin().value().at("step_s").get<double>(),
                         remedy.at("step_s").get<double>());
        ++tried;
      }
    }
  }
  EXPECT_GT(tried, 3);
}

// Likewise. The head of 128,000 words takes as long as two layers.
TEST(PlanExplanation, WhatItNamesAgainstABubbleShortensTheStepAsItSays) {
  const std::string flags = "--model llama3-8b --cluster dgx-h100:1 --tp 2 --pp 4 --global-batch 16 --seq 2048";
  const auto step = [](const nlohmann::json& json) {
    return json.at("policies").at("priority").at("step_s").get<double>();
  };
  const nlohmann::json json = explained(flags + " --policy priority");
  const nlohmann::json& remedies = json.at("policies").at("priority").at("explanation").at("against_bubble");
  std::string changes;
  for (const nlohmann::json& remedy : remedies) {
    const auto change = remedy.at("change").get<std::string>();
    SCOPED_TRACE(change);
    changes += change + "\n";
    EXPECT_LT(remedy.at("step_s").get<double>(), step(json));
    const CliResult result = weft_cli("plan --json " + flags + " --policy priority " + change);
    ASSERT_EQ(result.code, kOk) << result.err;
    EXPECT_DOUBLE_EQ(step(nlohmann::json::parse(result.out)), remedy.at("step_s").get<double>());
  }
  EXPECT_PRED2(contains, changes, "--stage-layers ");
  EXPECT_PRED2(contains, changes, "--schedule ");
  // What a change takes away is among its words.
  const nlohmann::json given = explained(flags + " --policy priority --stage-layers 9,9,8,6 --warm-up-depth 4");
  for (const nlohmann::json& remedy : given.at("policies").at("priority").at("explanation").at("against_bubble")) {
    const auto change = remedy.at("change").get<std::string>();
    if (!contains(change, "--schedule")) continue;
    EXPECT_PRED2(contains, change, "(no --warm-up-depth)");
    EXPECT_EQ(contains(change, "--vpp"), contains(change, "(no --stage-layers)")) << change;
  }
  const nlohmann::json without = explained("--model gpt2 --cluster dgx-a100:1 --global-batch 16 --policy priority");
  EXPECT_TRUE(without.at("policies").at("priority").at("explanation").at("against_bubble").empty());
}

// Likewise, of the layers that have room.
TEST(PlanExplanation, WhatItNamesAgainstRecomputationShortensTheStepAsItSays) {
  const std::string flags =
      "--model llama3-8b --cluster dgx-a100:1 --pp 8 --micro-batch 1 --global-batch 16 --seq 8192 --policy priority";
  const auto policy = [](const nlohmann::json& json) { return json.at("policies").at("priority"); };
  const nlohmann::json own = policy(explained(flags + " --memory 40 --recompute full"));
  const nlohmann::json& remedies = own.at("explanation").at("against_recomputation");
  ASSERT_EQ(remedies.size(), 1);  // without recomputation it does not fit
  const auto change = remedies.front().at("change").get<std::string>();
  EXPECT_PRED2(contains, change, "--recompute-layers ");
  const CliResult result = weft_cli("plan --json " + flags + " --memory 40 --recompute full " + change);
  ASSERT_EQ(result.code, kOk) << result.err;
  const nlohmann::json changed = policy(nlohmann::json::parse(result.out));
  EXPECT_TRUE(changed.at("fits").get<bool>());
  EXPECT_DOUBLE_EQ(changed.at("step_s").get<double>(), remedies.front().at("step_s").get<double>());
  EXPECT_LT(changed.at("step_s").get<double>(), own.at("step_s").get<double>());
  EXPECT_TRUE(policy(explained(flags)).at("explanation").at("against_recomputation").empty());
}

void expect_hundred_columns(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
}

TEST(PlanExplanation, FullTextFitsHundredColumns) {
  for (const char* flags : kCases) {
    const CliResult result = weft_cli("plan --explain-full " + std::string(flags));
    ASSERT_EQ(result.code, kOk) << result.err;
    const std::size_t begin = result.out.find("Communication of ");
    ASSERT_NE(begin, std::string::npos);
    expect_hundred_columns(result.out.substr(begin));
    EXPECT_TRUE(contains(result.out, "The largest exposures")) << result.out;
  }
}

TEST(PlanExplanation, IsOneScreenForOnePolicyAndForSeveral) {
  for (const char* flags : kCases) {
    for (const char* policies : {" --policy serial", " --policy serial,ddp,megatron,fsdp,priority"}) {
      SCOPED_TRACE(std::string(flags) + policies);
      const CliResult result = weft_cli("plan --explain " + std::string(flags) + policies);
      ASSERT_EQ(result.code, kOk) << result.err;
      expect_hundred_columns(result.out);
      EXPECT_LE(std::count(result.out.begin(), result.out.end(), '\n'), 45) << result.out;
      for (const char* part : {"What is exposed", "Why\n", "What to do", "Bound "}) {
        EXPECT_PRED2(contains, result.out, part) << result.out;
      }
    }
  }
}

TEST(PlanExplanation, UsesTheNamesOfTheFrameworks) {
  const auto named = [](const std::string& flags, const std::string& name) {
    const CliResult result = weft_cli("plan --explain --policy serial " + flags);
    EXPECT_PRED2(contains, result.out, name) << result.out;
  };
  named(kCases[0], "gradient all-reduce (DDP)");
  named(kCases[0], "TP all-reduce at MLP fc2 (RowParallelLinear) fwd");
  named(std::string(kCases[0]) + " --sequence-parallel", "TP all-gather at QKV (ColumnParallelLinear)");
  named(kCases[1], "gradient reduce-scatter (distributed optimizer)");
  named(kCases[2], "parameter all-gather (FSDP)");
  named(kCases[3], "expert all-to-all (dispatch)");
}

// Four nodes; the adapter of node 3 has a quarter of the others' speed.
constexpr const char* kSlowNode = R"({"name": "slow", "device": "a100-80", "nodes": 4, "devices_per_node": 8,
  "levels": [{"name": "nvlink", "joins": "node", "bandwidth": "300GB/s", "latency": "1us"},
             {"name": "nic", "joins": "cluster", "bandwidth": "200Gb/s", "latency": "5us"}],
  "overrides": [{"node": 3, "level": "nic", "bandwidth": "50Gb/s"}]})";

TEST(PlanExplanation, NamesTheSlowNodeAndWhatMendsIt) {
  const ScratchFolder folder("slow_node");
  const std::string cluster = folder.write("slow.json", kSlowNode);
  const std::string flags = " --model gpt2 --global-batch 64 --policy ddp";
  const CliResult text = weft_cli("plan --explain --cluster " + cluster + flags);
  ASSERT_EQ(text.code, kOk) << text.err;
  EXPECT_PRED2(contains, text.out, "nic of stage 0 on node 3 as fast as the others (25 GB/s a link)") << text.out;
  // The step it promises is that of the cluster without a slow node.
  const nlohmann::json slow = explained("--cluster " + cluster + flags);
  std::string whole(kSlowNode);
  whole.replace(whole.find("50Gb/s"), 6, "200Gb/s");
  const nlohmann::json mended = explained("--cluster " + folder.write("whole.json", whole) + flags);
  const double step = mended.at("policies").at("ddp").at("step_s").get<double>();
  bool found = false;
  for (const nlohmann::json& remedy :
       slow.at("policies").at("ddp").at("explanation").at("largest").at(0).at("remedies")) {
    if (!contains(remedy.at("change"), "node 3")) continue;
    found = true;
    EXPECT_NEAR(remedy.at("step_s").get<double>() / step, 1, 1e-3);
  }
  EXPECT_TRUE(found);
}

TEST(PlanExplanation, IsNotForSweeps) {
  const CliResult result = weft_cli(std::string("plan --explain ") + kCases[0] + " --sweep zero=0,1");
  EXPECT_EQ(result.code, kBadInput);
  EXPECT_TRUE(contains(result.err, "--explain")) << result.err;
}

}  // namespace
}  // namespace weft
