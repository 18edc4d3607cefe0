#include "app/run/loss_comparison.hpp"

#include <gtest/gtest.h>

#include "app/test_cli.hpp"
#include "base/error.hpp"
#include "base/test_folder.hpp"
#include "kernels/kernels.hpp"

namespace weft {
namespace {

using test::ScratchFolder;

// 2.2 / 2 is 10 % more, 0.9 / 1 is 10 % less; the third step of one has none beside it.
TEST(LossComparison, IsTheRelativeDifferenceOfEveryStepThatBothHave) {
  const std::vector<double> found = loss_differences_pct({2.2, 0.9, 5}, {"plain.json", "ddp", {2, 1}});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_NEAR(found[0], 10, 1e-9);
  EXPECT_NEAR(found[1], -10, 1e-9);
}

TEST(LossComparison, SaysTheLastStepAndTheOneThatIsFurthestOff) {
  RunStudy study;
  study.runs.emplace_back();
  study.runs[0].measured.policy = "priority";
  study.runs[0].losses = {4, 2.4, 1.01};
  study.runs[0].step_times_s = {1};
  const EarlierLosses earlier{"plain.json", "ddp", {4, 2, 1}};
  EXPECT_PRED2(contains, loss_comparison_text(study, earlier), "Losses against plain.json (ddp)");
  EXPECT_PRED2(contains, loss_comparison_text(study, earlier),
               "priority: +1.00 % at step 3, the last that both have; furthest off +20.00 % at step 2");
  nlohmann::ordered_json report;
  add_loss_comparison(study, earlier, report);
  EXPECT_EQ(report["earlier_losses"]["losses"], (std::vector<double>{4, 2, 1}));
  EXPECT_EQ(report["policies"]["priority"]["loss_differences_pct"].size(), 3U);
}

// Twelve steps of earlier losses end in ten of 3, 3, 2 and seven times 1: 15 in all, a mean of 1.5. The own ones are 5
// and then 1: ten of them have a mean of at most 1.5 from 1.4 on, when one 5 is left among them, after 11 steps.
TEST(LossComparison, SaysAfterHowManyStepsAndSecondsTheEarlierLossIsReached) {
  EarlierLosses earlier{"adam.json", "ddp", {4, 4, 3, 3, 2, 1, 1, 1, 1, 1, 1, 1}};
  earlier.median_step_s = 0.5;
  RunStudy study;
  study.runs.emplace_back();
  PolicyRun& run = study.runs[0];
  run.measured.policy = "weft";
  run.step_times_s = {0.75, 0.75, 0.75};
  run.losses = {5, 5, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(steps_to_last_loss(run.losses, earlier), 11);
  EXPECT_PRED2(
      contains, loss_comparison_text(study, earlier),
      "weft: the mean of the last 10 losses there, 1.5000, is reached after 8.250 s (11 steps of 750.00 ms); there "
      "it took 6.000 s (12 steps of 500.00 ms)");
  nlohmann::ordered_json report;
  add_loss_comparison(study, earlier, report);
  EXPECT_EQ(report["earlier_losses"]["seconds"], 6.0);
  EXPECT_EQ(report["policies"]["weft"]["to_earlier_loss"]["steps"], 11);
  EXPECT_EQ(report["policies"]["weft"]["to_earlier_loss"]["seconds"], 8.25);
  run.losses = {5, 5, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4};
  EXPECT_EQ(steps_to_last_loss(run.losses, earlier), std::nullopt);
  EXPECT_PRED2(contains, loss_comparison_text(study, earlier),
               "1.5000, is not reached in 9.000 s (12 steps of 750.00 ms)");
}

TEST(LossComparison, NamesAFileThatIsNoReport) {
  const ScratchFolder folder("losses");
  const auto refused = [&](const std::string& text, const std::string& word) {
    const std::string file = folder.write("losses.json", text);
    try {
      read_earlier_losses(file);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_PRED2(contains, error.what(), file);
      EXPECT_PRED2(contains, error.what(), word);
    }
  };
  refused("{}", "weft run --json");
  refused("{", "losses.json");
  refused(R"({"best": "ddp", "policies": {"serial": {}}})", "ddp");
  refused(R"({"best": "ddp", "policies": {"ddp": {"losses": ["x"]}}})", "losses");
  refused(R"({"best": "ddp", "policies": {"ddp": {"losses": []}}})", "has no losses");
}

// Two short trainings of the same: the second says how far it is from the first.
TEST(LossComparison, ComparesARunWithCompressedGradientsWithOneWithout) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const ScratchFolder folder("losses");
  const std::string training =
      "run --layers 1 --hidden 16 --heads 2 --vocab 256 --seq 8 --micro-batch 1 --cluster local:2,nic=1Gb/s --steps 4 "
      "--calibrate-seconds 0.1 --policy ddp --json ";
  const CliResult plain = weft_cli(training);
  ASSERT_EQ(plain.code, kOk) << plain.err;
  const std::string file = folder.write("plain.json", plain.out);
  const CliResult encoded = weft_cli(training + "--compress gradients=int4 --compress-min 64 --losses-of " + file +
                                     " --out " + folder.path().string());
  ASSERT_EQ(encoded.code, kOk) << encoded.err;
  const auto losses_in = [](const CliResult& result) {
    return nlohmann::json::parse(result.out)["policies"]["ddp"]["losses"].get<std::vector<double>>();
  };
  const std::vector<double> before = losses_in(plain), after = losses_in(encoded);
  const nlohmann::json policy = nlohmann::json::parse(encoded.out)["policies"]["ddp"];
  ASSERT_EQ(policy["loss_differences_pct"].size(), 4U);
  EXPECT_EQ(before[0], after[0]);  // the first loss comes before the first gradient
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(policy["loss_differences_pct"][i].get<double>(), 100 * (after[i] / before[i] - 1), 1e-9);
  }
  EXPECT_EQ(policy["compression_errors"].size(), 4U);
  const std::string figure = folder.file("losses.svg");
  const CliResult drawn = weft_cli("report " + folder.path().string() + " --view losses --svg " + figure);
  ASSERT_EQ(drawn.code, kOk) << drawn.err;
}

}  // namespace
}  // namespace weft
