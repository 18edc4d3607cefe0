// Training with compressed gradients on ranks that are threads: what is held back is applied later, whoever encodes
// and decodes it. Needs kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/test_folder.hpp"
#include "comm/test_ranks.hpp"
#include "exec/checkpoint/test_checkpoints.hpp"
#include "exec/compression_errors.hpp"
#include "exec/test_training.hpp"

namespace weft {
namespace {

namespace fs = std::filesystem;
using test::kGlobalBatch, test::PlannedLayout, test::ScratchFolder;

struct CompressedCase {
  CompressionFormat format = CompressionFormat::none;
  Layout layout = {};
  std::int64_t ranks = 2;
  std::string policy = "ddp";
  std::string name() const {
    return fmt::format("{}, tp {}, zero {} on {} ranks, {}", name_of(format), layout.tp, layout.zero, ranks, policy);
  }
};

Transformer two_headed_gpt() {
  Transformer model = test::tiny_gpt();
  model.heads = model.kv_heads = 2;
  model.head_dim = 12;
  return model;
}

PlannedLayout planned(const CompressedCase& c) {
  Layout layout = c.layout;
  layout.micro_batch = 1;
  layout.compress = {c.format, 32};  // of the model's parameters only the smallest norms stay as they are
  const std::int64_t replicas = c.ranks / (layout.tp * layout.pp * layout.cp);
  return {two_headed_gpt(), layout, c.ranks, c.policy, kGlobalBatch / replicas};
}

struct CompressedRun {
  TrainSettings settings = {};
  fs::path folder = {};   // checkpoints; empty: none
  std::int64_t from = 0;  // the checkpoint that it goes on from; 0: none
};

TrainResult train(const CompressedCase& c, const CompressedRun& run) {
  const PlannedLayout plan = planned(c);
  CheckpointJob checkpoint{run.folder, 0, 100, true, R"({"seed":1})", {}, {}, "00112233445566778899aabbccddeeff"};
  TrainJob job{plan.whole, run.settings, Corpus::generate(3, 4096), 1, true};
  if (!run.folder.empty()) job.checkpoint = &checkpoint;
  std::unique_ptr<CheckpointReader> reader;
  if (run.from > 0) {
    const fs::path saved = run.folder / checkpoint_name(run.from);
    reader = std::make_unique<CheckpointReader>(saved, read_checkpoint(saved));
    job.resume = reader.get();
    job.first_step = run.from;
  }
  TrainResult result;
  local_ranks::on_ranks({.ranks = c.ranks}, {.check = true}, [&](Communicator& communicator) {
    TrainResult own = train_rank(job, communicator, *make_kernels());
    if (communicator.rank() == 0) result = std::move(own);
  });
  return result;
}

// With a learning rate of 0 weights stay what they are, so every format sees the same gradients; with a momentum of 1
// the first moment is their sum over all steps.
CompressedRun adding_up(std::int64_t steps, const fs::path& folder, std::int64_t from = 0) {
  CompressedRun run{.folder = folder, .from = from};
  run.settings.steps = steps;
  run.settings.optimizer = Optimizer::sgd;
  run.settings.sgd = {.learning_rate = 0, .momentum = 1};
  return run;
}

using Sums = test::WholeSums;

Sums sums_of(const fs::path& checkpoint, const std::vector<TensorKind>& kinds) {
  return test::add_up_pieces(two_headed_gpt(), checkpoint, kinds);
}

Sums all_gradients(const fs::path& checkpoint) {
  return sums_of(checkpoint, {TensorKind::first_moment, TensorKind::gradient_error, TensorKind::sum_error});
}

double largest(const std::vector<double>& values) {
  double found = 0;
  for (const double value : values) found = std::max(found, std::abs(value));
  return found;
}

// A sum over a few steps and ranks of numbers in fp32 is off by some units of the largest of them, and errors of the
// coarse formats are larger than the gradients that they are of.
void expect_equal_to_rounding(const Sums& found, const Sums& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, values] : expected) {
    const double scale = largest(values);
    ASSERT_GT(scale, 0) << name;
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(found.at(name)[i], values[i], tolerance * scale) << name << " " << i;
    }
  }
}

std::vector<CompressedCase> compressed_cases() {
  using enum CompressionFormat;
  return {{bf16},
          {int8},
          {int8, {}, 3, "serial"},
          {int8, {.zero = 1}, 3, "priority"},
          {int8_stochastic, {.tp = 2}, 4, "priority"},
          {int4, {.zero = 1}},
          {fp8_e4m3, {.cp = 2}, 2, "serial"},
          {fp8_e5m2, {.pp = 2, .zero = 1}, 4},
          {onebit},
          {ternary, {.zero = 1}, 2, "priority"},
          {top_k, {}, 4},
          {random_k, {.zero = 1}}};
}

class CompressionRun : public testing::Test {
 protected:
  void SetUp() override {
    if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  }
};

TEST_F(CompressionRun, AppliesTheSumOfAllGradientsButForWhatItStillHolds) {
  constexpr std::int64_t kSteps = 5;
  const ScratchFolder plain("compress_plain");
  train({}, adding_up(kSteps, plain.path()));
  const Sums expected = sums_of(plain.path() / checkpoint_name(kSteps), {TensorKind::first_moment});
  for (const CompressedCase& c : compressed_cases()) {
    SCOPED_TRACE(c.name());
    const ScratchFolder folder("compress_sums");
    train(c, adding_up(kSteps, folder.path()));
    const fs::path saved = folder.path() / checkpoint_name(kSteps);
    expect_equal_to_rounding(all_gradients(saved), expected, 3e-5);
    // And something was held back.
    double held = 0;
    for (const auto& [name, errors] : sums_of(saved, {TensorKind::gradient_error, TensorKind::sum_error})) {
      held = std::max(held, largest(errors));
    }
    EXPECT_GT(held, 0);
  }
}

TEST_F(CompressionRun, LosesNothingWhenItGoesOnWithOtherRanks) {
  const ScratchFolder plain("compress_plain_longer"), folder("compress_resumed");
  train({}, adding_up(6, plain.path()));
  train({CompressionFormat::int4}, adding_up(3, folder.path()));
  train({CompressionFormat::top_k, {.zero = 1}, 3}, adding_up(6, folder.path(), 3));
  expect_equal_to_rounding(all_gradients(folder.path() / checkpoint_name(6)),
                           sums_of(plain.path() / checkpoint_name(6), {TensorKind::first_moment}), 3e-5);
}

TEST_F(CompressionRun, TrainsAlikeUnderEveryPolicy) {
  CompressedRun run;
  run.settings.steps = 4;
  for (const int zero : {0, 1}) {
    std::vector<double> first;
    for (const char* const policy : {"serial", "ddp", "megatron", "priority"}) {
      const std::vector<double> losses = train({CompressionFormat::int8, {.zero = zero}, 2, policy}, run).losses;
      if (first.empty()) first = losses;
      // Sums of the parameters that are not compressed are taken in another order, which may change a code by one.
      for (std::size_t step = 0; step < first.size(); ++step) {
        EXPECT_NEAR(losses[step] / first[step], 1, 1e-4) << policy << ", zero " << zero << ", step " << step;
      }
    }
  }
}

// One encoding of int8 changes a gradient by less than a hundredth, and losses of a few small steps by less than that.
TEST_F(CompressionRun, FineFormatsTrainAlmostTheSameLosses) {
  CompressedRun run;
  run.settings.steps = 8;
  run.settings.optimizer = Optimizer::sgd;
  run.settings.sgd = {.learning_rate = 0.1};
  const std::vector<double> plain = train({}, run).losses;
  EXPECT_LT(plain.back(), plain.front());
  for (const CompressionFormat format : {CompressionFormat::bf16, CompressionFormat::fp16, CompressionFormat::int8,
                                         CompressionFormat::int8_stochastic}) {
    const std::vector<double> losses = train({format, {.zero = 1}}, run).losses;
    ASSERT_EQ(losses.size(), plain.size());
    for (std::size_t step = 0; step < plain.size(); ++step) {
      EXPECT_NEAR(losses[step] / plain[step], 1, 1e-3) << name_of(format) << " step " << step;
    }
  }
}

// Coarser formats hold back more, from the first step on.
TEST_F(CompressionRun, SaysHowMuchOfTheGradientsItHoldsBack) {
  CompressedRun run;
  run.settings.steps = 4;
  EXPECT_TRUE(train({}, run).compression_errors.empty());
  double finer = 0;
  for (const CompressionFormat format :
       {CompressionFormat::bf16, CompressionFormat::int8, CompressionFormat::int4, CompressionFormat::onebit}) {
    const std::vector<double> errors = train({format}, run).compression_errors;
    ASSERT_EQ(errors.size(), 4U);
    for (const double error : errors) EXPECT_GT(error, 0) << name_of(format);
    // A fresh error is that of one encoding. Gradients are no normal numbers, so this is an order of magnitude.
    EXPECT_GT(errors.front(), 0.1 * expected_error(format)) << name_of(format);
    EXPECT_LT(errors.front(), 10 * expected_error(format)) << name_of(format);
    EXPECT_GT(errors.front(), finer) << name_of(format);
    finer = errors.front();
  }
}

// Nine losses from the first on; the last five decide, and only all of them.
TEST(Divergence, IsFiveLossesAboveTwiceTheFirst) {
  EXPECT_FALSE(has_diverged({}));
  EXPECT_FALSE(has_diverged(std::vector<double>{9, 9, 9, 9, 9}));
  EXPECT_TRUE(has_diverged(std::vector<double>{4, 5, 6, 7, 8.1, 9, 9, 9, 8.1}));
  EXPECT_FALSE(has_diverged(std::vector<double>{4, 5, 6, 7, 8.1, 9, 9, 9, 8.0}));
  EXPECT_FALSE(has_diverged(std::vector<double>{4, 5, 6, 7, 8.1, 7, 9, 9, 9}));
}

// A learning rate that is far too large: Adam moves every weight by about 1 in a step, so the loss rises and stays
// finite.
TEST_F(CompressionRun, EndsWithWordsWhenItDiverges) {
  CompressedRun run;
  run.settings.steps = 15;
  run.settings.adam = {.learning_rate = 1};
  const std::vector<double> plain = train({}, run).losses;
  ASSERT_TRUE(has_diverged(plain)) << "the case tests nothing: " << plain.back() << " after " << plain.front();
  try {
    train({CompressionFormat::bf16}, run);
    FAIL() << "trained on";
  } catch (const RunFailed& failure) {
    // Numbers that are no longer finite end a run too, and may come first: rounding decides.
    const std::string words = failure.what();
    EXPECT_TRUE(words.find("gradients as bf16 diverges") != std::string::npos ||
                words.find("is not finite") != std::string::npos)
        << words;
  }
}

}  // namespace
}  // namespace weft
