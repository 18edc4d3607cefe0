// What the report of a run says.
#include "app/run/run_report.hpp"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace weft
