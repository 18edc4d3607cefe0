// Secondary shards on ranks that are threads. Backward gathers copies of what forward gathered, so every loss is that
// of ZeRO 3 without them, to the last bit. Needs kernels.
#include <gtest/gtest.h>

#include "exec/test_training.hpp"
#include "plan/verify/verify_plan.hpp"

namespace weft {
namespace {

using test::kGlobalBatch, test::kSteps;

std::vector<double> losses_with(const std::string& policy, Layout layout, std::int64_t ranks) {
  layout.precision = layout.grad_dtype = ElementType::fp32;
  layout.dropout = false;
  layout.seq = 8;
  Transformer model = test::tiny_gpt();
  model.heads = model.kv_heads = 4;
  model.hidden = 36;  // shares of 8 and of 4 ranks are padded differently
  const std::int64_t dp = ranks / (layout.tp * layout.cp);
  const PlanRequest request =
      test::request(model, parse_cluster(fmt::format("local:{}", ranks)), layout, kGlobalBatch / dp);
  const WholePlan made = make_whole_plan(request, test::build(request), policy);
  const std::optional<Violation> violation = verify_plan(made);
  EXPECT_FALSE(violation.has_value()) << violation->message;
  TrainSettings settings;
  settings.steps = kSteps;
  const TrainJob job{made, settings, Corpus::generate(3, 4096), 1, true};
  std::vector<double> losses;
  const Cluster paced(request.cluster);
  local_ranks::on_ranks({.ranks = ranks, .cluster = &paced}, {}, [&](Communicator& communicator) {
    const TrainResult own = train_rank(job, communicator, *make_kernels());
    if (communicator.rank() == 0) losses = own.losses;
  });
  return losses;
}

void expect_losses_of_zero_3(const std::string& policy, const Layout& layout, std::int64_t ranks) {
  SCOPED_TRACE(fmt::format("{} over {} of {}, tp {} cp {} in {} shards, layer groups of {}", policy,
                           layout.zero_secondary, ranks, layout.tp, layout.cp, layout.zero_shards, layout.layer_group));
  Layout plain = layout;
  plain.zero_secondary = 0;
  const std::vector<double> expected = losses_with(policy, plain, ranks), found = losses_with(policy, layout, ranks);
  ASSERT_EQ(std::ssize(expected), kSteps);
  EXPECT_EQ(found, expected);
}

TEST(SecondaryShardsRun, TrainWhatZero3Trains) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  for (const char* policy : {"serial", "fsdp", "priority"}) {
    expect_losses_of_zero_3(policy, {.zero = 3, .zero_secondary = 2}, 4);
  }
  expect_losses_of_zero_3("fsdp", {.zero = 3, .zero_secondary = 4, .clip_grad = 0.05}, 8);
  expect_losses_of_zero_3("fsdp", {.zero = 3, .zero_secondary = 2, .recompute = Recompute::full}, 4);
}

TEST(SecondaryShardsRun, InEveryParallelLayout) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  expect_losses_of_zero_3("fsdp", {.tp = 2, .zero = 3, .zero_secondary = 2, .sequence_parallel = true}, 8);
  expect_losses_of_zero_3("fsdp", {.cp = 2, .zero = 3, .zero_secondary = 2}, 4);
  expect_losses_of_zero_3("fsdp", {.zero = 3, .zero_shards = 4, .zero_secondary = 2}, 8);
  expect_losses_of_zero_3("fsdp", {.zero = 3, .zero_secondary = 2, .layer_group = 3}, 4);
}

}  // namespace
}  // namespace weft
