// Micro-batches in layer order on ranks that are threads: the losses are those of micro-batch after micro-batch. Needs
// kernels.
#include <gtest/gtest.h>

#include "exec/test_training.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/overlap.hpp"

namespace weft {
namespace {

using test::kGlobalBatch, test::kSteps;

struct Case {
  std::int64_t tp, dp;
  int zero;
  std::string policy;
  LayerOrder by_layers;
};

std::vector<double> train(const Case& c) {
  Layout layout;
  layout.tp = layout.etp = c.tp;
  layout.dp = c.dp;
  layout.zero = c.zero;
  layout.precision = layout.grad_dtype = ElementType::fp32;
  layout.dropout = true;
  layout.seq = 8;
  Transformer model = test::tiny_gpt();
  model.layers = model.heads = model.kv_heads = 4;
  model.hidden = 32;
  const PlanRequest request =
      test::request(model, parse_cluster(fmt::format("local:{}", c.tp * c.dp)), layout, kGlobalBatch / c.dp);
  const SharedGraph original = test::build(request);
  Overlap overlap = decide_overlap(request, original, c.policy);
  if (c.by_layers.abreast > 1) overlap.beside.tensor_parallel = true;
  overlap.order.by_layers = c.by_layers;
  const WholePlan made = make_whole_plan(request, original, c.policy, overlap);
  const std::optional<Violation> violation = verify_plan(made);
  EXPECT_FALSE(violation.has_value()) << violation->message;
  EXPECT_EQ(has_pauses(made.plan().classes.front()), c.by_layers.layers > 0);
  TrainSettings settings;
  settings.steps = kSteps;
  const TrainJob job{made, settings, Corpus::generate(3, 4096), 1, true};
  std::vector<double> losses;
  const Cluster paced(request.cluster);
  local_ranks::on_ranks({.ranks = paced.device_count(), .cluster = &paced}, {}, [&](Communicator& communicator) {
    const TrainResult own = train_rank(job, communicator, *make_kernels());
    if (communicator.rank() == 0) losses = own.losses;
  });
  return losses;
}

TEST(LayerOrderRun, TrainsWhatMicroBatchesInTurnTrain) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  for (const Case& c : std::vector<Case>{
           {1, 2, 0, "priority", {.layers = 1}},
           {1, 2, 1, "megatron-param", {.layers = 2}},
           {1, 2, 1, "priority", {.layers = 1, .micro_batches = 2}},
           {2, 1, 0, "serial", {.layers = 1, .abreast = 2}},
           {2, 2, 1, "priority", {.layers = 2, .abreast = 2}},
           {2, 2, 0, "ddp", {.layers = 1, .micro_batches = 3, .abreast = 3}},
       }) {
    SCOPED_TRACE(fmt::format("tp {} dp {} zero {} {}, {} layers, groups of {}, {} abreast", c.tp, c.dp, c.zero,
                             c.policy, c.by_layers.layers, c.by_layers.micro_batches, c.by_layers.abreast));
    const std::vector<double> expected = train({c.tp, c.dp, c.zero, "serial", {}}), found = train(c);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t step = 0; step < found.size(); ++step) {
      EXPECT_NEAR(found[step] / expected[step], 1, 1e-6) << "step " << step;
    }
  }
}

}  // namespace
}  // namespace weft
