// What `weft plan` prints and writes.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "app/commands.hpp"
#include "app/files.hpp"
#include "app/test_cli.hpp"
#include "app/test_stages.hpp"
#include "io/timeline_json.hpp"
#include "timeline/accounting.hpp"

namespace weft {
namespace {

nlohmann::json plan_json(const std::string& flags) {
  const CliResult result = weft_cli("plan --json " + flags);
  EXPECT_EQ(result.code, kOk) << result.err;
  EXPECT_TRUE(result.err.empty()) << result.err;
  return nlohmann::json::parse(result.out);
}

TEST(PlanJson, HasTheKeysThatOtherToolsRead) {
  const nlohmann::json json =
      plan_json("--model llama2-70b --cluster dgx-a100:8 --tp 8 --pp 4 --dp 2 --global-batch 16 --seq 4096 --zero 1");
  EXPECT_EQ(json.at("model").at("parameters"), 68976648192);
  EXPECT_EQ(json.at("cluster").at("devices"), 64);
  EXPECT_EQ(json.at("layout").at("tp"), 8);
  EXPECT_TRUE(json.at("policies").contains(json.at("best").get<std::string>()));
  const nlohmann::json& policy = json.at("policies").at("serial");
  for (const char* key :
       {"step_s", "compute_s", "slowdown_s", "comm_s", "exposed_comm_s", "hidden_pct", "bubble_s", "idle_s", "bound_s",
        "gap_to_bound_pct", "tokens_per_s", "tflops_per_gpu", "mfu", "hfu", "memory_peak_bytes"}) {
    EXPECT_TRUE(policy.at(key).is_number()) << key;
  }
  for (const char* key : {"dp_grad", "param_gather", "tp", "pp", "cp", "ep"}) {
    EXPECT_TRUE(policy.at("exposed_by_kind").at(key).is_number()) << key;
  }
  EXPECT_TRUE(policy.at("fits").is_boolean());
  EXPECT_TRUE(policy.at("max").is_object());
}

TEST(PlanJson, TheAccountingAddsUpAndTheBoundIsBelow) {
  for (const char* flags :
       {"--model gpt2 --cluster dgx-a100:1 --dp 8 --global-batch 16",
        "--model llama2-7b --cluster dgx-a100:2 --tp 4 --pp 2 --global-batch 16 --clip-grad 1",
        "--model gpt2-s-moe --cluster p4de:2 --ep 16 --seq 512 --global-batch 32",
        "--layers 4 --hidden 512 --heads 8 --vocab 1024 --seq 128 --cluster local:2,nic=200Mb/s --zero 3"}) {
    const nlohmann::json json = plan_json(flags);
    const nlohmann::json& p = json.at("policies").at("serial");
    const double sum = p.at("compute_s").get<double>() + p.at("slowdown_s").get<double>() +
                       p.at("exposed_comm_s").get<double>() + p.at("bubble_s").get<double>() +
                       p.at("idle_s").get<double>();
    EXPECT_NEAR(sum / p.at("step_s").get<double>(), 1.0, 1e-9) << flags;
    // The chain that decides the step covers all of it.
    const nlohmann::json& path = p.at("critical_path");
    double chain = path.at("compute_s").get<double>() + path.at("waiting_s").get<double>();
    for (const auto& [kind, seconds] : path.at("transfer_s").items()) chain += seconds.get<double>();
    EXPECT_NEAR(chain / p.at("step_s").get<double>(), 1.0, 1e-9) << flags;
    EXPECT_LT(path.at("waiting_s").get<double>(), 1e-3 * p.at("step_s").get<double>()) << flags;
    EXPECT_LE(json.at("bound_s").get<double>(), p.at("step_s").get<double>() * (1 + 1e-9)) << flags;
    EXPECT_NEAR(p.at("gap_to_bound_pct").get<double>(),
                100 * (p.at("step_s").get<double>() / json.at("bound_s").get<double>() - 1), 1e-9);
  }
}

TEST(PlanJson, EveryStageAddsUpToTheStepAndAllOfThemToTheMeansAndMaxima) {
  for (const char* flags : {"--model gpt2 --cluster dgx-a100:2 --tp 2 --pp 4 --zero 1 --global-batch 16 --clip-grad 1",
                            "--model gpt2 --cluster dgx-a100:1 --pp 2 --vpp 3 --global-batch 16",
                            "--model gpt2-s-moe --cluster p4de:2 --ep 8 --pp 2 --seq 512 --global-batch 32",
                            "--model gpt2 --cluster dgx-a100:1,gpus=1"}) {
    const nlohmann::json json = plan_json(flags);
    for (const auto& [name, policy] : json.at("policies").items()) {
      EXPECT_EQ(policy.at("stages").size(), policy.at("memory").size()) << flags;
      test::expect_whole_stages(policy, json.at("cluster").at("devices").get<std::int64_t>(),
                                name + std::string(" ") + flags);
    }
  }
}

TEST(PlanJson, ComparesThePoliciesNamedUnderTheNamesTyped) {
  const std::string flags = "--model gpt2 --cluster dgx-a100:2 --zero 1 --global-batch 16 ";
  const nlohmann::json all = plan_json(flags).at("policies");
  for (const char* name : {"serial", "ddp", "megatron-dist", "megatron-grad", "megatron-param"}) {
    EXPECT_TRUE(all.contains(name)) << name;
  }
  const nlohmann::json two = plan_json(flags + "--policy megatron,ddp").at("policies");
  EXPECT_EQ(two.size(), 2u);
  EXPECT_EQ(two.at("megatron"), all.at("megatron-param"));
  EXPECT_EQ(two.at("ddp"), all.at("ddp"));
  EXPECT_LT(two.at("megatron").at("step_s").get<double>(), all.at("serial").at("step_s").get<double>());
}

TEST(PlanJson, BucketSizesReachThePolicies) {
  const std::string flags = "--model gpt2 --cluster dgx-a100:2 --zero 1 --global-batch 16 --policy megatron-dist,";
  // One bucket that holds all starts when backward has ended, as without overlap. A small one starts at once.
  const auto step = [&](const std::string& more, const std::string& policy) {
    return plan_json(flags + more).at("policies").at(policy).at("step_s").get<double>();
  };
  EXPECT_EQ(step("megatron-grad --bucket-size 1000000000", "megatron-grad"), step("ddp", "megatron-dist"));
  EXPECT_LT(step("megatron-grad --bucket-size 10000000", "megatron-grad"), step("ddp", "megatron-dist"));
  EXPECT_EQ(step("ddp --bucket-mib 10000", "ddp"), step("ddp", "megatron-dist"));
  EXPECT_LT(step("ddp --bucket-mib 25", "ddp"), step("ddp", "megatron-dist"));
}

TEST(PlanText, TellsTheSpeedUpOverTheFirstPolicyNamed) {
  const std::string plan = "plan --model gpt2 --cluster dgx-a100:2 --zero 1 --global-batch 16 --policy ";
  const CliResult one = weft_cli(plan + "megatron-param");
  EXPECT_PRED2(contains, one.out, "speed-up");
  EXPECT_PRED2(contains, one.out, "1.000 x");
  const nlohmann::json json = plan_json("--model gpt2 --cluster dgx-a100:2 --zero 1 --global-batch 16");
  const auto step = [&](const char* policy) { return json.at("policies").at(policy).at("step_s").get<double>(); };
  const CliResult two = weft_cli(plan + "megatron-param,serial");
  EXPECT_PRED2(contains, two.out, fmt::format("{:.3f} x", step("megatron-param") / step("serial")));
}

TEST(PlanJson, StageLayersThatArePredictedAreThoseOfThePlan) {
  const std::string flags =
      "--model llama3-8b --cluster dgx-h100:1 --pp 8 --global-batch 16 --seq 1024 --policy priority";
  const nlohmann::json chosen = plan_json(flags + " --stage-layers auto");
  const auto layers = chosen.at("layout").at("stage_layers").get<std::vector<std::int64_t>>();
  const auto step = [](const nlohmann::json& json) {
    return json.at("policies").at("priority").at("step_s").get<double>();
  };
  EXPECT_EQ(step(chosen), step(plan_json(flags + fmt::format(" --stage-layers {}", fmt::join(layers, ",")))));
  EXPECT_LT(step(chosen), 0.95 * step(plan_json(flags)));
  const CliResult swept = weft_cli("plan " + flags + " --sweep zero=0 --reduce-every auto");
  EXPECT_EQ(swept.code, kBadInput);
  EXPECT_PRED2(contains, swept.err, "--reduce-every auto: weft plan decides it");
}

TEST(PlanText, NamesTheScheduleOfPoliciesThatDoNotSearch) {
  const auto text = [](const std::string& flags) {
    return weft_cli("plan --model gpt2 --cluster dgx-a100:1 --pp 4 --global-batch 16 --seq 1024 --budget 0.05 " + flags)
        .out;
  };
  const std::string words = "Pipeline of policies that do not search: ";
  EXPECT_PRED2(contains, text("--policy ddp --schedule auto"), words + "1f1b\n");
  EXPECT_PRED2(contains, text("--policy ddp --schedule auto-loops --vpp 2"), words + "interleaved\n");
  EXPECT_PRED2(contains, text("--policy ddp --schedule auto-waves"), words + "zbv; Megatron-LM has interleaved");
  EXPECT_FALSE(contains(text("--policy ddp --schedule zbv"), words));
}

TEST(PlanJson, ChunksLieAsPredictedUnlessTheScheduleSaysIt) {
  const std::string job =
      "--model gpt2 --cluster dgx-a100:1 --pp 4 --global-batch 16 --seq 1024 --budget 0.05 --policy ";
  const nlohmann::json chosen = plan_json(job + "weft --schedule auto --vpp 2");
  const std::string schedule = chosen.at("layout").at("schedule");
  EXPECT_TRUE(schedule == "auto-waves" || schedule == "auto-loops") << schedule;
  EXPECT_PRED2(contains, chosen.at("chunk_placement").get<std::string>(), schedule + ": ");
  double shortest = INFINITY;
  for (const char* const named : {"auto-waves", "auto-loops"}) {
    const nlohmann::json json = plan_json(job + "weft --vpp 2 --schedule " + named);
    EXPECT_FALSE(json.contains("chunk_placement"));
    EXPECT_EQ(json.at("layout").at("schedule"), named);
    shortest = std::min(shortest, json.at("policies").at("weft").at("step_s").get<double>());
  }
  EXPECT_EQ(chosen.at("policies").at("weft").at("step_s"), shortest);
  // Without a search there is nothing to predict with, and more than two chunks lie in loops.
  const nlohmann::json named = plan_json(job + "priority --schedule auto --vpp 2");
  EXPECT_EQ(named.at("layout").at("schedule"), "auto-waves");
  EXPECT_FALSE(named.contains("chunk_placement"));
  EXPECT_EQ(plan_json(job + "priority --schedule auto --vpp 3").at("layout").at("schedule"), "auto-loops");
  const CliResult run = weft_cli("run --layers 4 --cluster local:2 --pp 2 --vpp 2 --schedule auto");
  EXPECT_EQ(run.code, kBadInput);
  EXPECT_PRED2(contains, run.err, "--schedule auto: with --vpp 2 weft plan decides where model chunks lie");
  const CliResult one_chunk = weft_cli("plan " + job + "weft --schedule auto-loops");
  EXPECT_EQ(one_chunk.code, kBadInput);
  EXPECT_PRED2(contains, one_chunk.err, "--schedule auto-loops: needs --vpp above 1");
}

TEST(PlanJson, FewestRecomputedLayersAreThoseOfThePlan) {
  const std::string flags =
      "--model llama3-8b --cluster dgx-a100:1 --pp 8 --micro-batch 1 --global-batch 16 --seq 8192 --recompute full "
      "--policy priority --memory ";
  const auto policy = [](const nlohmann::json& json) { return json.at("policies").at("priority"); };
  const auto peak = [&](const std::string& more) {
    return policy(plan_json(flags + more)).at("memory_peak_bytes").get<double>();
  };
  const double all = peak("80"), none = policy(plan_json(flags + "79 --recompute-layers auto")).at("memory_peak_bytes");
  ASSERT_LT(all, none);
  const std::string limit = fmt::format("{:.2f}", 0.5 * (all + none) / 1073741824.0);
  const nlohmann::json chosen = plan_json(flags + limit + " --recompute-layers auto");
  const auto layers = chosen.at("layout").at("recompute_layers").get<std::vector<std::int64_t>>();
  EXPECT_TRUE(policy(chosen).at("fits").get<bool>());
  EXPECT_GT(layers.front(), 0);
  EXPECT_EQ(layers.back(), 0);  // the last stage holds one micro-batch
  const nlohmann::json given = plan_json(flags + limit + fmt::format(" --recompute-layers {}", fmt::join(layers, ",")));
  EXPECT_EQ(policy(chosen).at("step_s"), policy(given).at("step_s"));
  EXPECT_LT(policy(chosen).at("step_s"), policy(plan_json(flags + limit)).at("step_s"));
  const CliResult run = weft_cli("run --layers 2 --cluster local:1 --recompute full --recompute-layers auto");
  EXPECT_EQ(run.code, kBadInput);
  EXPECT_PRED2(contains, run.err, "--recompute-layers auto: weft plan decides it");
  const CliResult nothing = weft_cli("plan --model gpt2 --cluster dgx-a100:1 --recompute-layers auto");
  EXPECT_EQ(nothing.code, kBadInput);
  EXPECT_PRED2(contains, nothing.err, "is for --recompute full or local, not none");
}

TEST(PlanJson, RecomputedLayersOfAFileGiveWayToWhatIsTyped) {
  const ScratchFolder folder("plan_recompute");
  const std::string file = folder.write("job.json", R"({"recompute": "full", "recompute-layers": "1"})");
  const std::string flags =
      "--model gpt2 --cluster dgx-a100:1 --pp 2 --global-batch 16 --policy serial --config " + file;
  EXPECT_EQ(plan_json(flags).at("layout").at("recompute_layers"), nlohmann::json({1}));
  const nlohmann::json none = plan_json(flags + " --recompute none");
  EXPECT_EQ(none.at("layout").at("recompute"), "none");
  EXPECT_FALSE(none.at("layout").contains("recompute_layers"));
  const CliResult stages = weft_cli("plan " + flags + " --recompute-layers 6,6 --stage-layers auto");
  EXPECT_EQ(stages.code, kBadInput);
  EXPECT_PRED2(contains, stages.err, "--stage-layers auto: is not for numbers of --recompute-layers by model chunk");
}

// More layers than were wished, and no more than fit.
TEST(PlanJson, WhatWouldFitRecomputesNoMoreLayersThanItMust) {
  const std::string flags =
      "--model llama3-8b --cluster dgx-a100:1 --micro-batch 1 --global-batch 16 --seq 8192 --policy priority "
      "--recompute full --memory 34 ";
  const CliResult result = weft_cli("plan --json " + flags + "--pp 8 --recompute-layers 1");
  ASSERT_EQ(result.code, kAnswerIsNo) << result.err;
  int fewer = 0;
  const nlohmann::json json = nlohmann::json::parse(result.out);
  for (const nlohmann::json& layout : json.at("would_fit").at("layouts")) {
    const auto changes = layout.at("flags").get<std::string>();
    const std::size_t layers = changes.find(" --recompute-layers ");
    if (layers == std::string::npos) continue;
    ++fewer;
    const nlohmann::json followed = plan_json(flags + changes).at("policies").at("priority");
    EXPECT_TRUE(followed.at("fits").get<bool>()) << changes;
    EXPECT_DOUBLE_EQ(followed.at("step_s").get<double>(), layout.at("step_s").get<double>()) << changes;
    const nlohmann::json all = plan_json(flags + changes.substr(0, layers)).at("policies").at("priority");
    EXPECT_LT(followed.at("step_s").get<double>(), all.at("step_s").get<double>()) << changes;
  }
  EXPECT_GE(fewer, 2) << result.out;
}

TEST(PlanJson, OneDeviceHasNothingToHide) {
  const nlohmann::json json = plan_json("--model gpt2 --cluster dgx-a100:1,gpus=1");
  EXPECT_TRUE(json.at("policies").at("serial").at("hidden_pct").is_null());
}

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

TEST(PlanText, AModelThatDoesNotFitIsTheAnswerNoWithWhatWouldHelp) {
  // 7 billion parameters at 18 bytes each are 113 GiB on every rank; sharding them over eight ranks helps.
  const std::string flags = "plan --model llama2-7b --cluster dgx-a100:1 --seq 2048 --policy serial,ddp,fsdp ";
  const CliResult result = weft_cli(flags);
  EXPECT_EQ(result.code, kAnswerIsNo);
  EXPECT_PRED2(contains, result.out, "Does not fit: stage 0 needs");
  EXPECT_PRED2(contains, result.out, "optimizer state");
  EXPECT_PRED2(contains, result.out, "What would fit");
  const CliResult json_result = weft_cli(flags + "--json");
  EXPECT_EQ(json_result.code, kAnswerIsNo);
  const nlohmann::json json = nlohmann::json::parse(json_result.out);
  EXPECT_FALSE(json.at("policies").at("serial").at("fits").get<bool>());
  // Each advice, followed, is as promised; other tp and pp are among them.
  const nlohmann::json& advice = json.at("would_fit");
  std::set<std::pair<int, int>> degrees;
  for (const nlohmann::json& layout : advice.at("layouts")) {
    const auto changes = layout.at("flags").get<std::string>();
    const auto policy = advice.at("policy").get<std::string>();
    const nlohmann::json followed = plan_json(
        "--model llama2-7b --cluster dgx-a100:1 --seq 2048 --global-batch 8 --policy " + policy + " " + changes);
    const nlohmann::json& plan = followed.at("policies").at(policy);
    EXPECT_TRUE(plan.at("fits").get<bool>()) << changes;
    EXPECT_EQ(plan.at("memory_peak_bytes"), layout.at("memory_peak_bytes")) << changes;
    EXPECT_DOUBLE_EQ(plan.at("step_s").get<double>(), layout.at("step_s").get<double>()) << changes;
    degrees.insert({followed.at("layout").at("tp").get<int>(), followed.at("layout").at("pp").get<int>()});
  }
  EXPECT_GE(degrees.size(), 3U);
  EXPECT_TRUE(degrees.contains({1, 1})) << "--zero 1 alone is enough";
}

// A device cannot hold the state of the whole model, but an eighth of it.
TEST(PlanText, WhereShardGroupsDoNotFitLargerOnesAreAdvised) {
  const std::string flags =
      "plan --json --model llama2-7b --cluster dgx-a100:1 --seq 2048 --global-batch 8 --zero 3 --policy serial ";
  const CliResult result = weft_cli(flags + "--zero-shards 1");
  EXPECT_EQ(result.code, kAnswerIsNo);
  std::vector<std::string> advice;
  const nlohmann::json json = nlohmann::json::parse(result.out);
  for (const nlohmann::json& layout : json.at("would_fit").at("layouts")) advice.push_back(layout.at("flags"));
  EXPECT_NE(std::find(advice.begin(), advice.end(), "--zero-shards 8"), advice.end());
  EXPECT_EQ(weft_cli(flags + "--zero-shards 8").code, kOk);
}

TEST(PlanText, WhatFitsNoLayoutOfAClusterSaysSo) {
  const CliResult result = weft_cli("plan --model gpt3-175b --cluster dgx-a100:1,gpus=1 --policy serial");
  EXPECT_EQ(result.code, kAnswerIsNo);
  EXPECT_PRED2(contains, result.out, "use more devices");
}

TEST(PlanText, OnePolicyThatFitsIsEnoughForExitCodeZero) {
  // `weft` fits where any does; the memory lies between what serial and fsdp need at ZeRO 3.
  const std::string flags = "--layers 4 --hidden 1024 --heads 8 --seq 512 --cluster dgx1-v100:1 --zero 3 --policy ";
  const nlohmann::json both = plan_json(flags + "serial,fsdp").at("policies");
  const double serial = both.at("serial").at("memory_peak_bytes").get<double>() / kGiB;
  const double fsdp = both.at("fsdp").at("memory_peak_bytes").get<double>() / kGiB;
  ASSERT_NE(serial, fsdp);
  const std::string between = " --memory " + std::to_string((serial + fsdp) / 2);
  EXPECT_EQ(weft_cli("plan " + flags + "serial,fsdp" + between).code, kOk);
  EXPECT_EQ(weft_cli("plan " + flags + (serial > fsdp ? "serial" : "fsdp") + between).code, kAnswerIsNo);
}

TEST(PlanMemory, SomeOfAGpuIsKeptForContextAndNccl) {
  const auto device_bytes = [](const std::string& flags) {
    const nlohmann::json json = plan_json("--model gpt2 --policy serial " + flags);
    return json.at("policies").at("serial").at("memory").at(0).at("device_bytes").get<std::int64_t>();
  };
  // 80 - (1.8 + 0.015 * 80) = 77 GiB, and 16 - (1.8 + 0.24) = 13.96 GiB.
  EXPECT_NEAR(static_cast<double>(device_bytes("--cluster dgx-a100:1")), 77.0 * kGiB, 2);
  EXPECT_NEAR(static_cast<double>(device_bytes("--cluster dgx1-v100:1,device=v100-16")), 13.96 * kGiB, 2);
  EXPECT_EQ(device_bytes("--cluster dgx-a100:1 --reserve 0"), 80 * kGiB);
  EXPECT_EQ(device_bytes("--cluster dgx-a100:1 --reserve 10"), 70 * kGiB);
  EXPECT_EQ(device_bytes("--cluster dgx-a100:1 --memory 79"), 79 * kGiB) << "all of what --memory says";
  EXPECT_EQ(weft_cli("plan --model gpt2 --cluster dgx-a100:1 --memory 79 --reserve 10").code, kBadInput);
  EXPECT_EQ(device_bytes("--cluster local:2"), device_bytes("--cluster local:2 --reserve 0"));
  EXPECT_EQ(weft_cli("plan --model gpt2 --cluster dgx-a100:1 --reserve 80").code, kBadInput);
}

TEST(PlanMemory, AboveNinetyFivePercentIsFlagged) {
  const std::string flags = "--model gpt2 --cluster dgx-a100:1 --policy serial ";
  const double peak = plan_json(flags).at("policies").at("serial").at("memory_peak_bytes").get<double>() / kGiB;
  const auto with_memory = [&](double gib) { return flags + "--memory " + std::to_string(gib); };
  EXPECT_TRUE(plan_json(with_memory(peak / 0.96)).at("policies").at("serial").at("tight").get<bool>());
  EXPECT_FALSE(plan_json(with_memory(peak / 0.94)).at("policies").at("serial").at("tight").get<bool>());
  EXPECT_PRED2(contains, weft_cli("plan " + with_memory(peak / 0.96)).out, "serial (96 % of memory)");
  EXPECT_FALSE(contains(weft_cli("plan " + with_memory(peak / 0.94)).out, "% of memory)"));
  const std::string sweep = " --sweep micro-batch=1 --json";
  EXPECT_TRUE(plan_json(with_memory(peak / 0.96) + sweep).at("sweep").at("rows").at(0).at("tight").get<bool>());
  EXPECT_FALSE(plan_json(with_memory(peak / 0.94) + sweep).at("sweep").at("rows").at(0).at("tight").get<bool>());
}

TEST(PlanText, AStepOfYearsIsRefusedInWords) {
  const CliResult result = weft_cli("plan --model gpt2 --hidden 100000000 --heads 10 --cluster dgx-a100:1");
  EXPECT_EQ(result.code, kBadInput);
  EXPECT_PRED2(contains, result.err, "days");
  EXPECT_FALSE(contains(result.err, "periods")) << result.err;
}

TEST(PlanFiles, AreWrittenOnlyWithOut) {
  const ScratchFolder folder("plan");
  const std::string small = "plan --model gpt2 --cluster dgx-a100:1 --tp 2 --pp 2 --global-batch 8";
  ASSERT_EQ(weft_cli(small).code, kOk);
  const CliResult result = weft_cli(small + " --out " + folder.file("a/b"));
  ASSERT_EQ(result.code, kOk) << result.err;
  EXPECT_PRED2(contains, result.out, "plan.json");
  const nlohmann::json trace = nlohmann::json::parse(read_text_file(folder.file("a/b/trace.json")));
  EXPECT_GT(trace.at("traceEvents").size(), 100U);
  EXPECT_EQ(weft_cli("verify " + folder.file("a/b/plan.json")).code, kOk);
  // The timeline that the figures come from.
  const std::string name = folder.file("a/b/timeline.json");
  const Timeline timeline = read_timeline_json(read_text_file(name), name).timeline;
  EXPECT_FALSE(timeline.measured);
  const nlohmann::json report = plan_json("--model gpt2 --cluster dgx-a100:1 --tp 2 --pp 2 --global-batch 8");
  const nlohmann::json best = report.at("policies").at(report.at("best").get<std::string>());
  const RankAccount mean = account(timeline).mean;
  EXPECT_NEAR(mean.step_s, best.at("step_s").get<double>(), 1e-9);
  EXPECT_NEAR(mean.exposed_s, best.at("exposed_comm_s").get<double>(), 1e-9);
  EXPECT_NEAR(mean.bubble_s, best.at("bubble_s").get<double>(), 1e-9);
}

TEST(PlanFiles, ThePictureShowsTheFirstPolicyAndTheBestOne) {
  const ScratchFolder folder("plan_picture");
  const std::string flags = "--model gpt2 --cluster dgx-a100:1 --tp 2 --global-batch 8 --policy serial";
  const std::string best = plan_json(flags + ",ddp,centauri").at("best").get<std::string>();
  ASSERT_NE(best, "serial");  // ddp hides at least a part of what serial exposes
  const CliResult result = weft_cli("plan " + flags + ",ddp,centauri --out " + folder.file("out"));
  ASSERT_EQ(result.code, kOk) << result.err;
  const std::string name = folder.file("out/step.svg");
  EXPECT_PRED2(contains, result.out, name);
  const std::string picture = read_text_file(name);
  for (const std::string policy : {"serial", "ddp", "centauri"}) {
    EXPECT_EQ(contains(picture, ">" + policy + ": "), policy == "serial" || policy == best) << policy;
  }
  ASSERT_EQ(weft_cli("plan " + flags + " --out " + folder.file("out")).code, kOk);
  EXPECT_FALSE(contains(read_text_file(name), "as fast"));
}

TEST(PlanFiles, OnlyTheBestPolicyIsTracedUnlessAllAreAskedFor) {
  const ScratchFolder folder("plan_traces");
  const std::string small = "plan --model gpt2 --cluster dgx-a100:1 --tp 2 --global-batch 8 --policy serial,centauri";
  const CliResult best = weft_cli(small + " --out " + folder.file("best"));
  ASSERT_EQ(best.code, kOk) << best.err;
  EXPECT_TRUE(std::filesystem::exists(folder.file("best/trace.json")));
  const bool is_serial = std::filesystem::exists(folder.file("best/plan-centauri.json"));
  const std::string other = is_serial ? "centauri" : "serial";
  EXPECT_TRUE(std::filesystem::exists(folder.file("best/plan-" + other + ".json")));
  EXPECT_FALSE(std::filesystem::exists(folder.file("best/trace-" + other + ".json")));
  EXPECT_PRED2(contains, best.out,
               std::string("The trace is that of ") + (is_serial ? "serial" : "centauri") +
                   "; --traces all writes one for every policy.");
  const CliResult all = weft_cli(small + " --traces all --out " + folder.file("all"));
  EXPECT_TRUE(std::filesystem::exists(folder.file("all/trace-" + other + ".json")));
  EXPECT_PRED2(contains, all.out, folder.file("all/trace-" + other + ".json"));
  EXPECT_FALSE(contains(all.out, "--traces"));
}

TEST(PlanFiles, ALongStepIsTracedInPartAndAnalyzeRefusesThePart) {
  const ScratchFolder folder("plan_window");
  const std::string command =
      "plan --model gpt2 --cluster dgx-a100:1 --tp 2 --global-batch 8 --policy serial --out " + folder.file("out");
  const CliResult part = weft_cli(command + " --trace-spans 300");
  ASSERT_EQ(part.code, kOk) << part.err;
  EXPECT_PRED2(contains, part.out, "--trace-spans all writes them all.");
  const std::string trace = folder.file("out/trace.json");
  EXPECT_EQ(nlohmann::json::parse(read_text_file(trace)).at("otherData").count("left_out"), 1U);
  const CliResult analyzed = weft_cli("analyze " + trace);
  EXPECT_EQ(analyzed.code, kBadInput);
  EXPECT_PRED2(contains, analyzed.err, "it leaves out a part of the step");
  EXPECT_PRED2(contains, analyzed.err, "--trace-spans all");
  ASSERT_EQ(weft_cli(command + " --trace-spans all").code, kOk);
  EXPECT_EQ(weft_cli("analyze " + trace).code, kOk);
}

// 24 layers of 16 micro-batches are some 30,000 operations: compressed, in place of the older plain one, and readable.
TEST(PlanFiles, ALargeTraceIsCompressedAndReadAgain) {
  const ScratchFolder folder("plan_gzip");
  const std::string out = folder.file("out"), trace = out + "/trace.json";
  const auto plan = [&](int micro_batches) {
    return weft_cli(
        "plan --model gpt2-medium --cluster dgx-a100:1 --tp 8 --micro-batch 1 --policy serial --global-batch " +
        std::to_string(micro_batches) + " --out " + out);
  };
  ASSERT_EQ(plan(1).code, kOk);
  EXPECT_TRUE(std::filesystem::exists(trace));
  const CliResult large = plan(128);
  ASSERT_EQ(large.code, kOk) << large.err;
  EXPECT_PRED2(contains, large.out, trace + ".gz");
  EXPECT_FALSE(std::filesystem::exists(trace));
  EXPECT_TRUE(std::filesystem::exists(trace + ".gz"));
  ASSERT_EQ(plan(1).code, kOk);
  EXPECT_FALSE(std::filesystem::exists(trace + ".gz"));
}

TEST(PlanFiles, WhatIsSaidOfTracesNeedsOut) {
  for (const char* flag : {"--traces all", "--trace-spans 10"}) {
    const CliResult result = weft_cli(std::string("plan --model gpt2 --cluster dgx-a100:1 ") + flag);
    EXPECT_EQ(result.code, kBadInput);
    EXPECT_PRED2(contains, result.err, "give --out");
  }
  const CliResult few = weft_cli("plan --model gpt2 --cluster dgx-a100:1 --out x --trace-spans 2");
  EXPECT_EQ(few.code, kBadInput);
  EXPECT_PRED2(contains, few.err, "--trace-spans");
}

TEST(PlanFiles, AFolderThatCannotBeMadeIsBadInputAndNothingIsLost) {
  const ScratchFolder folder("plan_out");
  const std::string file = folder.write("occupied", "text");
  const CliResult result = weft_cli("plan --model gpt2 --cluster dgx-a100:1 --out " + file + "/below");
  EXPECT_EQ(result.code, kBadInput);
  EXPECT_PRED2(contains, result.err, "occupied");
  EXPECT_EQ(read_text_file(file), "text");
}

TEST(PlanScale, TheSizeOfThePlanDoesNotGrowWithTheCluster) {
  const ScratchFolder folder("scale");
  const auto size = [&](int nodes) {
    const std::string out = folder.file("n" + std::to_string(nodes));
    EXPECT_EQ(weft_cli("plan --policy serial --model gpt2 --tp 4 --pp 2 --seq 512 --cluster dgx-a100:" +
                       std::to_string(nodes) + " --global-batch " + std::to_string(4 * nodes) + " --out " + out)
                  .code,
              kOk);
    return std::filesystem::file_size(out + "/plan.json");
  };
  EXPECT_NEAR(static_cast<double>(size(64)) / static_cast<double>(size(2)), 1.0, 0.01);
}

}  // namespace
}  // namespace weft
