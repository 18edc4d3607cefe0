// What the report of a run says.
#include "app/run/run_report.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/test_cli.hpp"

namespace weft {
namespace {

TEST(RunReport, NamesEveryPolicyBelowTheBound) {
  RunStudy study;
  for (const auto& [policy, gap] : {std::pair{"serial", 5.0}, {"ddp", -4.0}, {"priority", -9.0}}) {
    PolicyRun run;
    run.measured.whole = std::make_shared<const WholePlan>(Plan{}, StepGraph{});
    run.measured.policy = policy;
    run.measured.step_s = run.predicted_step_s = 1;
    run.measured.gap_to_bound_pct = gap;
    run.losses = {1, 1};
    study.runs.push_back(std::move(run));
  }
  EXPECT_PRED2(contains, run_text_report(study), "\nddp and priority are below the bound");
  study.runs.pop_back();
  EXPECT_PRED2(contains, run_text_report(study), "\nddp is below the bound");
}

RunStudy study_with(const HostReport& host) {
  RunStudy study;
  PolicyRun& run = study.runs.emplace_back();
  run.measured.whole = std::make_shared<const WholePlan>(Plan{}, StepGraph{});
  run.measured.policy = "ddp";
  run.measured.step_s = run.predicted_step_s = 1;
  run.losses = {1, 1};
  run.host = host;
  return study;
}

TEST(RunReport, SaysWhatWasTriedAndWhatWasTaken) {
  RunStudy study = study_with(HostReport{});
  EXPECT_FALSE(contains(run_text_report(study), "tried"));
  study.tried = {{"serial", 0.9, 1.0, false}, {"weft", 0.6, 0.8, true}};
  const std::string text = run_text_report(study);
  EXPECT_PRED2(contains, text, "tried before training");
  EXPECT_PRED2(contains, text, "-10.0 %");
  EXPECT_PRED2(contains, text, "-25.0 %  taken by weft");
  const nlohmann::ordered_json trials = trials_json(study.tried);
  ASSERT_EQ(trials.size(), 2U);
  EXPECT_EQ(trials[1]["plan"], "weft");
  EXPECT_EQ(trials[1]["taken"], true);
  EXPECT_DOUBLE_EQ(trials[1]["predicted_step_s"].get<double>(), 0.6);
  EXPECT_DOUBLE_EQ(trials[1]["step_s"].get<double>(), 0.8);
}

TEST(RunReport, SaysWhatAStepCostsTheHostAndWhyThereAreGraphs) {
  HostReport host;
  host.by_calls = {Nanos{1'900'000}, Nanos{2'000'000}, true};
  host.why = "--graphs off";
  EXPECT_PRED2(contains, run_text_report(study_with(host)),
               "\nHost time of a step under ddp: 1.90 ms of 2.00 ms call by call; no CUDA graphs: --graphs off\n");
  host.by_calls.device_waited = false;
  EXPECT_PRED2(contains, run_text_report(study_with(host)),
               "\nUnder ddp the host is ahead of the device; no CUDA graphs: --graphs off\n");
  host.by_graphs = {Nanos{200'000}, Nanos{900'000}, false};
  host.first_graph_step = 6;  // counted from 0
  host.ends_with_graphs = true;
  host.why = "the device waits for the host";
  EXPECT_PRED2(contains, run_text_report(study_with(host)),
               "call by call; 200.00 us of 900.00 us with CUDA graphs; graphs from step 7 on: the device waits for the "
               "host\n");
  const nlohmann::ordered_json said = host_json(host);
  EXPECT_DOUBLE_EQ(said["calls"]["host_s"].get<double>(), 1.9e-3);
  EXPECT_DOUBLE_EQ(said["graphs"]["step_s"].get<double>(), 0.9e-3);
  EXPECT_EQ(said["first_graph_step"], 7);
}

}  // namespace
}  // namespace weft
