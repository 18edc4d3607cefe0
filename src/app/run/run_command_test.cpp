// What `weft run` refuses, shows and leaves behind. Cases that train need kernels; loading them takes a second, so they
// are few.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/commands.hpp"
#include "app/files.hpp"
#include "app/test_cli.hpp"
#include "app/test_stages.hpp"
#include "base/machine.hpp"
#include "io/timeline_json.hpp"
#include "kernels/kernels.hpp"
#include "timeline/accounting.hpp"

namespace weft {
namespace {

const std::string kModel = "--layers 2 --hidden 32 --heads 4 --seq 16 --micro-batch 2 --vocab 256 ";
const std::string kTiny = kModel + "--cluster local:2,nic=200Mb/s ";
const std::string kShort = "--threads 1 --calibrate-seconds 0.05 ";

void expect_refused(const std::string& flags, const std::vector<std::string>& words) {
  const CliResult result = weft_cli("run " + flags);
  EXPECT_EQ(result.code, kBadInput) << flags << "\n" << result.err;
  EXPECT_TRUE(result.out.empty()) << result.out;
  EXPECT_TRUE(result.err.starts_with("weft: ")) << result.err;
  EXPECT_EQ(result.err.find("weft: ", 1), std::string::npos) << "said twice: " << result.err;
  for (const std::string& word : words) EXPECT_TRUE(contains(result.err, word)) << word << " in " << result.err;
}

TEST(RunCommand, RefusesBadFlagsByName) {
  expect_refused(kTiny + "--steps 0", {"--steps 0", "1.."});
  expect_refused(kTiny + "--steps 5 --warm-up 5", {"--warm-up 5", "of 5 steps none would count"});
  expect_refused(kTiny + "--policy dpp", {"--policy 'dpp'", "did you mean 'ddp'"});
  expect_refused(kTiny + "--momentum 0.9", {"--momentum", "--optimizer sgd"});
  expect_refused(kTiny + "--optimizer adamw", {"--optimizer", "adam, sgd"});
  expect_refused(kTiny + "--lr -1", {"--lr", "-1"});
  expect_refused(kTiny + "--lr-schedule step", {"--lr-schedule", "constant, linear, cosine"});
  expect_refused(kTiny + "--lr-min 0.1", {"--lr-min", "--lr-schedule linear or cosine"});
  expect_refused(kTiny + "--lr-schedule cosine --lr-min 0.1", {"--lr-min 0.1", "above --lr 0.001"});
  expect_refused(kTiny + "--lr-schedule cosine --lr-warmup 10", {"--lr-warmup 10", "--steps is 10"});
  expect_refused(kTiny + "--lr-schedule linear --lr-warmup 3 --lr-decay-steps 3", {"--lr-decay-steps is 3"});
  expect_refused(kTiny + "--eval-batches 2", {"--eval-batches", "needs --eval-every"});
  expect_refused(kTiny + "--eval-every 2 --eval-share 1", {"--eval-share", "1"});
  expect_refused(kTiny + "--eval-every 2 --eval-share 0.5 --eval-data x", {"--eval-share", "--eval-data"});
  expect_refused(kTiny + "--eval-every 2 --eval-share 0.00001", {"--eval-share", "too few for one sequence"});
  expect_refused(kTiny + "--eval-every 2 --eval-data absent.txt", {"absent.txt", "cannot be read"});
  expect_refused(kTiny + "--eval-every 2 --lengths 8,16", {"--lengths", "--seq"});
  expect_refused(kTiny + "--global-batch 5", {"--global-batch 5", "divisible"});
  expect_refused(kTiny + "--dropout 1", {"dropout", "from 0 to below 1"});
  expect_refused(kTiny + "--precision bf16", {"--precision bf16", "fp32"});
  expect_refused(kModel + "--cluster dgx-a100:1", {"--cluster dgx-a100:1", "local:N"});
  expect_refused(kModel, {"--cluster", "--processes"});
  expect_refused("--model deepseek-v3 --cluster local:2", {"deepseek-v3", "correction of the router's scores"});
  expect_refused(kTiny + "--experts 4 --router-groups 2 --router-group-topk 1",
                 {"--router-group-topk 1 of --router-groups 2", "planned for only"});
  expect_refused(kTiny + "--expert-exchange uneven", {"--expert-exchange", "give --experts"});
  expect_refused(kTiny + "--experts 4 --expert-exchange even", {"--expert-exchange", "padded, uneven"});
  expect_refused(kTiny + "--experts 4 --capacity-factor 0 --etp 2 --expert-exchange uneven", {"--etp 2", "padded"});
  expect_refused(kTiny + "--processes 3", {"for 2 ranks, not for 3 processes"});
  expect_refused(kModel + "--processes 2 --record x", {"--record", "threads"});
  expect_refused(kModel + "--cluster gpu:2,link=50GB/s --processes 2", {"gpu:2,link=50GB/s", "threads of one process"});
  expect_refused(kModel + "--cluster gpu:2", {"gpu:2", "ranks on GPUs are processes"});
  expect_refused(kModel + "--device cuda --experts 4 --expert-exchange uneven",
                 {"--expert-exchange uneven", "only the GPU knows", "give padded"});
  expect_refused("--layers 1 --hidden 32 --heads 4 --lengths 8,16 --cluster gpu:2,link=50GB/s",
                 {"--lengths", "hardware queues of one GPU"});
  expect_refused(kModel + "--cluster gpu:2,link=50GB/s --native never", {"--native never", "paced as a whole"});
  expect_refused(kTiny + "--native always", {"--native always", "under mpirun and on GPUs only"});
  expect_refused(kModel + "--processes 2 --native auto", {"--native auto", "under mpirun and on GPUs only"});
  expect_refused(kTiny + "--framework nanotron", {"--framework nanotron", "Weft's own"});
  expect_refused(kTiny + "--graphs on", {"--graphs: is of --device cuda"});
  expect_refused(kTiny + "--trials -1", {"--trials -1", "0..100"});
  expect_refused(kModel + "--device cuda --optimizer kfac --kfac-interval 3 --graphs on",
                 {"--graphs on", "--kfac-interval 3", "auto or off"});
}

TEST(RunCommand, RefusesDataThatNobodyCanTrainOn) {
  const ScratchFolder folder("run_data");
  expect_refused(kTiny + "--data " + folder.file("absent.txt"), {"absent.txt", "cannot be read"});
  expect_refused(kTiny + "--data " + folder.write("empty.txt", ""), {"empty.txt", "is empty"});
  expect_refused(kTiny + "--data " + folder.path(), {"is a folder"});
  // A sequence of 16 tokens has 16 targets: 17 bytes.
  expect_refused(kTiny + "--data " + folder.write("short.txt", "sixteen bytes..."),
                 {"short.txt", "16 bytes are too few", "--seq 16 needs 17"});
  expect_refused("--layers 1 --hidden 32 --heads 4 --seq 4 --vocab 100 --cluster local:2 --data " +
                     folder.write("letters.txt", "aaaa aaaz"),
                 {"letters.txt", "byte 122 at offset 8", "vocabulary of 100"});
}

TEST(RunCommand, RefusesPlansThatItCannotOrMustNotRun) {
  const ScratchFolder folder("run_plans");
  ASSERT_EQ(weft_cli("plan " + kTiny + "--policy ddp --out " + folder.path()).code, kOk);
  const std::string plan = folder.file("plan.json");
  expect_refused(plan + " --processes 3", {"for 2 ranks, not for 3 processes"});
  expect_refused(plan + " --zero 1", {"--zero", "the plan file says it already"});
  expect_refused(folder.file("absent.json"), {"absent.json", "cannot be read"});
  expect_refused(folder.write("garbage.json", "{]"), {"garbage.json"});

  // Safe wherever there is a library; threads and sockets have none.
  auto native = nlohmann::ordered_json::parse(read_text_file(plan));
  for (auto& op : native["operations"]) {
    if (!op.contains("communication")) continue;
    op["communication"]["algorithm"] = "native";
    op["communication"].erase("parts");
  }
  const std::string file = folder.write("native.json", native.dump());
  EXPECT_EQ(weft_cli("verify " + file).code, kOk);
  expect_refused(file, {"native.json: '", "the MPI library's own all_reduce: threads have none", "under mpirun"});
  expect_refused(file + " --processes 2", {"native.json: '", "TCP sockets have none"});

  // Backward before forward: it reads activations that are not there.
  auto json = nlohmann::ordered_json::parse(read_text_file(plan));
  auto& order = json["classes"][0]["order"];
  ASSERT_GE(order.size(), 3);
  std::swap(order[0], order[1]);
  expect_refused(folder.write("unsafe.json", json.dump()), {"unsafe.json: is not safe to run: "});

  ASSERT_EQ(weft_cli("plan " + kTiny + "--precision bf16 --policy serial --out " + folder.path()).code, kOk);
  expect_refused(plan, {"--precision bf16"});
  ASSERT_EQ(weft_cli("plan " + kModel + "--cluster dgx-a100:1 --policy serial --out " + folder.path()).code, kOk);
  expect_refused(plan, {"--cluster dgx-a100:1"});
}

TEST(RunCommand, RefusesProfilesOfOtherMachines) {
  const ScratchFolder folder("run_profiles");
  const MachineFacts here = this_machine();
  const auto profile = [&](const std::string& cpu, std::int64_t cores, std::int64_t ranks, std::int64_t threads) {
    const nlohmann::json machine = {
        {"cpu", cpu}, {"cores", cores}, {"ranks", ranks}, {"threads_per_rank", threads}, {"transport", "local"}};
    return folder.write("profile.json", nlohmann::json({{"weft_profile", 1}, {"machine", machine}}).dump());
  };
  const auto refused = [&](const std::string& file, const std::string& word) {
    expect_refused(kTiny + "--threads 1 --profile " + file, {"--profile", "was measured elsewhere", word});
  };
  refused(profile("Zuse Z3", here.cores, 2, 1), "Zuse Z3");
  refused(profile(here.cpu, here.cores + 3, 2, 1), std::to_string(here.cores + 3));
  refused(profile(here.cpu, here.cores, 7, 1), "7 ranks");
  refused(profile(here.cpu, here.cores, 2, 5), "5 threads");
  expect_refused(kTiny + "--profile " + folder.write("garbage.json", "garbage"), {"garbage.json"});
  expect_refused(kTiny + "--profile " + folder.write("other.json", "{\"weft_plan\": 1}"), {"other.json"});
  expect_refused(kTiny + "--profile " + folder.file("absent.json"), {"absent.json", "cannot be read"});
}

TEST(RunCommand, SaysThatKernelsAreMissing) {
  if (kernels_available()) GTEST_SKIP() << "there are kernels: " << kernels_in_words();
  expect_refused(kTiny, {"weft run needs kernels", kernels_in_words()});
  const CliResult result = weft_cli("calibrate " + kTiny);
  EXPECT_EQ(result.code, kBadInput);
  EXPECT_TRUE(contains(result.err, "weft calibrate needs kernels")) << result.err;
}

// 32 MiB hold neither 4 bytes of weight, gradient and two moments of 12 layers of 512 (38 M parameters) nor a fourth of
// that; what `weft plan` says does not fit is not trained, with the same exit code.
TEST(RunCommand, KeepsWithinTheStatedMemory) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const std::string large = "--layers 12 --hidden 512 --heads 4 --seq 16 --cluster local:2 --memory 0.03 ";
  for (const std::string& flags : {kShort + large + "--policy serial", kShort + large + "--policy serial,ddp --json"}) {
    const CliResult result = weft_cli("run --steps 2 " + flags);
    EXPECT_EQ(result.code, kAnswerIsNo) << result.err;
    EXPECT_TRUE(result.out.empty()) << result.out;
    EXPECT_TRUE(contains(result.err, "weft: serial: nothing is trained. Does not fit: ")) << result.err;
    EXPECT_TRUE(contains(result.err, "30.72 MiB")) << result.err;
    EXPECT_FALSE(contains(result.err, "loss")) << result.err;
  }
  const CliResult fits = weft_cli("run --steps 2 --warm-up 0 " + kShort + kTiny + "--memory 1 --policy serial");
  EXPECT_EQ(fits.code, kOk) << fits.err;
}

// Two of 16 steps rise from 0 to 0.01, the rest fall in a line to 0.001 at step 12; the text is repeated, so what is
// held out of it is as easy as what is trained on.
TEST(RunCommand, ReportsLearningRatesAndValidation) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const ScratchFolder folder("run_validation");
  std::string text;
  for (int i = 0; i < 200; ++i) text += "abcdefgh";
  const CliResult result = weft_cli(
      "run --json --steps 16 --policy ddp --lr 0.01 --lr-warmup 2 --lr-schedule linear "
      "--lr-min 0.001 --lr-decay-steps 12 --eval-every 8 --eval-batches 3 --data " +
      folder.write("text.txt", text) + " " + kShort + kTiny);
  ASSERT_EQ(result.code, kOk) << result.err;
  const auto policy = nlohmann::json::parse(result.out)["policies"]["ddp"];
  const std::vector<double> rates = policy["learning_rates"];
  ASSERT_EQ(rates.size(), 16U);
  EXPECT_DOUBLE_EQ(rates[0], 0);
  EXPECT_DOUBLE_EQ(rates[1], 0.005);
  EXPECT_DOUBLE_EQ(rates[2], 0.01);
  EXPECT_DOUBLE_EQ(rates[7], 0.0055);
  EXPECT_DOUBLE_EQ(rates[15], 0.001);
  const std::vector<double> losses = policy["losses"];
  ASSERT_EQ(policy["validation"].size(), 2U);
  EXPECT_EQ(policy["validation"][0]["step"], 8);
  EXPECT_EQ(policy["validation"][1]["step"], 16);
  // Every sequence is the same, so validation after 8 steps is what the ninth step starts from.
  EXPECT_NEAR(policy["validation"][0]["loss"].get<double>(), losses[8], 1e-5);
  EXPECT_TRUE(contains(result.err, "step  8/16  validation loss ")) << result.err;
}

TEST(RunCommand, HelpSaysTheVocabularyOfARun) {
  EXPECT_TRUE(contains(weft_cli("run --help").out, "of weft run and calibrate 256")) << "the default that runs have";
}

// With such rates the first update leaves weights that no forward survives, or gradients that overflow.
TEST(RunCommand, StopsWhereLossOrGradientsAreNotFinite) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const auto stops = [](const std::string& flags, const std::vector<std::string>& words) {
    const CliResult result = weft_cli("run " + kShort + "--steps 6 " + flags);
    EXPECT_EQ(result.code, kRunFailed) << flags << "\n" << result.err;
    EXPECT_TRUE(result.out.empty()) << result.out;
    const std::size_t last = result.err.rfind("weft: rank ");
    ASSERT_NE(last, std::string::npos) << result.err;
    const std::string line = result.err.substr(last);
    for (const std::string& word : words) EXPECT_TRUE(contains(line, word)) << word << " in " << line;
  };
  stops(kTiny + "--optimizer sgd --lr 1e30 --policy serial", {"step 2", "is not finite", "layer 0"});
  stops(kModel + "--cluster local:3 --optimizer sgd --lr 1e30 --policy priority --zero 3", {"step 2", "not finite"});
  stops(kTiny + "--optimizer sgd --lr 1e9 --policy ddp", {"step 3", "the gradient of", "is not finite"});
}

void expect_files(const ScratchFolder& folder, const std::string& policy) {
  const std::string name = folder.file("out/timeline" + policy + ".json");
  const TimelineFile file = read_timeline_json(read_text_file(name), name);
  EXPECT_TRUE(file.timeline.measured);
  EXPECT_EQ(file.timeline.ranks.size(), 2);
  EXPECT_EQ(file.timeline.periods, 3);  // of six that count
  EXPECT_EQ(file.about.at("links"), "emulated: local:2,nic=200Mb/s");
  for (const RankAccount& a : account(file.timeline).ranks) {
    EXPECT_NEAR(a.compute_s + a.slowdown_s + a.exposed_s + a.bubble_s + a.idle_s, a.step_s, 1e-9 * a.step_s + 1e-12);
  }
  const auto trace = nlohmann::json::parse(read_text_file(folder.file("out/trace" + policy + ".json")));
  EXPECT_EQ(trace.at("otherData").at("links"), "emulated: local:2,nic=200Mb/s");
  std::map<std::string, int> sides;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("name") != "process_name") continue;
    const std::string process = event.at("args").at("name");
    ++sides[process.substr(0, process.find(' '))];
  }
  // A prediction has one process for the class of both ranks.
  EXPECT_EQ(sides, (std::map<std::string, int>{{"measured", 2}, {"predicted", 1}}));
}

// From the machine to a profile, from that to a plan and a run that agree.
TEST(RunCommand, RunsWithAProfileOfItsOwnAndLeavesFiles) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const ScratchFolder folder("run_files");
  const CliResult calibrated = weft_cli("calibrate " + kTiny + kShort + "--out " + folder.path());
  ASSERT_EQ(calibrated.code, kOk) << calibrated.err;
  EXPECT_TRUE(contains(calibrated.out, "gemm")) << calibrated.out;
  const std::string profile = " --profile " + folder.file("profile.json");
  const CliResult planned =
      weft_cli("plan " + kTiny + "--policy serial,ddp --json --out " + folder.file("planned") + profile);
  ASSERT_EQ(planned.code, kOk) << planned.err;

  std::string plans;
  for (const auto& file : std::filesystem::directory_iterator(folder.file("planned"))) {
    if (file.path().filename().string().starts_with("plan")) plans += file.path().string() + " ";
  }
  const CliResult run =
      weft_cli("run " + plans + "--threads 1 --steps 8 --warm-up 1 --json --out " + folder.file("out") + profile);
  ASSERT_EQ(run.code, kOk) << run.err;
  EXPECT_TRUE(contains(run.err, "step 8/8  loss ")) << run.err;
  EXPECT_TRUE(contains(run.err, "% hidden")) << run.err;
  EXPECT_FALSE(contains(run.err, "measuring this machine")) << run.err;
  const auto json = nlohmann::json::parse(run.out), plan = nlohmann::json::parse(planned.out);
  EXPECT_EQ(json.at("world").at("ranks"), 2);
  EXPECT_EQ(json.at("world").at("kind"), "threads");
  const std::string best = json.at("best");
  for (const std::string policy : {"serial", "ddp"}) {
    const auto& p = json.at("policies").at(policy);
    EXPECT_EQ(p.at("stages").size(), 2U) << "each rank by itself";
    test::expect_whole_stages(p, 2, policy);
    EXPECT_EQ(p.at("predicted_step_s"), plan.at("policies").at(policy).at("step_s"));
    EXPECT_EQ(p.at("losses").size(), 8);
    EXPECT_EQ(p.at("losses").back(), p.at("loss"));
    EXPECT_EQ(p.at("steps_s").size(), 6);  // a step ends where the next begins
    // Both send the same gradients once, 99,200 fp32 parameters: twice half of them over 25 MB/s. No step is shorter.
    EXPECT_GT(p.at("step_s").get<double>(), 0.0158);
    expect_files(folder, policy == best ? "" : "-" + policy);
  }
  EXPECT_EQ(json.at("policies").at("serial").at("losses"), json.at("policies").at("ddp").at("losses"));

  // What it wrote it can run again, and then says in words what came of it.
  const CliResult again = weft_cli("run " + folder.file("out/plan.json") + " --threads 1 --steps 3" + profile);
  ASSERT_EQ(again.code, kOk) << again.err;
  for (const char* words : {"2 ranks as threads", "links emulated: local:2,nic=200Mb/s", "Bound: ", "last loss"}) {
    EXPECT_TRUE(contains(again.out, words)) << words << " in\n" << again.out;
  }
  for (const std::string& line : split(again.out, '\n')) EXPECT_LE(line.size(), 160) << line;
}

// Trials decide by what steps took; nothing that they train is kept.
TEST(RunCommand, TakesThePlanThatWasFastestInTrials) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const auto report_of = [](const std::string& flags) {
    const CliResult result = weft_cli("run --json --steps 3 " + kShort + kTiny + flags);
    EXPECT_EQ(result.code, kOk) << result.err;
    return nlohmann::json::parse(result.out);
  };
  const auto tried = report_of("--policy serial,weft --trials 3"), not_tried = report_of("--policy weft");
  const auto& trials = tried.at("trials");
  ASSERT_GE(trials.size(), 2U);
  ASSERT_LE(trials.size(), 3U);
  double least = 1e9, taken = 0;
  for (const auto& trial : trials) {
    least = std::min(least, trial.at("step_s").get<double>());
    if (trial.at("taken").get<bool>()) taken = trial.at("step_s").get<double>();
  }
  EXPECT_EQ(taken, least);
  EXPECT_FALSE(not_tried.contains("trials"));  // three steps are too few to try plans by itself
  // The first loss is that of the initial weights.
  EXPECT_NEAR(tried.at("policies").at("weft").at("losses")[0].get<double>(),
              not_tried.at("policies").at("weft").at("losses")[0].get<double>(), 1e-5);
  EXPECT_FALSE(report_of("--policy weft --trials 0").contains("trials"));
}

// A plan for a local cluster is the plan of a run: with room for every token where experts drop none.
TEST(RunCommand, TrainsPlansOfExpertsAsItTrainsTheirFlags) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const auto losses_of = [](const std::string& flags) {
    const CliResult result = weft_cli("run " + flags + " --json --steps 3 " + kShort);
    EXPECT_EQ(result.code, kOk) << flags << "\n" << result.err;
    if (result.code != kOk) return std::vector<double>();
    return nlohmann::json::parse(result.out).at("policies").at("ddp").at("losses").get<std::vector<double>>();
  };
  for (const std::string experts : {"--experts 4 --ep 2", "--experts 4 --ep 2 --capacity-factor 1.25",
                                    "--experts 4 --ep 2 --capacity-factor 0 --expert-exchange padded --top-k 2"}) {
    SCOPED_TRACE(experts);
    const ScratchFolder folder("run_expert_plans");
    const std::string flags = kTiny + experts + " --policy ddp";
    const CliResult planned = weft_cli("plan " + flags + " --out " + folder.path());
    ASSERT_EQ(planned.code, kOk) << planned.err;
    const std::vector<double> expected = losses_of(flags), found = losses_of(folder.file("plan.json"));
    ASSERT_EQ(found.size(), 3);
    ASSERT_EQ(expected.size(), 3);
    for (std::size_t step = 0; step < 3; ++step) EXPECT_NEAR(found[step] / expected[step], 1, 1e-6) << step;
  }
}

}  // namespace
}  // namespace weft
