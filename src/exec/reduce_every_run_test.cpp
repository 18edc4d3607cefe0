// Gradients reduced after every micro-batch, after a few, or once a step, on ranks that are threads: the losses are
// those of one rank. Needs kernels.
#include <gtest/gtest.h>

#include "exec/test_training.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/partition/units.hpp"

namespace weft {
namespace {

using test::kGlobalBatch, test::kSteps;

struct ReducedCase {
  std::string policy;
  Layout layout;  // dp is what remains of `ranks`
  std::int64_t ranks = 2;
  void (*change)(Overlap&, const StepGraph&) = nullptr;  // of what the policy decides
};

std::vector<double> losses_of_reduced(const ReducedCase& c) {
  Layout layout = c.layout;
  layout.precision = layout.grad_dtype = ElementType::fp32;
  layout.dropout = true;
  layout.seq = 8;
  Transformer model = test::tiny_gpt();
  model.heads = model.kv_heads = 4;
  model.hidden = 32;
  const std::int64_t dp = c.ranks / (layout.tp * layout.cp * layout.pp);
  const PlanRequest request =
      test::request(model, parse_cluster(fmt::format("local:{}", c.ranks)), layout, kGlobalBatch / dp);
  const SharedGraph graph = test::build(request);
  Overlap overlap = decide_overlap(request, graph, c.policy);
  if (c.change != nullptr) c.change(overlap, graph);
  const WholePlan made = make_whole_plan(request, graph, c.policy, overlap);
  const std::optional<Violation> violation = verify_plan(made);
  EXPECT_FALSE(violation.has_value()) << violation->message;
  TrainSettings settings;
  settings.steps = kSteps;
  settings.optimizer = Optimizer::sgd;  // Adam would hardly notice gradients that are too large
  settings.sgd.learning_rate = 1;
  const TrainJob job{made, settings, Corpus::generate(3, 4096), 1, true};
  std::vector<double> losses;
  const Cluster paced(request.cluster);
  local_ranks::on_ranks({.ranks = c.ranks, .cluster = &paced}, {}, [&](Communicator& communicator) {
    const TrainResult own = train_rank(job, communicator, *make_kernels());
    if (communicator.rank() == 0) losses = own.losses;
  });
  return losses;
}

TEST(ReduceEveryRun, TrainsWhatOneRankTrains) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  constexpr std::int64_t kStep = Layout::kWholeStep;
  for (const ReducedCase& c : std::vector<ReducedCase>{
           {"serial", {.zero = 0, .reduce_every = 1}},
           {"priority", {.zero = 0, .reduce_every = 2}},
           {"megatron-param", {.zero = 1, .reduce_every = 3}},
           {"fsdp", {.zero = 1, .reduce_every = 1, .clip_grad = 0.05}},
           {"ddp", {.zero = 2, .reduce_every = kStep}},
           {"fsdp", {.zero = 2, .reduce_every = 2, .recompute = Recompute::full}},
           {"fsdp", {.zero = 3, .reduce_every = kStep}},
           {"centauri", {.zero = 3, .reduce_every = 3}},
           {"centauri", {.tp = 2, .zero = 2, .reduce_every = 2, .sequence_parallel = true}, 4},
           {"priority", {.cp = 2, .zero = 0, .reduce_every = 3, .clip_grad = 0.05}, 4},
           {"fsdp", {.zero = 2, .zero_shards = 2, .reduce_every = 3}, 4},
           {"megatron-param", {.pp = 2, .zero = 0, .reduce_every = 1}, 4},
           {"ddp", {.pp = 2, .zero = 2, .reduce_every = kStep}, 4},
       }) {
    SCOPED_TRACE(fmt::format("{} zero {}, every {}, tp {} cp {} pp {}, {} ranks", c.policy, c.layout.zero,
                             c.layout.reduce_every, c.layout.tp, c.layout.cp, c.layout.pp, c.ranks));
    const std::vector<double> expected = losses_of_reduced({"serial", {.clip_grad = c.layout.clip_grad}, 1}),
                              found = losses_of_reduced(c);
    ASSERT_EQ(std::ssize(expected), kSteps);
    ASSERT_EQ(found.size(), expected.size());
    EXPECT_GT(std::abs(expected.front() - expected.back()), 1e-3);  // it learns, so that wrong gradients would show
    for (std::size_t step = 0; step < found.size(); ++step) {
      EXPECT_NEAR(found[step] / expected[step], 1, 1e-5) << "step " << step;
    }
  }
}

// What else the search may choose: parts of a step's transfers that grow, parts of a layer's gathers and reductions,
// and gathers that begin before their pass does.
TEST(UnequalPartsRun, TrainWhatOneRankTrains) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const auto growing = [](Overlap& overlap, const StepGraph& graph) {
    overlap.partition.buckets.clear();
    overlap.partition.parts.assign(graph.operations.size(), -4);
  };
  const auto halves = [](Overlap& overlap, const StepGraph& graph) {
    overlap.partition.buckets = buckets_within_layers(graph, false);
    overlap.held = {.prefetch = 2, .ahead_of_pass = true};
  };
  const auto single = [](Overlap& overlap, const StepGraph& graph) {
    overlap.partition.buckets = buckets_within_layers(graph, true);
    overlap.held = {.prefetch = 1, .ahead_of_pass = true};
  };
  const std::vector<double> expected = losses_of_reduced({"serial", {}, 1});
  for (const ReducedCase& c : std::vector<ReducedCase>{{"ddp", {.zero = 0}, 2, growing},
                                                       {"priority", {.zero = 1}, 4, growing},
                                                       {"fsdp", {.zero = 3}, 2, halves},
                                                       {"fsdp", {.zero = 3, .recompute = Recompute::full}, 4, single},
                                                       {"fsdp", {.zero = 3, .reduce_every = 2}, 2, halves}}) {
    SCOPED_TRACE(fmt::format("{} zero {}, {} ranks", c.policy, c.layout.zero, c.ranks));
    const std::vector<double> found = losses_of_reduced(c);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t step = 0; step < found.size(); ++step) {
      EXPECT_NEAR(found[step] / expected[step], 1, 1e-5) << "step " << step;
    }
  }
}

}  // namespace
}  // namespace weft
