// Validation on ranks that are threads: the loss of a forward pass alone, between training steps that it must not
// change. Needs kernels.
#include <gtest/gtest.h>

#include "comm/test_ranks.hpp"
#include "exec/checkpoint/test_checkpoints.hpp"
#include "exec/test_training.hpp"

namespace weft {
namespace {

using test::kGlobalBatch, test::kSteps, test::PlannedLayout;

struct Case {
  std::string policy;
  Layout layout;
  std::int64_t ranks = 2;
  bool experts = false;
  std::string name() const {
    return fmt::format("{} tp {} cp {} pp {} ep {} zero {} on {} ranks", policy, layout.tp, layout.cp, layout.pp,
                       layout.ep, layout.zero, ranks);
  }
};

std::vector<Case> cases() {
  using enum PipelineSchedule;
  return {{"serial", {}, 1},
          {"serial", {.zero = 2}},
          {"ddp", {.recompute = Recompute::full}},
          {"priority", {}},
          {"priority", {.zero = 1, .clip_grad = 0.1}},
          {"priority", {.zero = 3}},
          {"megatron-param", {.zero = 1}},
          {"fsdp", {.zero = 2}},
          {"fsdp", {.zero = 3}},
          {"priority", {.tp = 2, .sequence_parallel = true}},
          {"centauri", {.tp = 2}},
          {"priority", {.cp = 2}},
          {"priority", {.pp = 2, .schedule = one_f_one_b}},
          {"serial", {.pp = 2, .vpp = 2, .schedule = interleaved}},
          {"priority", {.tp = 2, .pp = 2}, 4},
          {"fsdp", {.tp = 2, .zero = 3}, 4},
          {"priority", {.pp = 2, .zero = 2}, 4},
          {"priority", {.ep = 2}, 2, true},
          {"lancet", {.ep = 2}, 2, true},
          {"priority", {.ep = 2, .expert_exchange = ExpertExchange::uneven}, 2, true},
          {"fsdp", {.ep = 2, .zero = 3}, 4, true},
          {"priority", {.pp = 2, .ep = 2}, 4, true}};
}

Transformer model_of(const Case& c) {
  Transformer model = test::small_gpt(4);
  model.hidden = 16;
  model.heads = model.kv_heads = 4;
  model.head_dim = 4;
  model.ffn = 24;
  model.vocab = 256;
  model.max_seq = 16;
  if (c.experts) {
    model.experts =
        Experts{.count = 4, .top_k = 1, .ffn = 24, .capacity_factor = 1, .every = 2, .aux_loss_coeff = 0.02};
  }
  return model;
}

// A text of as many sequences as a step takes: every step sees all of them, in another order.
std::shared_ptr<const Corpus> one_step_of_text(std::int64_t seq) {
  return Corpus::generate(3, kGlobalBatch * seq + 1);
}

TrainResult train(const Transformer& model, const Case& c, const TrainSettings& settings,
                  const ValidationJob* validation) {
  Layout layout = c.layout;
  layout.micro_batch = 1;
  const std::int64_t replicas = c.ranks / (layout.tp * layout.cp * layout.pp);
  const PlannedLayout planned(model, layout, c.ranks, c.policy, kGlobalBatch / replicas);
  TrainJob job{planned.whole, settings, one_step_of_text(planned.whole.plan().layout.seq), 1, true};
  job.validation = validation;
  ValidationJob own;
  if (validation != nullptr && validation->corpus == nullptr) {
    own = *validation;
    own.corpus = job.corpus;
    job.validation = &own;
  }
  TrainResult result;
  local_ranks::on_ranks({.ranks = c.ranks}, {}, [&](Communicator& communicator) {
    TrainResult of_rank = train_rank(job, communicator, *make_kernels());
    if (communicator.rank() == 0) result = std::move(of_rank);
  });
  return result;
}

// On the text that is trained on, the loss of validation after n steps is the training loss of the next step: the same
// weights, the same sequences in another order. And training goes on as if nothing had been.
TEST(Validation, IsTheLossThatTheNextStepStartsFrom) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  TrainSettings settings;
  settings.steps = kSteps;
  settings.schedule = {.style = DecayStyle::cosine, .warmup = 1, .minimum = 1e-4, .decay_steps = kSteps};
  const ValidationJob every_step{1, 1, nullptr};
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name());
    const std::vector<double> plain = train(model_of(c), c, settings, nullptr).losses;
    const TrainResult validated = train(model_of(c), c, settings, &every_step);
    EXPECT_EQ(validated.losses, plain);
    ASSERT_EQ(std::ssize(validated.validation), kSteps);
    for (std::int64_t n = 1; n < kSteps; ++n) {
      const ValidationLoss& loss = validated.validation[n - 1];
      EXPECT_EQ(loss.steps, n);
      EXPECT_NEAR(loss.loss / plain[n], 1, 1e-6) << n;
    }
    EXPECT_LT(validated.validation.back().loss, plain.back());
  }
}

// Where nothing is learnt, every batch has the loss that the model without dropout has on it; several are averaged.
TEST(Validation, DropsNothingOutAndTakesTheMeanOfItsBatches) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  TrainSettings settings;
  settings.steps = kSteps;
  settings.adam.learning_rate = 0;
  for (const AttentionKernel kernel : {AttentionKernel::flash, AttentionKernel::unfused}) {
    const Case c{"priority", {.attention = kernel}};
    Transformer dropping = model_of(c);
    dropping.dropout = {.embedding = 0.3, .attention = 0.3, .hidden = 0.3};
    const std::vector<double> without = train(model_of(c), c, settings, nullptr).losses;
    const ValidationJob twice{3, 2, nullptr};
    const TrainResult with = train(dropping, c, settings, &twice);
    EXPECT_GT(std::abs(with.losses.front() / without.front() - 1), 1e-4);  // it does drop out
    ASSERT_EQ(with.validation.size(), 2U);                                 // after 3 steps and the last
    EXPECT_EQ(with.validation[0].steps, 3);
    EXPECT_EQ(with.validation[1].steps, kSteps);
    for (const ValidationLoss& loss : with.validation) {
      EXPECT_NEAR(loss.loss / ((without[0] + without[1]) / 2), 1, 1e-7);
    }
  }
}

// Of steps with validation between them the longest stretch is measured: steps 2 and 3 of 2 + 2 + 1.
TEST(Validation, LeavesAMeasurementOfUninterruptedSteps) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  TrainSettings settings;
  settings.steps = 5;
  const Case c{"ddp", {}};
  const ValidationJob validation{2, 1, nullptr};
  const TrainResult result = train(model_of(c), c, settings, &validation);
  EXPECT_EQ(result.run.steps, 2);
  EXPECT_EQ(result.run.before, 2);
  EXPECT_EQ(result.run.warm_up, 1);
  ASSERT_EQ(result.validation.size(), 3U);
  EXPECT_EQ(result.validation.back().steps, 5);
}

}  // namespace
}  // namespace weft
