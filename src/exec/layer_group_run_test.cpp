// Micro-batches that pass layers in groups, on ranks that are threads: the losses are those of one micro-batch after
// the other. Needs kernels.
#include <gtest/gtest.h>

#include "exec/test_training.hpp"
#include "plan/verify/verify_plan.hpp"

namespace weft {
namespace {

using test::kGlobalBatch, test::kSteps;

struct Case {
  std::string policy;
  Layout layout;  // dp is what remains of `ranks`
  std::int64_t ranks = 2;
};

std::vector<double> train(const Case& c) {
  Layout layout = c.layout;
  layout.precision = layout.grad_dtype = ElementType::fp32;
  layout.dropout = true;
  layout.seq = 8;
  Transformer model = test::tiny_gpt();
  model.heads = model.kv_heads = 4;
  model.hidden = 32;
  const std::int64_t dp = c.ranks / (layout.tp * layout.cp);
  const PlanRequest request =
      test::request(model, parse_cluster(fmt::format("local:{}", c.ranks)), layout, kGlobalBatch / dp);
  const WholePlan made = make_whole_plan(request, test::build(request), c.policy);
  const std::optional<Violation> violation = verify_plan(made);
  EXPECT_FALSE(violation.has_value()) << violation->message;
  TrainSettings settings;
  settings.steps = kSteps;
  if (layout.clip_grad > 0) {  // Adam would hardly notice a wrong norm
    settings.optimizer = Optimizer::sgd;
    settings.sgd.learning_rate = 1;
  }
  const TrainJob job{made, settings, Corpus::generate(3, 4096), 1, true};
  std::vector<double> losses;
  const Cluster paced(request.cluster);
  local_ranks::on_ranks({.ranks = c.ranks, .cluster = &paced}, {}, [&](Communicator& communicator) {
    const TrainResult own = train_rank(job, communicator, *make_kernels());
    if (communicator.rank() == 0) losses = own.losses;
  });
  return losses;
}

TEST(LayerGroupRun, TrainsWhatMicroBatchesInTurnTrain) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  for (const Case& c : std::vector<Case>{
           {"serial", {.zero = 2, .layer_group = 2}},
           {"fsdp", {.zero = 2, .layer_group = 6}},
           {"serial", {.zero = 3, .layer_group = 6}},
           {"fsdp", {.zero = 3, .layer_group = 2, .clip_grad = 0.05}},
           {"priority", {.zero = 3, .layer_group = 3, .recompute = Recompute::full}},
           {"centauri", {.tp = 2, .zero = 3, .layer_group = 3, .sequence_parallel = true}, 4},
           {"fsdp", {.cp = 2, .zero = 3, .layer_group = 2}, 4},
           {"centauri", {.zero = 3, .zero_shards = 2, .layer_group = 3}, 4},
           {"megatron-param", {.tp = 2, .zero = 2, .layer_group = 2}, 4},
       }) {
    SCOPED_TRACE(fmt::format("{} zero {}, groups of {}, tp {} cp {}, {} ranks", c.policy, c.layout.zero,
                             c.layout.layer_group, c.layout.tp, c.layout.cp, c.ranks));
    Case in_turn{"serial", c.layout, c.ranks};
    in_turn.layout.layer_group = 1;
    in_turn.layout.zero_shards = 0;
    const std::vector<double> expected = train(in_turn), found = train(c);
    ASSERT_EQ(std::ssize(expected), kSteps);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t step = 0; step < found.size(); ++step) {
      EXPECT_NEAR(found[step] / expected[step], 1, 1e-6) << "step " << step;
    }
  }
}

}  // namespace
}  // namespace weft
