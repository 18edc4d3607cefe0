// Plans on streams: whatever order an accelerator finds between its streams, the same training comes out as on this
// processor.
#include "exec/stream_run.hpp"

#include <gtest/gtest.h>

#include "comm/test_ranks.hpp"
#include "exec/checkpoint/test_checkpoints.hpp"
#include "exec/test_fake_collectives.hpp"
#include "exec/test_training.hpp"

namespace weft {
namespace {

using test::FakeAccelerator, test::FakeCollectives, test::FakeFabric, test::kGlobalBatch, test::PlannedLayout;

struct StreamCase {
  Layout layout;
  std::int64_t ranks = 1;
  std::string policy = "serial";
  std::int64_t experts = 0;
  int queues = 1;  // of the streams' plan
};

Transformer model_of(const StreamCase& c) {
  Transformer model = test::tiny_gpt();
  model.heads = model.kv_heads = 2;
  if (c.experts > 0) model.experts = Experts{.count = c.experts, .top_k = 2, .ffn = 24, .capacity_factor = 1};
  return model;
}

TrainResult train(const StreamCase& c, bool on_streams, unsigned seed, const ValidationJob* validation = nullptr,
                  bool rehearses = false) {
  Layout layout = c.layout;
  layout.micro_batch = 1;
  const std::int64_t replicas = c.ranks / (layout.tp * layout.cp * layout.pp);
  const PlanRequest request = PlannedLayout::request_of(model_of(c), layout, c.ranks, kGlobalBatch / replicas);
  const SharedGraph graph = test::build(request);
  Overlap overlap = decide_overlap(request, graph, c.policy);
  if (on_streams) overlap.order.queues = c.queues;
  const WholePlan whole = make_whole_plan(request, graph, c.policy, overlap);
  TrainSettings settings;
  settings.steps = 5;
  TrainJob job{whole, settings, Corpus::generate(3, 4096), 1, true};
  job.validation = validation;
  FakeFabric fabric;
  TrainResult result;
  local_ranks::on_ranks({.ranks = c.ranks}, {}, [&](Communicator& communicator) {
    TrainResult own;
    if (on_streams) {
      FakeAccelerator accelerator(seed + static_cast<unsigned>(communicator.rank()));
      FakeCollectives collectives(fabric, communicator.rank(), rehearses);
      own = train_rank(job, communicator, Processor(accelerator, &collectives));
    } else {
      own = train_rank(job, communicator, *make_kernels());
    }
    if (communicator.rank() == 0) result = std::move(own);
  });
  return result;
}

class StreamRunOf : public ::testing::TestWithParam<StreamCase> {};

// Sums over ranks may be taken in another order, so losses agree to the precision of floats. An operation that runs too
// early or too late reads other numbers altogether: losses of five steps then differ by a thousandth and more.
TEST_P(StreamRunOf, TrainsWhatThreadsTrain) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const std::vector<double> expected = train(GetParam(), false, 0).losses;
  for (const unsigned seed : {1U, 2U}) {
    const std::vector<double> losses = train(GetParam(), true, seed).losses;
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(losses[i], expected[i], 2e-6 * expected[i]) << "seed " << seed << ", step " << i + 1;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, StreamRunOf,
    ::testing::Values(StreamCase{{}, 1}, StreamCase{{.clip_grad = 0.05}, 1}, StreamCase{{}, 2, "ddp"},
                      StreamCase{{.zero = 1}, 2, "priority"}, StreamCase{{.zero = 2}, 2, "megatron"},
                      StreamCase{{.zero = 3}, 3, "fsdp"}, StreamCase{{.zero = 3, .clip_grad = 0.05}, 2, "priority"},
                      StreamCase{{.tp = 2}, 2, "megatron"},
                      StreamCase{{.tp = 2, .sequence_parallel = true}, 2, "priority"},
                      StreamCase{{.pp = 2}, 2, "megatron"}, StreamCase{{.cp = 2}, 2, "serial"},
                      StreamCase{{.ep = 2}, 2, "serial", 4}, StreamCase{{.tp = 2, .pp = 2}, 4, "priority"},
                      StreamCase{{}, 2, "priority", 0, 3}, StreamCase{{.zero = 3}, 2, "fsdp", 0, 2}));

TEST(StreamRun, MeasuresEveryOperationAfterWhatItWaitsFor) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const TrainResult result = train({{.zero = 1}, 2, "priority"}, true, 7);
  ASSERT_EQ(result.run.ranks.size(), 2U);
  for (const MeasuredRank& rank : result.run.ranks) {
    ASSERT_FALSE(rank.spans.empty());
    for (const RankSpan& span : rank.spans) {
      EXPECT_LE(span.start, span.end);
      EXPECT_LE(span.ready, span.end);
    }
  }
}

// Plans for a library name algorithms too, by which it was predicted.
TEST(StreamRun, RunsProgramsOfOurOwnWhereThePlanIsMadeOfThem) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  for (const CollectiveMaker maker : {CollectiveMaker::library, CollectiveMaker::programs}) {
    PlanRequest request = PlannedLayout::request_of(model_of({}), {.micro_batch = 1}, 2, kGlobalBatch / 2);
    request.cluster.execution.collectives = maker;
    const WholePlan whole = make_whole_plan(request, test::build(request), "ddp");
    const TrainJob job{whole, {}, Corpus::generate(3, 4096), 1, true};
    FakeFabric fabric;
    local_ranks::on_ranks({.ranks = 2}, {}, [&](Communicator& communicator) {
      FakeAccelerator accelerator(static_cast<unsigned>(communicator.rank()));
      FakeCollectives collectives(fabric, communicator.rank());
      train_rank(job, communicator, Processor(accelerator, &collectives));
      EXPECT_FALSE(collectives.calls().empty());
      for (const PreparedCall& call : collectives.calls()) {
        EXPECT_EQ(call.program != nullptr, maker == CollectiveMaker::programs) << call.label;
      }
    });
  }
}

// Collectives only know that something broke.
TEST(StreamRun, NamesTheLostRankWhereCollectivesFailFirst) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const PlannedLayout planned(model_of({}), {.micro_batch = 1}, 2, "ddp", kGlobalBatch / 2);
  const TrainJob job{planned.whole, {}, Corpus::generate(3, 4096), 1, true};
  FakeFabric fabric;
  std::array<std::string, 2> words;
  local_ranks::on_ranks({.ranks = 2}, {}, [&](Communicator& communicator) {
    FakeAccelerator accelerator(static_cast<unsigned>(communicator.rank()));
    FakeCollectives collectives(fabric, communicator.rank());
    collectives.break_with("NCCL: remote error");
    std::thread watch;
    if (communicator.rank() == 0) {
      watch = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        communicator.fail("rank 7 was lost");
      });
    }
    try {
      train_rank(job, communicator, Processor(accelerator, &collectives));
    } catch (const RunFailed& failure) {
      words[static_cast<std::size_t>(communicator.rank())] = failure.what();
    }
    if (watch.joinable()) watch.join();
  });
  for (const std::string& said : words) EXPECT_NE(said.find("rank 7 was lost"), std::string::npos) << said;
}

// Whatever a rehearsal leaves behind would change the losses.
TEST(StreamRun, TrainsTheSameAfterARehearsal) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const ValidationJob validation{2, 2, Corpus::generate(5, 4096)};
  for (const StreamCase& c : {StreamCase{{.zero = 3, .clip_grad = 0.05}, 2, "priority"},
                              StreamCase{{.ep = 2}, 2, "serial", 4}, StreamCase{{.tp = 2, .pp = 2}, 4, "priority"}}) {
    const TrainResult expected = train(c, false, 0, &validation), found = train(c, true, 3, &validation, true);
    ASSERT_EQ(found.losses.size(), expected.losses.size());
    for (std::size_t i = 0; i < expected.losses.size(); ++i) {
      EXPECT_NEAR(found.losses[i], expected.losses[i], 2e-6 * expected.losses[i]) << c.policy << ", step " << i + 1;
    }
    ASSERT_EQ(found.validation.size(), expected.validation.size());
    for (std::size_t i = 0; i < expected.validation.size(); ++i) {
      EXPECT_NEAR(found.validation[i].loss, expected.validation[i].loss, 2e-6 * expected.validation[i].loss);
    }
  }
}

TEST(StreamRun, ValidatesBetweenSteps) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const ValidationJob validation{2, 2, Corpus::generate(5, 4096)};
  const StreamCase c{{.zero = 1}, 2, "priority"};
  const TrainResult expected = train(c, false, 0, &validation), found = train(c, true, 4, &validation);
  ASSERT_EQ(found.validation.size(), expected.validation.size());
  for (std::size_t i = 0; i < expected.validation.size(); ++i) {
    EXPECT_NEAR(found.validation[i].loss, expected.validation[i].loss, 2e-6 * expected.validation[i].loss);
  }
}

}  // namespace
}  // namespace weft
