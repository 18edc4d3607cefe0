// Steps that are recorded once and started again train what threads train: nothing of the step that was recorded (its
// tokens, its learning rate, what it dropped out) stays in those that follow, and all wait for each other as before.
#include <gtest/gtest.h>

#include "base/test_folder.hpp"
#include "exec/test_stream_training.hpp"

namespace weft {
namespace {

using test::expect_same_losses, test::ScratchFolder, test::StreamCase, test::StreamResult, test::train;

// The first two steps are never recorded. The learning rate is another in every step.
constexpr std::int64_t kStepsTrained = 8, kRecorded = kStepsTrained - kStepsBeforeGraphs;
TrainSettings settings_with(Optimizer optimizer) {
  TrainSettings settings;
  settings.steps = kStepsTrained;
  settings.optimizer = optimizer;
  settings.sgd = {.learning_rate = 0.05, .momentum = 0.9};
  settings.schedule = {.style = DecayStyle::linear, .warmup = 2, .decay_steps = kStepsTrained};
  return settings;
}

class RecordedStepsOf : public ::testing::TestWithParam<StreamCase> {};

TEST_P(RecordedStepsOf, TrainWhatThreadsTrain) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const TrainSettings settings = settings_with(Optimizer::adam);
  const TrainResult expected = train(GetParam(), {.on_streams = false, .settings = settings});
  for (const unsigned seed : {1U, 2U}) {
    SCOPED_TRACE(seed);
    const StreamResult found = train(GetParam(), {.seed = seed, .graphs = GraphWish::always, .settings = settings});
    expect_same_losses(found, expected);
    EXPECT_EQ(found.starts, kRecorded);
    ASSERT_TRUE(found.host);
    EXPECT_EQ(found.host->first_graph_step, kStepsBeforeGraphs);
  }
}

constexpr DropoutRates kSomeDropout{.embedding = 0.05, .attention = 0.1, .hidden = 0.2};

INSTANTIATE_TEST_SUITE_P(
    Layouts, RecordedStepsOf,
    ::testing::Values(StreamCase{{}, 1}, StreamCase{{}, 1, "serial", 0, 1, kSomeDropout},
                      StreamCase{{.clip_grad = 0.05}, 1}, StreamCase{{}, 2, "priority", 0, 3},
                      StreamCase{{.zero = 1}, 2, "priority"}, StreamCase{{.zero = 3}, 2, "fsdp", 0, 2},
                      StreamCase{{.zero = 3, .clip_grad = 0.05}, 2, "priority"},
                      StreamCase{{.tp = 2, .sequence_parallel = true}, 2, "priority", 0, 1, kSomeDropout},
                      StreamCase{{.pp = 2}, 2, "megatron"}, StreamCase{{.cp = 2}, 2, "serial"},
                      StreamCase{{.ep = 2}, 2, "serial", 4}, StreamCase{{.tp = 2, .pp = 2}, 4, "priority"}));

// Encoded gradients and weights: what rounds at random draws other numbers in every step, and what encoding holds back
// is told to the host after every step.
class EncodedStepsOf : public ::testing::TestWithParam<StreamCase> {};

TEST_P(EncodedStepsOf, TrainWhatThreadsTrain) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const TrainSettings settings = settings_with(Optimizer::adam);
  const TrainResult expected = train(GetParam(), {.on_streams = false, .settings = settings});
  for (const GraphWish graphs : {GraphWish::never, GraphWish::always}) {
    const StreamResult found = train(GetParam(), {.seed = 3, .graphs = graphs, .settings = settings});
    expect_same_losses(found, expected);
    ASSERT_EQ(found.compression_errors.size(), expected.compression_errors.size());
    for (std::size_t i = 0; i < found.compression_errors.size(); ++i) {
      EXPECT_NEAR(found.compression_errors[i], expected.compression_errors[i], 1e-4) << "step " << i + 1;
    }
    EXPECT_EQ(found.compression_errors.empty(), GetParam().layout.zero > 1);
  }
}

Layout encoded_layout(CompressionFormat format, std::int32_t zero,
                      CompressionFormat weights = CompressionFormat::none) {
  Layout layout{.zero = zero};
  layout.compress = {format, 32};
  layout.compress_weights = weights;
  return layout;
}

Layout factored_layout(std::int32_t zero, std::int64_t rank) {
  Layout layout = encoded_layout(CompressionFormat::power_sgd, zero);
  layout.compress.rank = rank;
  return layout;
}

StreamCase between_nodes(CompressionFormat format, std::int32_t zero, std::int64_t ranks, const char* policy) {
  StreamCase c{encoded_layout(format, zero), ranks, policy};
  c.layout.compress.between_nodes = true;
  c.per_node = 2;
  return c;
}

INSTANTIATE_TEST_SUITE_P(Factors, EncodedStepsOf,
                         ::testing::Values(StreamCase{factored_layout(0, 2), 2, "priority"},
                                           StreamCase{factored_layout(1, 5), 2, "ddp"},
                                           StreamCase{factored_layout(0, 1), 4, "serial"}));
INSTANTIATE_TEST_SUITE_P(BetweenNodes, EncodedStepsOf,
                         ::testing::Values(between_nodes(CompressionFormat::int8, 0, 4, "ddp"),
                                           between_nodes(CompressionFormat::int8_stochastic, 1, 4, "priority"),
                                           between_nodes(CompressionFormat::top_k, 0, 6, "serial")));
INSTANTIATE_TEST_SUITE_P(Formats, EncodedStepsOf,
                         ::testing::Values(StreamCase{encoded_layout(CompressionFormat::int8, 0), 2, "priority", 0, 2},
                                           StreamCase{encoded_layout(CompressionFormat::int8_stochastic, 1), 2, "ddp"},
                                           StreamCase{encoded_layout(CompressionFormat::top_k, 0), 4, "serial"},
                                           StreamCase{encoded_layout(CompressionFormat::int8_stochastic, 3,
                                                                     CompressionFormat::int8),
                                                      2, "fsdp"}));

TEST(RecordedSteps, TrainWithMomentumToo) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const TrainSettings settings = settings_with(Optimizer::sgd);
  expect_same_losses(train({}, {.seed = 5, .graphs = GraphWish::always, .settings = settings}),
                     train({}, {.on_streams = false, .settings = settings}));
}

// Curvature and inverses of every step are recorded; where layers take turns, steps go call by call.
TEST(RecordedSteps, TrainWithKfacToo) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  TrainSettings settings = settings_with(Optimizer::kfac);
  settings.kfac.damping = 0.1;
  for (const std::int64_t ranks : {1, 2}) {
    const StreamCase every{{.kfac_interval = 1}, ranks}, in_turns{{.kfac_interval = 3}, ranks};
    expect_same_losses(train(every, {.seed = 5, .graphs = GraphWish::always, .settings = settings}),
                       train(every, {.on_streams = false, .settings = settings}));
    expect_same_losses(train(in_turns, {.seed = 6, .settings = settings}),
                       train(in_turns, {.on_streams = false, .settings = settings}));
  }
}

// Validation runs call by call between them.
TEST(RecordedSteps, GoOnAfterValidation) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const ValidationJob validation{3, 2, Corpus::generate(5, 4096)};
  const TrainSettings settings = settings_with(Optimizer::adam);
  const StreamCase c{{.zero = 1}, 2, "priority"};
  const StreamResult found =
      train(c, {.seed = 4, .validation = &validation, .graphs = GraphWish::always, .settings = settings});
  expect_same_losses(found, train(c, {.on_streams = false, .validation = &validation, .settings = settings}));
  EXPECT_EQ(found.starts, kRecorded);
}

TEST(RecordedSteps, HaveATimeForEveryOperation) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const StreamResult result =
      train({{.zero = 1}, 2, "priority"},
            {.seed = 7, .graphs = GraphWish::always, .settings = settings_with(Optimizer::adam)});
  ASSERT_EQ(result.run.ranks.size(), 2U);
  for (const MeasuredRank& rank : result.run.ranks) {
    ASSERT_FALSE(rank.spans.empty());
    for (const RankSpan& span : rank.spans) {
      EXPECT_LE(span.start, span.end);
      EXPECT_LE(span.ready, span.end);
      EXPECT_GT(span.start, 0);
    }
  }
}

CheckpointJob saves_to(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  CheckpointJob job;
  job.folder = folder;
  job.every = 3;
  job.keep = 9;
  job.run = R"({"seed":1})";
  job.run_id = std::string(32, 'a');
  return job;
}

// What a checkpoint holds is read from the device between two steps.
TEST(RecordedSteps, AreSavedAsThreadsSaveThem) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const ScratchFolder folder("recorded_steps");
  const StreamCase c{{.zero = 1}, 2, "priority"};
  const TrainSettings settings = settings_with(Optimizer::adam);
  std::vector<test::WholeTensors> saved;
  for (const bool on_streams : {false, true}) {
    const CheckpointJob job = saves_to(folder.path() / (on_streams ? "streams" : "threads"));
    train(c, {.on_streams = on_streams, .graphs = GraphWish::always, .settings = settings, .checkpoint = &job});
    for (const std::int64_t step : {std::int64_t{3}, std::int64_t{6}, kStepsTrained}) {
      saved.push_back(test::whole_tensors(job.folder / checkpoint_name(step), test::model_of(c),
                                          {TensorKind::weight, TensorKind::first_moment, TensorKind::second_moment}));
    }
  }
  for (std::size_t i = 0; i < 3; ++i) {
    for (const auto& [name, expected] : saved[i]) {
      const std::vector<float>& found = saved[i + 3].at(name);
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t e = 0; e < found.size(); ++e) ASSERT_NEAR(found[e], expected[e], 1e-5) << name.second;
    }
  }
}

// A run that is asked to stop trains a step or two more and no others.
TEST(RecordedSteps, EndWhereTheyAreAskedTo) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const ScratchFolder folder("recorded_steps_stop");
  const TrainSettings settings = settings_with(Optimizer::adam);
  CheckpointJob job = saves_to(folder.path() / "saves");
  job.asked_to_stop = [asked = 0]() mutable { return ++asked > 4; };
  const StreamResult found = train({}, {.graphs = GraphWish::always, .settings = settings, .checkpoint = &job});
  const TrainResult expected = train({}, {.on_streams = false, .settings = settings});
  EXPECT_TRUE(found.stopped);
  ASSERT_LT(found.losses.size(), expected.losses.size());
  ASSERT_GT(found.losses.size(), 4U);
  for (std::size_t i = 0; i < found.losses.size(); ++i) {
    EXPECT_NEAR(found.losses[i], expected.losses[i], 2e-6 * expected.losses[i]) << "step " << i + 1;
  }
  EXPECT_EQ(found.starts, std::ssize(found.losses) - kStepsBeforeGraphs);
}

// Two steps do not count, three are measured, and when the last of them has ended, the next one is under way.
TEST(RecordedSteps, BeginWhereTheDeviceWaitsForTheHost) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  TrainSettings settings = settings_with(Optimizer::adam);
  settings.steps = 12;
  const StreamResult found = train({}, {.graphs = GraphWish::automatic, .works_at_once = true, .settings = settings});
  expect_same_losses(found, train({}, {.on_streams = false, .settings = settings}));
  ASSERT_TRUE(found.host);
  EXPECT_EQ(found.host->first_graph_step, kStepsBeforeGraphs + kStepsToCompare + 1);
  // Whether they stay is this processor's word: it is as fast either way.
  EXPECT_GE(found.starts, kStepsToCompare + 2);
}

TEST(RecordedSteps, StayAwayWhereItDoesNot) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const StreamResult found = train({}, {.graphs = GraphWish::automatic, .settings = settings_with(Optimizer::adam)});
  ASSERT_TRUE(found.host);
  EXPECT_EQ(found.host->why, "the device does not wait for the host");
  EXPECT_EQ(found.starts, 0);
}

TEST(RecordedSteps, AreGivenUpByAllRanksWhereOneCannotRecord) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const StreamCase c{{.zero = 1}, 2, "priority"};
  try {
    train(c, {.seed = 4, .graphs = GraphWish::always, .rank_that_refuses_recordings = 1});
    ADD_FAILURE() << "trained";
  } catch (const RunFailed& failure) {
    EXPECT_NE(std::string(failure.what()).find("rank 1 cannot record a step"), std::string::npos) << failure.what();
  }
}

TEST(RecordedSteps, AreRefusedWhereCollectivesCannotBeRecorded) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const StreamCase c{{.zero = 1}, 2, "priority"};
  EXPECT_THROW(train(c, {.rehearses = true, .graphs = GraphWish::always}), Error);
  const StreamResult found = train(c, {.rehearses = true, .graphs = GraphWish::automatic});
  ASSERT_TRUE(found.host);
  EXPECT_EQ(found.host->why, "these collectives cannot be recorded");
  EXPECT_EQ(found.starts, 0);
}

}  // namespace
}  // namespace weft
