// `weft plan --sweep`: the same figures as plans made one by one, every combination accounted for.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/files.hpp"
#include "app/plan/sweep_report.hpp"
#include "app/test_cli.hpp"
#include "base/text.hpp"
#include "planner/policy/policy.hpp"

namespace weft {
namespace {

const std::string kModel = "--layers 8 --hidden 1024 --heads 16 --seq 512 --vocab 8192 ";
const std::string kSmall = kModel + "--cluster dgx-a100:1 --policy serial ";

nlohmann::json sweep_of(const std::string& flags, int code = kOk) {
  const CliResult result = weft_cli("plan --json " + flags);
  EXPECT_EQ(result.code, code) << result.err;
  return nlohmann::json::parse(result.out);
}

TEST(Sweep, EveryRowIsThePlanMadeAlone) {
  const nlohmann::json json = sweep_of(kSmall + "--global-batch 16 --sweep tp=1,2;pp=1,2;recompute=none,full");
  EXPECT_EQ(json.at("sweep").at("combinations"), 8);
  EXPECT_EQ(json.at("sweep").at("feasible"), 8);
  double last = 0;
  for (const nlohmann::json& row : json.at("sweep").at("rows")) {
    std::string flags = kSmall + "--global-batch 16";
    for (const auto& [key, value] : row.at("keys").items()) {
      if (key != "policy") flags += " --" + key + " " + value.get<std::string>();
    }
    const nlohmann::json alone = sweep_of(flags).at("policies").at("serial");
    for (const char* figure : {"step_s", "tokens_per_s", "tflops_per_gpu", "mfu", "exposed_comm_s", "hidden_pct",
                               "bubble_s", "memory_peak_bytes", "fits"}) {
      EXPECT_EQ(row.at(figure), alone.at(figure)) << figure << " of " << flags;
    }
    EXPECT_GE(row.at("step_s"), last);  // the batch is the same for all
    last = row.at("step_s");
  }
}

// What a framework does by default may follow from what is varied (sequence parallelism from tp), and the memory that
// it takes decides what fits: of the rows with micro-batches of two none does.
TEST(Sweep, ARowHasTheDefaultsAndTheMemoryOfTheFramework) {
  const std::string job =
      "--model llama3-8b --cluster dgx-h100:1 --global-batch 32 --seq 8192 --zero 1 --framework nanotron --policy ddp";
  const nlohmann::json sweep = sweep_of(job + " --sweep tp=1,2;micro-batch=1,2", kOk).at("sweep");
  for (const char* list : {"rows", "infeasible"}) {
    for (const nlohmann::json& row : sweep.at(list)) {
      std::string flags = job;
      for (const auto& [key, value] : row.at("keys").items()) {
        if (key != "policy") flags += " --" + key + " " + value.get<std::string>();
      }
      const CliResult alone = weft_cli("plan --json " + flags);
      const nlohmann::json policy = nlohmann::json::parse(alone.out).at("policies").at("ddp");
      EXPECT_EQ(row.at("fits"), policy.at("fits")) << flags;
      if (row.contains("memory_peak_bytes") && !row.at("memory_peak_bytes").is_null()) {
        EXPECT_EQ(row.at("memory_peak_bytes"), policy.at("memory_peak_bytes")) << flags;
      }
    }
  }
}

// Layers that are left to prediction are decided for every row, as for a plan made alone.
TEST(Sweep, RowsWhoseLayersAreDecidedArePlansMadeAlone) {
  const std::string job =
      "--layers 10 --hidden 1024 --heads 16 --seq 2048 --vocab 8192 --cluster dgx-a100:1 "
      "--global-batch 128 --micro-batch 8 --recompute full --memory 5 ";
  const nlohmann::json sweep =
      sweep_of(job + "--sweep pp=2,4,8;policy=priority,serial;stage-layers=auto;recompute-layers=auto").at("sweep");
  ASSERT_EQ(sweep.at("rows").size(), 6) << sweep.dump();
  bool some = false;
  for (const nlohmann::json& row : sweep.at("rows")) {
    const std::string policy = row.at("keys").at("policy"), pp = row.at("keys").at("pp");
    const nlohmann::json alone =
        sweep_of(fmt::format("{}--stage-layers auto --recompute-layers auto --pp {} --policy {}", job, pp, policy));
    EXPECT_EQ(row.at("step_s"), alone.at("policies").at(policy).at("step_s")) << pp << policy;
    EXPECT_EQ(row.at("memory_peak_bytes"), alone.at("policies").at(policy).at("memory_peak_bytes")) << pp << policy;
    if (!alone.at("layout").contains("recompute_layers")) continue;
    some = true;
    const auto layers = alone.at("layout").at("recompute_layers").get<std::vector<int>>();
    EXPECT_PRED2(contains, row.at("decided").get<std::string>(),
                 fmt::format("recompute-layers {}", fmt::join(layers, ",")));
  }
  EXPECT_TRUE(some);
  const CliResult one_stage = weft_cli("plan --json " + job + "--sweep pp=1 --policy serial --stage-layers auto");
  EXPECT_EQ(one_stage.code, kOk) << one_stage.err;
}

TEST(Sweep, RowsWhoseChunksArePlacedArePlansMadeAlone) {
  const std::string job = kModel + "--cluster dgx-a100:1 --global-batch 16 --budget 0.05 --schedule auto ";
  const nlohmann::json sweep = sweep_of(job + "--sweep pp=2,4;vpp=1,2;policy=weft,priority").at("sweep");
  ASSERT_EQ(sweep.at("rows").size(), 8) << sweep.dump();
  for (const nlohmann::json& row : sweep.at("rows")) {
    const std::string policy = row.at("keys").at("policy"), pp = row.at("keys").at("pp"),
                      vpp = row.at("keys").at("vpp");
    const nlohmann::json alone = sweep_of(fmt::format("{}--pp {} --vpp {} --policy {}", job, pp, vpp, policy));
    EXPECT_EQ(row.at("step_s"), alone.at("policies").at(policy).at("step_s")) << pp << vpp << policy;
    const bool decides = vpp == "2" && policy == "weft";
    EXPECT_EQ(row.contains("decided"), decides) << row.dump();
    if (decides) {
      EXPECT_EQ(row.at("decided"), fmt::format("schedule {}", alone.at("layout").at("schedule").get<std::string>()));
    }
  }
}

TEST(Sweep, PoliciesThatShareAPlanHaveTheRowsOfPlansMadeAlone) {
  // ZeRO 3 reduces and gathers layer by layer, whatever the buckets of the policies are, so some plans are shared.
  const std::string job = kModel + "--cluster dgx-a100:1 --tp 2 --pp 2 --global-batch 16 ";
  const nlohmann::json sweep = sweep_of(job + "--sweep zero=1,3").at("sweep");
  const std::vector<std::string> policies = policy_names();
  // Without experts those of experts are left out, and those that search.
  const auto compared = std::count_if(policies.begin(), policies.end(),
                                      [](const auto& p) { return !searches(p) && p != "tutel" && p != "lancet"; });
  ASSERT_EQ(sweep.at("rows").size(), 2 * static_cast<std::size_t>(compared));
  for (const nlohmann::json& row : sweep.at("rows")) {
    const std::string policy = row.at("keys").at("policy"), zero = row.at("keys").at("zero");
    const nlohmann::json alone = sweep_of(job + "--zero " + zero + " --policy " + policy).at("policies").at(policy);
    for (const char* figure : {"step_s", "tokens_per_s", "tflops_per_gpu", "mfu", "exposed_comm_s", "hidden_pct",
                               "bubble_s", "memory_peak_bytes", "fits"}) {
      EXPECT_EQ(row.at(figure), alone.at(figure)) << figure << " of " << policy << " at ZeRO " << zero;
    }
  }
}

TEST(Sweep, TheBestRowIsReportedTheWholeWay) {
  const nlohmann::json json = sweep_of(kSmall + "--global-batch 16 --sweep tp=1,2,4");
  const nlohmann::json& best = json.at("sweep").at("rows").at(0);
  EXPECT_EQ(json.at("best"), best.at("keys").at("policy"));
  EXPECT_EQ(std::to_string(json.at("layout").at("tp").get<int>()), best.at("keys").at("tp").get<std::string>());
  EXPECT_EQ(json.at("policies").at("serial").at("step_s"), best.at("step_s"));
  const CliResult text = weft_cli("plan " + kSmall + "--global-batch 16 --sweep tp=1,2,4 --top 1");
  EXPECT_TRUE(contains(text.out, "verified safe")) << text.out;
  EXPECT_TRUE(contains(text.out, "3 combinations, 3 feasible")) << text.out;
  EXPECT_TRUE(text.err.empty());
}

TEST(Sweep, TheNumberOfThreadsChangesNothing) {
  const std::string flags = kSmall + "--round-batch --global-batch 24 --sweep tp=1,2,3;zero=0..3;micro-batch=1..3";
  nlohmann::json one = sweep_of(flags + " --jobs 1"), four = sweep_of(flags + " --jobs 4");
  one.at("sweep").erase("seconds");
  four.at("sweep").erase("seconds");
  EXPECT_EQ(one, four);
}

TEST(Sweep, WhatDoesNotDivideTheBatchIsInfeasibleOrRounded) {
  // dp 8: micro-batches of 1, 2, 3 make rounds of 8, 16, 24; 32 is no multiple of 24.
  const std::string flags = kSmall + "--global-batch 32 --sweep micro-batch=1..3";
  const nlohmann::json strict = sweep_of(flags).at("sweep");
  EXPECT_EQ(strict.at("feasible"), 2);
  EXPECT_EQ(strict.at("infeasible").at(0).at("reason"),
            "--global-batch 32: is not divisible by --micro-batch 3 * --dp 8");
  EXPECT_FALSE(strict.at("infeasible").at(0).contains("fits"));
  const nlohmann::json rounded = sweep_of(flags + " --round-batch").at("sweep");
  EXPECT_EQ(rounded.at("feasible"), 3);
  for (const nlohmann::json& row : rounded.at("rows")) {
    const int batch = row.at("keys").at("micro-batch") == "3" ? 24 : 32;
    EXPECT_NEAR(row.at("tokens_per_s").get<double>() * row.at("step_s").get<double>(), batch * 512, 1e-6);
  }
  // Too small a batch becomes one round.
  const nlohmann::json least = sweep_of(kSmall + "--global-batch 4 --round-batch --sweep tp=1").at("sweep");
  EXPECT_NEAR(
      least.at("rows").at(0).at("tokens_per_s").get<double>() * least.at("rows").at(0).at("step_s").get<double>(),
      8 * 512, 1e-6);
}

TEST(Sweep, ReasonsAreTheErrorsOfTheLayout) {
  const CliResult text = weft_cli("plan " + kSmall + "--global-batch 16 --sweep tp=1,3;vpp=1,2");
  EXPECT_EQ(text.code, kOk) << text.err;
  EXPECT_TRUE(contains(text.out, "4 combinations, 1 feasible")) << text.out;
  EXPECT_TRUE(contains(text.out, "2 x  --tp 3 * --pp 1 * --cp 1: does not divide the cluster's 8 devices")) << text.out;
  EXPECT_TRUE(contains(text.out, "1 x  --vpp 2: needs --pp above 1")) << text.out;
  EXPECT_TRUE(contains(text.out, "e.g. tp=1 vpp=2 policy=serial")) << text.out;
}

TEST(Sweep, NothingFeasibleIsTheAnswerNo) {
  const std::string flags = "--model gpt3-175b --cluster dgx-a100:1 --policy serial --sweep tp=1,8";
  const nlohmann::json json = sweep_of(flags, kAnswerIsNo);
  EXPECT_TRUE(json.at("best").is_null());
  EXPECT_EQ(json.at("sweep").at("feasible"), 0);
  for (const nlohmann::json& row : json.at("sweep").at("infeasible")) {
    EXPECT_FALSE(row.at("fits").get<bool>());
    EXPECT_TRUE(contains(row.at("reason"), "of 80.00 GB") || contains(row.at("reason"), "GiB")) << row;
  }
}

TEST(Sweep, ClusterKeysAreWhatIfQuestions) {
  const nlohmann::json json =
      sweep_of(kModel + "--cluster dgx-a100:2 --policy serial --sweep nic=100Gb/s,1600Gb/s;gpus=4,8").at("sweep");
  ASSERT_EQ(json.at("feasible"), 4);
  std::map<std::string, double> step;
  for (const nlohmann::json& row : json.at("rows")) {
    step[row.at("keys").at("nic").get<std::string>() + " " + row.at("keys").at("gpus").get<std::string>()] =
        row.at("step_s").get<double>();
  }
  EXPECT_GT(step.at("100Gb/s 8"), step.at("1600Gb/s 8"));
  EXPECT_GT(step.at("100Gb/s 4"), step.at("1600Gb/s 4"));
}

TEST(Sweep, TheCsvHasALineForEveryCombination) {
  const ScratchFolder folder("sweep_csv");
  const CliResult result = weft_cli("plan " + kSmall + "--sweep tp=1,2,3;mesh-order=tp,cp,dp,pp|tp,dp,cp,pp --out " +
                                    folder.file("out") + " --csv " + folder.file("all.csv"));
  ASSERT_EQ(result.code, kOk) << result.err;
  const std::string csv = read_text_file(folder.file("all.csv"));
  EXPECT_EQ(csv, read_text_file(folder.file("out/sweep.csv")));
  const std::vector<std::string> lines = split(csv, '\n');
  ASSERT_EQ(lines.size(), 8u);  // header, six rows, the end
  EXPECT_EQ(lines[0],
            "tp,mesh-order,policy,step_s,tokens_per_s,tflops_per_gpu,mfu,exposed_comm_s,hidden_pct,bubble_s,"
            "memory_peak_bytes,fits,reason");
  EXPECT_TRUE(lines[1].starts_with("1,\"tp,cp,dp,pp\",serial,")) << lines[1];
  EXPECT_TRUE(lines[1].ends_with(",true,")) << lines[1];
  EXPECT_TRUE(lines[5].starts_with("3,\"tp,cp,dp,pp\",serial,,,,,,,,,,--tp 3")) << lines[5];
  EXPECT_TRUE(std::filesystem::exists(folder.file("out/plan.json")));
}

TEST(Sweep, MistakesInFlagsAreErrors) {
  EXPECT_TRUE(
      contains(weft_cli("plan " + kSmall + "--tp 2 --sweep tp=1").err, "--tp: is given, and also varied by --sweep"));
  EXPECT_TRUE(contains(weft_cli("plan " + kSmall + "--top 3").err, "--top: belongs to --sweep"));
  EXPECT_TRUE(contains(weft_cli("plan " + kSmall + "--sweep tpp=3").err, "did you mean 'tp'?"));
  EXPECT_TRUE(contains(weft_cli("plan " + kModel + "--cluster some.json --sweep nic=1Gb/s").err,
                       "key 'nic' needs a preset such as dgx-a100:8"));
  EXPECT_TRUE(contains(weft_cli("plan " + kModel + "--sweep nic=1Gb/s").err, "--cluster: is missing"));
  EXPECT_EQ(weft_cli("plan " + kSmall + "--sweep tpp=3").code, kBadInput);
}

TEST(Sweep, ReasonsThatDifferInNumbersAreOneKind) {
  EXPECT_EQ(kind_of_reason("needs at least 212.50 GiB of 1.5 TiB"), "needs at least N GiB of N GiB");
  EXPECT_EQ(kind_of_reason("--tp 3: does not divide gpt's 128 heads"), "--tp N: does not divide gpt's N heads");
}

}  // namespace
}  // namespace weft
