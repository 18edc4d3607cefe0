// Kernels may end after their calls have returned: training waits for them where it reads what they wrote.
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "comm/test_ranks.hpp"
#include "exec/checkpoint/test_checkpoints.hpp"
#include "exec/test_deferred_kernels.hpp"
#include "exec/test_training.hpp"

namespace weft {
namespace {

using test::DeferredKernels, test::kGlobalBatch, test::kSteps, test::PlannedLayout;

struct DeferredCase {
  Transformer model;
  Layout layout;
  std::int64_t ranks = 1;
  std::string policy = "serial";
};

Transformer small_experts() {
  Transformer model = test::tiny_gpt();
  model.heads = model.kv_heads = 2;
  model.experts = Experts{.count = 4, .top_k = 2, .ffn = 24, .capacity_factor = 1, .aux_loss_coeff = 0.02};
  return model;
}

Transformer dropping_llama() {
  Transformer model = test::small_llama(2);
  model.hidden = 16;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 4;
  model.ffn = 24;
  model.vocab = 256;
  model.max_seq = 16;
  model.qk_norm = true;
  model.dropout = {.embedding = 0.05, .attention = 0.1, .hidden = 0.2};
  return model;
}

std::vector<double> losses_of(const DeferredCase& c, const TrainSettings& settings, bool deferred) {
  Layout layout = c.layout;
  layout.micro_batch = 1;
  const std::int64_t replicas = c.ranks / (layout.tp * layout.cp * layout.pp);
  const PlannedLayout planned(c.model, layout, c.ranks, c.policy, kGlobalBatch / replicas);
  const TrainJob job{planned.whole, settings, Corpus::generate(3, 4096), 1, true};
  std::vector<double> losses;
  local_ranks::on_ranks({.ranks = c.ranks}, {}, [&](Communicator& communicator) {
    std::unique_ptr<Kernels> kernels = make_kernels();
    if (deferred) kernels = std::make_unique<DeferredKernels>(std::move(kernels));
    const TrainResult own = train_rank(job, communicator, *kernels);
    if (communicator.rank() == 0) losses = own.losses;
  });
  return losses;
}

TEST(DeferredKernels, TrainTheSameBits) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  TrainSettings settings;
  settings.steps = kSteps;
  const std::vector<DeferredCase> cases = {
      {test::tiny_gpt(), {.zero = 1, .clip_grad = 0.05}, 2, "priority"},
      {dropping_llama(), {.tp = 2}, 2, "serial"},
      {dropping_llama(), {.cp = 2, .recompute = Recompute::full}, 2, "serial"},
      {small_experts(), {.ep = 2, .expert_exchange = ExpertExchange::uneven}, 2, "serial"},
      {small_experts(), {.pp = 2}, 2, "serial"},
  };
  for (const DeferredCase& c : cases) {
    SCOPED_TRACE(fmt::format("{}, tp {}, cp {}, pp {}, ep {}", c.model.name, c.layout.tp, c.layout.cp, c.layout.pp,
                             c.layout.ep));
    const std::vector<double> losses = losses_of(c, settings, true);
    ASSERT_EQ(std::ssize(losses), kSteps);
    EXPECT_EQ(losses, losses_of(c, settings, false));
  }
}

TEST(DeferredKernels, WhatIsNotFiniteIsNamedInTheSameWords) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const auto words = [](double rate, bool deferred) -> std::string {
    TrainSettings settings;
    settings.steps = kSteps;
    settings.optimizer = Optimizer::sgd;
    settings.sgd.learning_rate = rate;
    try {
      losses_of({test::tiny_gpt(), {}, 1, "serial"}, settings, deferred);
    } catch (const RunFailed& failure) {
      return failure.what();
    }
    return "";
  };
  EXPECT_NE(words(1e30, true).find("step 2, loss forward: the loss is not finite; the first such result is that of"),
            std::string::npos)
      << words(1e30, true);
  EXPECT_EQ(words(1e30, true), words(1e30, false));
  EXPECT_NE(words(1e9, true).find("is not finite"), std::string::npos) << words(1e9, true);
  EXPECT_EQ(words(1e9, true), words(1e9, false));
}

}  // namespace
}  // namespace weft
