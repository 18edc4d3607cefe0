// Plans with late operations on ranks that are threads: the losses are those of one rank that does everything in turn,
// also where the run is saved, stopped and gone on with, and where it is validated on the way. Needs kernels.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/test_folder.hpp"
#include "comm/test_ranks.hpp"
#include "exec/checkpoint/test_checkpoints.hpp"
#include "exec/test_training.hpp"
#include "plan/late.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/passes.hpp"
#include "planner/search/decisions.hpp"

namespace weft {
namespace {

namespace fs = std::filesystem;
constexpr std::int64_t kLateRanks = 2, kLateSteps = 7;

struct LateCase {
  std::string name;
  Layout layout;
  bool experts = false;
};

std::vector<LateCase> late_cases() {
  return {{"dp 2", {}},
          {"dp 2, zero 1", {.zero = 1}},
          {"dp 2, zero 1, computed again", {.zero = 1, .recompute = Recompute::full}},
          {"tp 2", {.tp = 2}},
          {"ep 2", {.ep = 2}, true},
          {"ep 2, zero 1, uneven", {.ep = 2, .expert_exchange = ExpertExchange::uneven, .zero = 1}, true}};
}

Transformer late_model(const LateCase& c) {
  Transformer model = test::tiny_gpt();
  model.layers = 4;
  model.heads = model.kv_heads = 2;
  model.head_dim = 8;
  model.hidden = 16;
  if (c.experts) model.experts = Experts{.count = 4, .top_k = 1, .ffn = 24, .capacity_factor = 1, .every = 2};
  return model;
}

// One sequence a rank and step; a single rank passes them one after the other.
PlanRequest late_request(const LateCase& c, std::int64_t ranks) {
  Layout layout = ranks == 1 ? Layout{} : c.layout;
  layout.micro_batch = 1;
  const std::int64_t sequences = kLateRanks / c.layout.tp;
  const std::int64_t replicas = ranks / layout.tp;
  return test::PlannedLayout::request_of(late_model(c), layout, ranks, sequences / replicas);
}

WholePlan plan_of_one_rank(const LateCase& c) {
  const PlanRequest request = late_request(c, 1);
  return overlapped_plan(request, test::build(request), "serial", {});  // nothing overlaps
}

WholePlan late_plan(const LateCase& c, bool cut) {
  const PlanRequest request = late_request(c, kLateRanks);
  const SharedGraph graph = test::build(request);
  const DecisionSpace space(request, graph);
  Decisions decisions = space.start();
  if (cut) decisions.chosen[DecisionSpace::kForwardExperts] = space.options(DecisionSpace::kForwardExperts) - 1;
  Overlap overlap = space.overlap(decisions);
  overlap.weave.enabled = true;
  overlap.weave.late_layers = 3;
  WholePlan made = overlapped_plan(request, graph, "weft", overlap);
  EXPECT_GT(summarize_late(made.plan()).weight_grads, 4);
  const std::optional<Violation> violation = verify_plan(made);
  EXPECT_FALSE(violation.has_value()) << violation->message;
  return made;
}

struct LateRun {
  fs::path folder = {};    // of checkpoints; empty: none
  std::int64_t every = 0;  // steps
  std::int64_t from = 0;   // the checkpoint that it goes on from; 0: none
  std::int64_t steps = kLateSteps;
  std::int64_t validate_every = 0;
};

TrainResult train_late(const WholePlan& plan, const LateRun& run = {}) {
  TrainSettings settings;
  settings.steps = run.steps;
  settings.schedule.warmup = 3;  // so that an update of the wrong step shows
  CheckpointJob checkpoint{run.folder,      run.every, 100, true,
                           R"({"seed":1})", {},        {},  "00112233445566778899aabbccddeeff"};
  TrainJob job{plan, settings, Corpus::generate(3, 4096), 1, true};
  if (!run.folder.empty() && run.from == 0) job.checkpoint = &checkpoint;
  std::unique_ptr<CheckpointReader> reader;
  if (run.from > 0) {
    const fs::path saved = run.folder / checkpoint_name(run.from);
    reader = std::make_unique<CheckpointReader>(saved, read_checkpoint(saved));
    job.resume = reader.get();
    job.first_step = run.from;
  }
  const ValidationJob validation{run.validate_every, 2, Corpus::generate(5, 4096)};
  if (run.validate_every > 0) job.validation = &validation;
  TrainResult result;
  const std::int64_t ranks = Cluster(plan.plan().cluster).device_count();
  local_ranks::on_ranks({.ranks = ranks}, {.check = true}, [&](Communicator& communicator) {
    TrainResult own = train_rank(job, communicator, *make_kernels());
    if (communicator.rank() == 0) result = std::move(own);
  });
  return result;
}

void expect_near_losses(std::span<const double> found, std::span<const double> expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t step = 0; step < found.size(); ++step) {
    EXPECT_NEAR(found[step] / expected[step], 1, 1e-5) << "step " << step;
  }
}

TEST(LateRun, TrainsWhatOneRankTrains) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  for (const LateCase& c : late_cases()) {
    const std::vector<double> expected = train_late(plan_of_one_rank(c)).losses;
    EXPECT_LT(expected.back(), expected.front());
    for (const bool cut : {false, true}) {
      if (cut && !c.experts) continue;
      SCOPED_TRACE(fmt::format("{}{}", c.name, cut ? ", experts in parts" : ""));
      expect_near_losses(train_late(late_plan(c, cut)).losses, expected);
    }
  }
}

// Saves at steps 2, 4, 6 and 7: each is of one step, also those of steps that follow each other.
TEST(LateRun, GoesOnFromEveryCheckpoint) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  for (const LateCase& c : late_cases()) {
    SCOPED_TRACE(c.name);
    const test::ScratchFolder alone("late_alone"), together("late_together");
    const std::vector<double> expected = train_late(plan_of_one_rank(c), {.folder = alone.path(), .every = 2}).losses;
    const WholePlan plan = late_plan(c, false);
    expect_near_losses(train_late(plan, {.folder = together.path(), .every = 2}).losses, expected);
    for (const std::int64_t step : {2, 4, 6, 7}) {
      const std::vector<TensorKind> kinds{TensorKind::weight, TensorKind::first_moment, TensorKind::second_moment};
      const auto found = test::whole_tensors(together.path() / checkpoint_name(step), late_model(c), kinds);
      const auto wanted = test::whole_tensors(alone.path() / checkpoint_name(step), late_model(c), kinds);
      ASSERT_EQ(found.size(), wanted.size());
      for (const auto& [key, values] : wanted) {
        for (std::size_t i = 0; i < values.size(); ++i) {
          ASSERT_NEAR(found.at(key)[i], values[i], 2e-4) << key.second << " after step " << step;
        }
      }
    }
    const std::vector<double> rest = train_late(plan, {.folder = together.path(), .from = 4}).losses;
    expect_near_losses(rest, std::span(expected).subspan(4));
  }
}

TEST(LateRun, ValidatesWithTheWeightsOfTheStep) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const LateCase c = late_cases()[1];
  const TrainResult alone = train_late(plan_of_one_rank(c), {.validate_every = 3});
  const TrainResult together = train_late(late_plan(c, false), {.validate_every = 3});
  expect_near_losses(together.losses, alone.losses);
  ASSERT_EQ(together.validation.size(), alone.validation.size());
  ASSERT_EQ(alone.validation.size(), 3U);  // after steps 3, 6 and 7
  for (std::size_t i = 0; i < alone.validation.size(); ++i) {
    EXPECT_EQ(together.validation[i].steps, alone.validation[i].steps);
    EXPECT_NEAR(together.validation[i].loss / alone.validation[i].loss, 1, 1e-5);
  }
}

}  // namespace
}  // namespace weft
