#include "exec/train_lengths.hpp"

#include <gtest/gtest.h>

#include <set>

#include "exec/checkpoint/test_checkpoints.hpp"
#include "exec/test_fake_collectives.hpp"
#include "exec/test_training.hpp"

namespace weft {
namespace {

// Plans for batches of these lengths, everything else alike.
class LengthsRun {
 public:
  LengthsRun(const PlanRequest& one, const std::string& policy, const std::vector<std::int64_t>& lengths,
             const TrainSettings& settings = {})
      : settings_(settings) {
    cluster_ = one.cluster;
    requests_.reserve(lengths.size());
    for (const std::int64_t length : lengths) {
      requests_.push_back(one);
      requests_.back().layout.seq = length;
      plans_.push_back(make_whole_plan(requests_.back(), test::build(requests_.back()), policy));
    }
  }
  LengthsRun(const test::TinyCase& c, const std::vector<std::int64_t>& lengths)
      : LengthsRun(test::TinyRun(c).request, c.policy, lengths) {}

  // On this processor, or in the streams of an accelerator.
  LengthsResult train(std::int64_t steps, bool on_streams = false) const {
    LengthsJob job{{}, settings_, Corpus::generate(3, 4096)};
    job.settings.steps = steps;
    for (const WholePlan& plan : plans_) job.plans.push_back(&plan);
    LengthsResult result;
    test::FakeFabric fabric;
    const Cluster paced(cluster_);
    local_ranks::on_ranks({.ranks = paced.device_count(), .cluster = &paced}, {}, [&](Communicator& communicator) {
      LengthsResult own;
      if (on_streams) {
        test::FakeAccelerator accelerator(7 + static_cast<unsigned>(communicator.rank()));
        test::FakeCollectives collectives(fabric, communicator.rank());
        own = train_lengths(job, communicator, Processor(accelerator, &collectives));
      } else {
        own = train_lengths(job, communicator, *make_kernels());
      }
      if (communicator.rank() == 0) result = std::move(own);
    });
    return result;
  }

 private:
  TrainSettings settings_;
  ClusterSpec cluster_;
  std::vector<PlanRequest> requests_;
  std::vector<WholePlan> plans_;
};

TEST(LengthOfStep, EveryLengthComesOnceInARoundInAnOrderThatChanges) {
  std::set<std::vector<std::size_t>> orders;
  for (std::int64_t round = 0; round < 20; ++round) {
    std::vector<std::size_t> order;
    for (std::int64_t i = 0; i < 3; ++i) order.push_back(length_of_step(7, 3 * round + i, 3));
    EXPECT_EQ(std::set<std::size_t>(order.begin(), order.end()).size(), 3U);
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 6U);  // all that three have
  for (std::int64_t step = 0; step < 5; ++step) EXPECT_EQ(length_of_step(1, step, 1), 0U);
}

TEST(TrainLengths, OfOneLengthTrainsWhatThePlanAloneTrains) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const test::TinyCase c{"priority", 1, 2, 1.0};
  const std::vector<double> alone = test::TinyRun(c).train(6).losses;
  EXPECT_EQ(LengthsRun(c, {8}).train(6).losses, alone);
}

// The same plan twice: steps change hands again and again, and nothing may show.
TEST(TrainLengths, HandsOverWeightsAndMomentsWhole) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  for (const int zero : {0, 1, 3}) {
    SCOPED_TRACE(zero);
    const test::TinyCase c{"fsdp", zero, 2, 0};
    const LengthsResult both = LengthsRun(c, {8, 8}).train(8);
    EXPECT_EQ(std::set<std::size_t>(both.chosen.begin(), both.chosen.end()).size(), 2U);
    EXPECT_EQ(both.losses, test::TinyRun(c).train(8).losses);
  }
}

// What one plan, which keeps its state where it is, makes of these steps.
std::vector<double> losses_of_one_plan(const PlanRequest& request, const std::string& policy,
                                       const TrainSettings& settings) {
  const WholePlan whole = make_whole_plan(request, test::build(request), policy);
  const TrainJob job{whole, settings, Corpus::generate(3, 4096), 1, true, nullptr};
  std::vector<double> losses;
  const Cluster paced(request.cluster);
  local_ranks::on_ranks({.ranks = paced.device_count(), .cluster = &paced}, {}, [&](Communicator& communicator) {
    const TrainResult own = train_rank(job, communicator, *make_kernels());
    if (communicator.rank() == 0) losses = own.losses;
  });
  return losses;
}

// This does so for what trainings keep beside weights and moments: factors of curvature and their inverses, errors of
// compressed gradients, bases of PowerSGD, codes of weights, weights before they were rounded, ...
TEST(TrainLengths, HandsOverAllThatAStepLeavesForTheNext) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  struct Case {
    std::string name;
    Layout layout;
    std::int64_t ranks = 2;
    std::string policy = "priority";
    Optimizer optimizer = Optimizer::adam;
  };
  using enum CompressionFormat;
  const std::vector<Case> cases{
      {"K-FAC", {.kfac_interval = 1}, 1, "serial", Optimizer::kfac},
      {"K-FAC, pp 2, every third step", {.pp = 2, .kfac_interval = 3}, 2, "priority", Optimizer::kfac},
      {"K-FAC, zero 1", {.zero = 1, .kfac_interval = 2}, 2, "priority", Optimizer::kfac},
      {"gradients as int8", {.compress = {.format = int8, .min_elements = 32}}, 2, "ddp"},
      {"gradients as int8, zero 2", {.zero = 2, .compress = {.format = int8, .min_elements = 32}}},
      {"gradients of low rank", {.compress = {.format = power_sgd, .min_elements = 32, .rank = 2}}, 2, "ddp"},
      {"weights as int8, zero 1", {.zero = 1, .compress = {.min_elements = 32}, .compress_weights = int8}},
      {"weights as int8, zero 3", {.zero = 3, .compress = {.min_elements = 32}, .compress_weights = int8}, 2, "fsdp"},
      {"momentum", {}, 2, "ddp", Optimizer::sgd},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Layout layout = c.layout;
    layout.micro_batch = 1;
    const PlanRequest request =
        test::PlannedLayout::request_of(test::tiny_gpt(), layout, c.ranks, 8 * layout.pp / c.ranks);
    TrainSettings settings;
    settings.steps = 8;
    settings.optimizer = c.optimizer;
    settings.kfac.learning_rate = 0.001;
    settings.kfac.damping = 0.1;
    if (c.optimizer == Optimizer::sgd) settings.sgd.momentum = 0.9;
    const LengthsResult both = LengthsRun(request, c.policy, {8, 8}, settings).train(8);
    EXPECT_EQ(std::set<std::size_t>(both.chosen.begin(), both.chosen.end()).size(), 2U);
    EXPECT_EQ(both.losses, losses_of_one_plan(request, c.policy, settings));
  }
}

// However the ranks share the work, the batches of each length are the same.
TEST(TrainLengths, OfSeveralLengthsTrainTheSameOnEveryLayout) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const std::vector<std::int64_t> lengths{4, 8, 16};
  const LengthsResult single = LengthsRun({"serial", 0, 1, 0}, lengths).train(9);
  for (const test::TinyCase& c : {test::TinyCase{"ddp", 0, 2, 0}, test::TinyCase{"priority", 2, 3, 0}}) {
    SCOPED_TRACE(c.name());
    const LengthsResult spread = LengthsRun(c, lengths).train(9);
    EXPECT_EQ(spread.chosen, single.chosen);
    ASSERT_EQ(spread.losses.size(), single.losses.size());
    for (std::size_t step = 0; step < spread.losses.size(); ++step) {
      EXPECT_NEAR(spread.losses[step] / single.losses[step], 1, 1e-5) << "step " << step;
    }
  }
  // It learns: rounds of all lengths compare.
  const auto round = [&](std::size_t r) {
    return single.losses[3 * r] + single.losses[3 * r + 1] + single.losses[3 * r + 2];
  };
  EXPECT_LT(round(2), round(0));
}

// Sums over ranks may be taken in another order. A plan that began before it had all weights and moments of the other
// would read other numbers altogether.
TEST(TrainLengths, TrainTheSameInStreams) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  for (const test::TinyCase& c : {test::TinyCase{"ddp", 0, 2, 0}, test::TinyCase{"priority", 3, 2, 0}}) {
    SCOPED_TRACE(c.name());
    const LengthsRun run(c, {4, 8});
    const LengthsResult expected = run.train(8), found = run.train(8, /*on_streams=*/true);
    EXPECT_EQ(found.chosen, expected.chosen);
    ASSERT_EQ(found.losses.size(), expected.losses.size());
    for (std::size_t step = 0; step < found.losses.size(); ++step) {
      EXPECT_NEAR(found.losses[step], expected.losses[step], 2e-6 * expected.losses[step]) << "step " << step;
    }
  }
}

}  // namespace
}  // namespace weft
