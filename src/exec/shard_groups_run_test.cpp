// Sharding in two levels on ranks that are threads: the losses are those of one set of shards. Needs kernels.
#include <gtest/gtest.h>

#include "exec/test_training.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/overlap.hpp"

namespace weft {
namespace {

using test::kGlobalBatch, test::kSteps;

struct Case {
  std::string policy;
  Layout layout;  // dp is what remains of `ranks`
  std::int64_t ranks = 4;
  std::int32_t parts = 1;  // that once-a-step transfers are cut into
};

std::vector<double> train(const Case& c) {
  Layout layout = c.layout;
  layout.precision = layout.grad_dtype = ElementType::fp32;
  layout.dropout = false;
  layout.seq = 8;
  Transformer model = test::tiny_gpt();
  model.heads = model.kv_heads = 4;
  model.hidden = 32;
  const std::int64_t dp = c.ranks / (layout.tp * layout.cp * layout.pp);
  PlanRequest request =
      test::request(model, parse_cluster(fmt::format("local:{}", c.ranks)), layout, kGlobalBatch / dp);
  request.options.bucket_mib = 0.01;  // several buckets even here
  request.options.bucket_parameters = c.parts > 1 ? 1 : 2000;
  const SharedGraph original = test::build(request);
  Overlap overlap = decide_overlap(request, original, c.policy);
  if (c.parts > 1) {
    overlap.partition.parts.clear();
    for (const Operation& op : original->operations) {
      overlap.partition.parts.push_back(op.per_micro_batch ? 1 : c.parts);
    }
  }
  const WholePlan made = make_whole_plan(request, original, c.policy, overlap);
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

void expect_same_losses(const Case& c) {
  SCOPED_TRACE(fmt::format("{} zero {} in {} shards, tp {} cp {} pp {}, clip {}, {} ranks, {} parts", c.policy,
                           c.layout.zero, c.layout.zero_shards, c.layout.tp, c.layout.cp, c.layout.pp,
                           c.layout.clip_grad, c.ranks, c.parts));
  Case plain = c;
  plain.policy = "serial";
  plain.parts = 1;
  plain.layout.zero_shards = 0;
  const std::vector<double> expected = train(plain), found = train(c);
  ASSERT_EQ(std::ssize(expected), kSteps);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t step = 0; step < found.size(); ++step) {
    EXPECT_NEAR(found[step] / expected[step], 1, 1e-6) << "step " << step;
  }
}

TEST(ShardGroupsRun, TrainWhatOneSetOfShardsTrains) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  for (const int zero : {1, 2, 3}) {
    for (const char* policy : {"serial", "megatron-param", "fsdp", "priority"}) {
      // A small limit, so that every step is clipped by the norm.
      for (const double clip : {0.0, 0.05}) {
        expect_same_losses({policy, {.zero = zero, .zero_shards = 2, .clip_grad = clip}});
      }
    }
  }
}

TEST(ShardGroupsRun, InEveryParallelLayout) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  for (const int zero : {1, 2, 3}) {
    for (const Case& c : std::vector<Case>{
             {"megatron-grad", {.cp = 2, .zero = zero, .zero_shards = 2, .clip_grad = 0.05}, 4},
             {"ddp", {.cp = 2, .zero = zero, .zero_shards = 1, .clip_grad = 0.05}, 4},
             {"fsdp", {.tp = 2, .zero = zero, .zero_shards = 2, .sequence_parallel = true, .clip_grad = 0.05}, 8},
             {"priority", {.pp = 2, .zero = zero, .zero_shards = 2, .clip_grad = 0.05}, 8},
             {"megatron-param", {.zero = zero, .zero_shards = 3}, 6, 2},
         }) {
      expect_same_losses(c);
    }
  }
}

// Members of a shard group that do not follow each other on the axis of data parallelism.
TEST(ShardGroupsRun, InAnotherOrderOfAxes) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  Layout layout{.tp = 2, .cp = 2, .zero = 3, .zero_shards = 2, .clip_grad = 0.05};
  layout.mesh_order = {Axis::dp, Axis::tp, Axis::cp, Axis::pp};
  expect_same_losses({"fsdp", layout, 8});
}

}  // namespace
}  // namespace weft
