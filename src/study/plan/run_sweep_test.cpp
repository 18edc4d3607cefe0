// A sweep asks for as little as it can and gives the figures of its plans made one by one.
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "cluster/presets.hpp"
#include "model/presets.hpp"
#include "study/plan/plan_study.hpp"
#include "study/plan/sweep.hpp"

namespace weft {
namespace {

// Two layers of GPT-2 on eight devices; three tensor-parallel ranks are refused.
struct SmallSweep {
  SweepSpec spec = parse_sweep("tp=1,2,3;policy=serial,ddp");
  ClusterSpec cluster = parse_cluster("dgx-a100:1");
  std::size_t models = 0, clusters = 0, layouts = 0;  // asked for

  Transformer model() const {
    Transformer model = model_preset("gpt2");
    model.layers = 2;
    return model;
  }
  Layout layout(const SweepChoice& choice) const {
    Layout layout{.tp = static_cast<std::int64_t>(choice.front()) + 1, .seq = 128};
    if (layout.tp == 3) fail("three are too many");
    layout.dp = 8 / layout.tp;
    layout.global_batch = 8;
    return layout;
  }
  SweepSource source() {
    return {.model = [this](const SweepChoice&) { return ++models, model(); },
            .cluster = [this](const SweepChoice&) { return ++clusters, cluster; },
            .layout = [this](const SweepChoice& choice, const Cluster&,
                             Transformer&) { return ++layouts, layout(choice); }};
  }
  Sweep run(std::size_t jobs = 1) { return run_sweep(spec, source(), default_profile(), {.jobs = jobs}); }
};

TEST(RunSweep, AsksOnceForWhatCombinationsShare) {
  SmallSweep small;
  small.run();
  EXPECT_EQ(small.models, 1U);
  EXPECT_EQ(small.clusters, 1U);
  EXPECT_EQ(small.layouts, 3U);  // policies share one
}

TEST(RunSweep, FiguresAreThoseOfPlansMadeOneByOne) {
  SmallSweep small;
  const Sweep sweep = small.run();
  ASSERT_EQ(sweep.rows.size(), 6U);
  for (const SweepRow& row : sweep.rows) {
    if (row.choice.front() == 2) continue;
    const std::string policy = sweep.spec.keys[1].values[row.choice[1]];
    const PlanStudy alone =
        study_plan({small.model(), small.cluster, small.layout(row.choice)}, {policy}, default_profile());
    ASSERT_TRUE(row.figures) << sweep.describe(row);
    EXPECT_EQ(row.figures->step_s, alone.policies[0].step_s) << sweep.describe(row);
    EXPECT_EQ(row.figures->exposed_comm_s, alone.policies[0].accounting.mean.exposed_s) << sweep.describe(row);
    EXPECT_EQ(*row.memory_peak, alone.policies[0].memory_peak) << sweep.describe(row);
  }
}

TEST(RunSweep, WhatTheLayoutRefusesIsTheReasonOfItsRows) {
  const Sweep sweep = SmallSweep{}.run();
  for (const SweepRow& row : sweep.rows) {
    EXPECT_EQ(row.reason, row.choice.front() == 2 ? "three are too many" : "") << sweep.describe(row);
    EXPECT_EQ(row.figures.has_value(), row.choice.front() != 2) << sweep.describe(row);
  }
  EXPECT_EQ(sweep.ranking().size(), 4U);
}

TEST(RunSweep, TellsHowManyCombinationsAreSettled) {
  SmallSweep small;
  std::vector<std::size_t> done;
  const OnProgress note = [&](std::string_view task, std::size_t now, std::size_t total) {
    EXPECT_EQ(task, "sweep");
    EXPECT_EQ(total, 6U);
    done.push_back(now);
  };
  run_sweep(small.spec, small.source(), default_profile(), {.on_progress = note});
  EXPECT_EQ(done, (std::vector<std::size_t>{0, 2, 4, 6}));
}

}  // namespace
}  // namespace weft
