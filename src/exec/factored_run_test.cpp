// Training with factors of low rank, and with gradients that are encoded between nodes only, on ranks that are threads:
// what is applied and what is held back are the sum of all gradients, in every layout. Needs kernels.
// tests/compressed_runs_test.py compares what each step applies with numpy and PyTorch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/test_folder.hpp"
#include "comm/test_ranks.hpp"
#include "exec/checkpoint/test_checkpoints.hpp"
#include "exec/test_training.hpp"
#include "plan/verify/verify_plan.hpp"

namespace weft {
namespace {

using test::ScratchFolder;

struct LevelledCase {
  GradientCompression compress = {};
  Layout layout = {};
  std::int64_t ranks = 2, per_node = 1;
  std::string policy = "ddp";
  std::string name() const {
    return fmt::format("{}, tp {}, pp {}, zero {} on {} ranks, {} in a node, {}", name_of(compress), layout.tp,
                       layout.pp, layout.zero, ranks, per_node, policy);
  }
};

Transformer model_of_two_heads() {
  Transformer model = test::tiny_gpt();
  model.heads = model.kv_heads = 2;
  model.head_dim = 12;
  return model;
}

// Saves the last step in `folder`; with `from`, goes on from the checkpoint of that step.
TrainResult train_levelled(const LevelledCase& c, const TrainSettings& settings,
                           const std::filesystem::path& folder = {}, std::int64_t from = 0) {
  Layout layout = c.layout;
  layout.precision = layout.grad_dtype = ElementType::fp32;
  layout.micro_batch = 1;
  layout.dropout = false;
  layout.etp = layout.tp;
  layout.seq = 8;
  layout.compress = c.compress;
  const std::int64_t replicas = c.ranks / (layout.tp * layout.pp * layout.cp);
  const PlanRequest request = test::request(model_of_two_heads(), test::cluster_in_nodes(c.ranks, c.per_node), layout,
                                            test::kGlobalBatch / replicas);
  const WholePlan plan = make_whole_plan(request, test::build(request), c.policy);
  const std::optional<Violation> violation = verify_plan(plan);
  EXPECT_FALSE(violation.has_value()) << violation->message;
  const CheckpointJob checkpoint{folder, 0, 100, true, R"({"seed":1})", {}, {}, "00112233445566778899aabbccddeeff"};
  TrainJob job{plan, settings, Corpus::generate(3, 4096), 1, true};
  if (!folder.empty()) job.checkpoint = &checkpoint;
  std::unique_ptr<CheckpointReader> reader;
  if (from > 0) {
    const std::filesystem::path saved = folder / checkpoint_name(from);
    reader = std::make_unique<CheckpointReader>(saved, read_checkpoint(saved));
    job.resume = reader.get();
    job.first_step = from;
  }
  TrainResult result;
  const Cluster paced(request.cluster);
  local_ranks::on_ranks({.ranks = c.ranks, .cluster = &paced}, {.check = true}, [&](Communicator& communicator) {
    TrainResult own = train_rank(job, communicator, *make_kernels());
    if (communicator.rank() == 0) result = std::move(own);
  });
  return result;
}

// With a learning rate of 0 every format sees the same gradients, and with a momentum of 1 the first moment is the sum
// of all that was applied.
TrainSettings only_adding_up(std::int64_t steps) {
  TrainSettings settings;
  settings.steps = steps;
  settings.optimizer = Optimizer::sgd;
  settings.sgd = {.learning_rate = 0, .momentum = 1};
  return settings;
}

double largest_of(const std::vector<double>& values) {
  double found = 0;
  for (const double value : values) found = std::max(found, std::abs(value));
  return found;
}

// Returns the largest error that is held back.
double expect_all_gradients(const std::filesystem::path& saved, const test::WholeSums& expected) {
  const std::vector<TensorKind> errors{TensorKind::gradient_error, TensorKind::sum_error};
  const test::WholeSums applied = test::add_up_pieces(model_of_two_heads(), saved, {TensorKind::first_moment}),
                        held = test::add_up_pieces(model_of_two_heads(), saved, errors);
  double most = 0;
  for (const auto& [name, values] : expected) {
    const double scale = std::max(largest_of(values), largest_of(held.at(name)));
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(applied.at(name)[i] + held.at(name)[i], values[i], 5e-5 * scale) << name << " " << i;
      if (testing::Test::HasFailure()) return 0;
    }
    most = std::max(most, largest_of(held.at(name)));
  }
  return most;
}

GradientCompression factors(std::int64_t rank) {
  return {.format = CompressionFormat::power_sgd, .min_elements = 32, .rank = rank};
}

GradientCompression at_nodes(CompressionFormat format) {
  return {.format = format, .min_elements = 32, .between_nodes = true};
}

class LevelledRun : public testing::Test {
 protected:
  void SetUp() override {
    if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  }
};

TEST_F(LevelledRun, AppliesTheSumOfAllGradientsButForWhatItStillHolds) {
  constexpr std::int64_t kSteps = 4;
  const ScratchFolder plain("levelled_plain");
  train_levelled({}, only_adding_up(kSteps), plain.path());
  const test::WholeSums expected =
      test::add_up_pieces(model_of_two_heads(), plain.path() / checkpoint_name(kSteps), {TensorKind::first_moment});
  using enum CompressionFormat;
  for (const LevelledCase& c : std::vector<LevelledCase>{{factors(2)},
                                                         {factors(1), {.zero = 1}, 3, 1, "priority"},
                                                         {factors(2), {.tp = 2}, 4},
                                                         {factors(2), {.pp = 2, .zero = 1}, 4, 1, "serial"},
                                                         {factors(2), {.cp = 2}, 4, 2, "priority"},
                                                         {at_nodes(int8), {}, 4, 2},
                                                         {at_nodes(int4), {.zero = 1}, 4, 2, "priority"},
                                                         {at_nodes(onebit), {}, 6, 2, "priority"},
                                                         {at_nodes(top_k), {.zero = 1}, 6, 2, "serial"},
                                                         {at_nodes(int8_stochastic), {.cp = 2}, 4, 2},
                                                         {at_nodes(ternary), {}, 6, 3}}) {
    SCOPED_TRACE(c.name());
    const ScratchFolder folder("levelled_sums");
    train_levelled(c, only_adding_up(kSteps), folder.path());
    EXPECT_GT(expect_all_gradients(folder.path() / checkpoint_name(kSteps), expected), 0);
    if (HasFailure()) return;
  }
}

// Norms have no factors, and a run drops the errors of parameters that it does not compress: none has any here.
TEST_F(LevelledRun, LosesNothingWhenItGoesOnInAnotherWay) {
  GradientCompression without_norms = at_nodes(CompressionFormat::int4);
  without_norms.min_elements = 100;
  const ScratchFolder plain("levelled_plain_longer"), folder("levelled_resumed");
  train_levelled({}, only_adding_up(6), plain.path());
  train_levelled({factors(2)}, only_adding_up(2), folder.path());
  train_levelled({without_norms, {}, 6, 2}, only_adding_up(4), folder.path(), 2);
  train_levelled({factors(2), {.zero = 1}, 3}, only_adding_up(6), folder.path(), 4);
  expect_all_gradients(
      folder.path() / checkpoint_name(6),
      test::add_up_pieces(model_of_two_heads(), plain.path() / checkpoint_name(6), {TensorKind::first_moment}));
}

// The order of operations must not matter but for rounding, which low rank and coarse steps make larger.
TEST_F(LevelledRun, TrainsAlikeUnderEveryPolicy) {
  TrainSettings settings;
  settings.steps = 4;
  const double plain = train_levelled({}, settings).losses.back();
  for (const LevelledCase& c : {LevelledCase{factors(2), {}, 2, 1}, LevelledCase{factors(2), {.zero = 1}, 4, 2},
                                LevelledCase{at_nodes(CompressionFormat::int8), {}, 4, 2},
                                LevelledCase{at_nodes(CompressionFormat::int8), {.zero = 3}, 4, 2}}) {
    std::vector<double> first;
    for (const char* const policy : {"serial", "ddp", "priority", "centauri"}) {
      if (c.layout.zero == 3 && policy == std::string("ddp")) continue;
      LevelledCase one = c;
      one.policy = policy;
      SCOPED_TRACE(one.name());
      const std::vector<double> losses = train_levelled(one, settings).losses;
      if (first.empty()) first = losses;
      for (std::size_t step = 0; step < first.size(); ++step) EXPECT_NEAR(losses[step] / first[step], 1, 1e-4) << step;
    }
    // Steps are small, so what is held back does not lead far away either.
    EXPECT_NEAR(first.back() / plain, 1, 0.02) << c.name();
  }
}

}  // namespace
}  // namespace weft
