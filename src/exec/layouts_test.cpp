// Layouts beyond data parallelism on ranks that are threads: whatever cuts model, sequence and steps apart, the losses
// are those of one rank. Small enough for the sanitizers, which see every path of the executor here. Needs kernels.
#include <gtest/gtest.h>

#include "comm/test_ranks.hpp"
#include "exec/checkpoint/test_checkpoints.hpp"
#include "exec/test_training.hpp"

namespace weft {
namespace {

using test::kGlobalBatch, test::kSteps, test::PlannedLayout;

struct LayoutCase {
  std::string name;
  Layout layout;
  std::int64_t ranks = 2;
  std::vector<std::string> policies = {"serial", "priority"};
};

std::vector<LayoutCase> layout_cases() {
  using enum PipelineSchedule;
  return {
      {"tp 2", {.tp = 2}},
      {"tp 2, sequence parallel", {.tp = 2, .sequence_parallel = true}},
      {"cp 2", {.cp = 2}},
      {"pp 2, gpipe", {.pp = 2, .schedule = gpipe}},
      {"pp 2, 1f1b", {.pp = 2, .schedule = one_f_one_b}},
      {"pp 2, interleaved", {.pp = 2, .vpp = 2, .schedule = interleaved}},
      {"pp 2, uneven", {.pp = 2, .stage_layers = {1, 3}}},
      {"tp 2, pp 2", {.tp = 2, .pp = 2}, 4, {"priority"}},
      {"tp 2, cp 2", {.tp = 2, .cp = 2}, 4, {"priority"}},
      {"pp 2, dp 2, zero 2", {.pp = 2, .zero = 2}, 4, {"priority"}},
      {"tp 2, dp 2, zero 3", {.tp = 2, .zero = 3}, 4, {"fsdp"}},
  };
}

std::vector<Transformer> two_models() {
  Transformer gpt = test::small_gpt(4), llama = test::small_llama(4);
  for (Transformer* model : {&gpt, &llama}) {
    model->hidden = 16;
    model->heads = 4;
    model->kv_heads = 2;
    model->head_dim = 4;
    model->ffn = 24;
    model->vocab = 256;
    model->max_seq = 16;
  }
  gpt.kv_heads = 4;
  llama.qk_norm = true;  // the GPT has none
  return {gpt, llama};
}

std::vector<double> losses_of(const Transformer& model, Layout layout, std::int64_t ranks, const std::string& policy) {
  layout.micro_batch = 1;
  const std::int64_t replicas = ranks / (layout.tp * layout.cp * layout.pp);
  const PlannedLayout planned(model, layout, ranks, policy, kGlobalBatch / replicas);
  TrainSettings settings;
  settings.steps = kSteps;
  const TrainJob job{planned.plan, planned.unfolded, planned.original, settings, Corpus::generate(3, 4096), 1, true};
  std::vector<double> losses;
  local_ranks::on_ranks({.ranks = ranks}, {}, [&](Communicator& communicator) {
    const TrainResult own = train_rank(job, communicator);
    if (communicator.rank() == 0) losses = own.losses;
  });
  return losses;
}

// One rank agrees with PyTorch (tests/run_oracle_test.py).
TEST(Layouts, TrainWhatOneRankTrains) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  set_kernel_threads(1);
  for (const Transformer& model : two_models()) {
    const std::vector<double> alone = losses_of(model, {}, 1, "serial");
    ASSERT_EQ(std::ssize(alone), kSteps);
    EXPECT_LT(alone.back(), alone.front());
    for (const LayoutCase& c : layout_cases()) {
      for (const std::string& policy : c.policies) {
        SCOPED_TRACE(fmt::format("{}, {}, {}", model.name, c.name, policy));
        const std::vector<double> losses = losses_of(model, c.layout, c.ranks, policy);
        ASSERT_EQ(losses.size(), alone.size());
        for (std::size_t step = 0; step < losses.size(); ++step) {
          EXPECT_NEAR(losses[step] / alone[step], 1, 1e-5) << "step " << step;
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft
