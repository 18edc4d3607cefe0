// Pipelines that micro-batches enter at both ends, on ranks that are threads: two copies of the parameters train what
// one rank trains, with gradients clipped by a norm that counts each copy once. Needs kernels.
#include <gtest/gtest.h>

#include "exec/test_training.hpp"
#include "plan/verify/verify_plan.hpp"

namespace weft {
namespace {

using test::kGlobalBatch, test::kSteps;

struct TwoWays {
  std::string policy;
  Layout layout;  // dp is what remains of `ranks`
  std::int64_t ranks = 2;
  std::optional<std::int64_t> bucket_parameters = {};  // of the megatron policies
};

// SGD follows a wrong sum of gradients at once; Adam, which divides by their size, would hardly notice.
std::vector<double> losses_with_sgd(const TwoWays& c) {
  Layout layout = c.layout;
  layout.precision = layout.grad_dtype = ElementType::fp32;
  layout.dropout = true;
  layout.seq = 8;
  Transformer model = test::tiny_gpt();
  model.layers = 4;
  model.heads = model.kv_heads = 4;
  model.hidden = 32;
  const std::int64_t dp = c.ranks / (layout.tp * layout.cp * layout.pp);
  PlanRequest request =
      test::request(model, parse_cluster(fmt::format("local:{}", c.ranks)), layout, kGlobalBatch / dp);
  request.options.bucket_parameters = c.bucket_parameters;
  const WholePlan made = make_whole_plan(request, test::build(request), c.policy);
  const std::optional<Violation> violation = verify_plan(made);
  EXPECT_FALSE(violation.has_value()) << violation->message;
  TrainSettings settings;
  settings.steps = kSteps;
  settings.optimizer = Optimizer::sgd;
  settings.sgd.learning_rate = layout.clip_grad > 0 ? 1 : 0.3;
  const TrainJob job{made, settings, Corpus::generate(3, 4096), 1, true};
  std::vector<double> losses;
  local_ranks::on_ranks({.ranks = c.ranks}, {}, [&](Communicator& communicator) {
    const TrainResult own = train_rank(job, communicator, *make_kernels());
    if (communicator.rank() == 0) losses = own.losses;
  });
  return losses;
}

TEST(TwoDirections, TrainWhatOneRankTrains) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  constexpr PipelineSchedule kBoth = PipelineSchedule::dualpipe;
  for (const double clip : {0.0, 0.05}) {
    const std::vector<double> alone = losses_with_sgd({"serial", {.clip_grad = clip}, 1});
    ASSERT_EQ(std::ssize(alone), kSteps);
    for (const TwoWays& c : std::vector<TwoWays>{
             {"serial", {.pp = 2, .vpp = 2, .clip_grad = clip, .schedule = kBoth}, 2},
             {"priority", {.pp = 4, .vpp = 2, .clip_grad = clip, .schedule = kBoth}, 4},
             {"priority", {.tp = 2, .pp = 2, .vpp = 2, .clip_grad = clip, .schedule = kBoth}, 4},
             {"ddp", {.pp = 2, .vpp = 2, .clip_grad = clip, .schedule = kBoth}, 4},
             {"megatron-param", {.pp = 2, .vpp = 2, .zero = 1, .clip_grad = clip, .schedule = kBoth}, 4},
             // Buckets smaller than a layer: both ranks that hold a layer fill them alike.
             {"megatron-grad", {.pp = 4, .vpp = 2, .clip_grad = clip, .schedule = kBoth}, 4, 5'000},
             {"priority", {.pp = 2, .vpp = 2, .zero = 2, .clip_grad = clip, .schedule = kBoth}, 4},
             {"fsdp", {.pp = 2, .vpp = 2, .zero = 3, .clip_grad = clip, .schedule = kBoth}, 4},
             {"serial", {.cp = 2, .pp = 2, .vpp = 2, .clip_grad = clip, .schedule = kBoth}, 4},
         }) {
      SCOPED_TRACE(fmt::format("{} tp {} cp {} pp {} zero {}, {} ranks, clipped at {}", c.policy, c.layout.tp,
                               c.layout.cp, c.layout.pp, c.layout.zero, c.ranks, clip));
      const std::vector<double> found = losses_with_sgd(c);
      ASSERT_EQ(found.size(), alone.size());
      for (std::size_t step = 0; step < found.size(); ++step) {
        EXPECT_NEAR(found[step] / alone[step], 1, 1e-5) << "step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace weft
