// Plans on streams: whatever order an accelerator finds between its streams, the same training comes out as on this
// processor.
#include "exec/stream_run.hpp"

#include <gtest/gtest.h>

#include "exec/test_stream_training.hpp"

namespace weft {
namespace {

using test::expect_same_losses, test::StreamCase, test::train;

class StreamRunOf : public ::testing::TestWithParam<StreamCase> {};

TEST_P(StreamRunOf, TrainsWhatThreadsTrain) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const TrainResult expected = train(GetParam(), {.on_streams = false});
  for (const unsigned seed : {1U, 2U}) {
    SCOPED_TRACE(seed);
    expect_same_losses(train(GetParam(), {.seed = seed}), expected);
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
  const TrainResult result = train({{.zero = 1}, 2, "priority"}, {.seed = 7});
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
    PlanRequest request =
        test::PlannedLayout::request_of(test::model_of({}), {.micro_batch = 1}, 2, test::kGlobalBatch / 2);
    request.cluster.execution.collectives = maker;
    const WholePlan whole = make_whole_plan(request, test::build(request), "ddp");
    const TrainJob job{whole, {}, Corpus::generate(3, 4096), 1, true};
    test::FakeFabric fabric;
    local_ranks::on_ranks({.ranks = 2}, {}, [&](Communicator& communicator) {
      test::FakeAccelerator accelerator(static_cast<unsigned>(communicator.rank()));
      test::FakeCollectives collectives(fabric, communicator.rank());
      train_rank(job, communicator, Processor(accelerator, &collectives));
      EXPECT_FALSE(collectives.calls().empty());
      for (const PreparedCall& call : collectives.calls()) {
        EXPECT_EQ(call.program != nullptr, maker == CollectiveMaker::programs) << call.label;
      }
    });
  }
}

// Of two ranks that fail, by their collectives or by their device, before one of them hears that another is gone.
std::array<std::string, 2> words_where_something_fails_first(bool of_device) {
  const test::PlannedLayout planned(test::model_of({}), {.micro_batch = 1}, 2, "ddp", test::kGlobalBatch / 2);
  const TrainJob job{planned.whole, {}, Corpus::generate(3, 4096), 1, true};
  test::FakeFabric fabric;
  std::array<std::string, 2> words;
  local_ranks::on_ranks({.ranks = 2}, {}, [&](Communicator& communicator) {
    test::FakeAccelerator accelerator(static_cast<unsigned>(communicator.rank()));
    test::FakeCollectives collectives(fabric, communicator.rank());
    if (of_device) {
      accelerator.break_with("an illegal memory access was encountered");
    } else {
      collectives.break_with("NCCL: remote error");
    }
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
  return words;
}

TEST(StreamRun, NamesTheLostRankWhereDeviceOrCollectivesFailFirst) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  for (const bool of_device : {false, true}) {
    for (const std::string& said : words_where_something_fails_first(of_device)) {
      EXPECT_NE(said.find("rank 7 was lost"), std::string::npos) << said;
    }
  }
}

TEST(StreamRun, NamesWhatIsUnderWayWhereNothingEnds) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const test::PlannedLayout planned(test::model_of({}), {.micro_batch = 1}, 2, "ddp", test::kGlobalBatch / 2);
  const TrainJob job{planned.whole, {}, Corpus::generate(3, 4096), 1, true};
  test::FakeFabric fabric;
  std::array<std::string, 2> words;
  local_ranks::on_ranks({.ranks = 2}, {.timeout = std::chrono::seconds(2)}, [&](Communicator& communicator) {
    test::FakeAccelerator accelerator(static_cast<unsigned>(communicator.rank()));
    test::FakeCollectives collectives(fabric, communicator.rank());
    collectives.stand_still();
    try {
      train_rank(job, communicator, Processor(accelerator, &collectives));
    } catch (const RunFailed& failure) {
      words[static_cast<std::size_t>(communicator.rank())] = failure.what();
    }
  });
  for (const std::string& said : words) {
    EXPECT_NE(said.find("nothing has ended on the device for 2 s (--timeout)"), std::string::npos) << said;
    EXPECT_NE(said.find("grad_reduce"), std::string::npos) << said;
  }
}

// Whatever a rehearsal leaves behind would change the losses.
TEST(StreamRun, TrainsTheSameAfterARehearsal) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const ValidationJob validation{2, 2, Corpus::generate(5, 4096)};
  for (const StreamCase& c : {StreamCase{{.zero = 3, .clip_grad = 0.05}, 2, "priority"},
                              StreamCase{{.ep = 2}, 2, "serial", 4}, StreamCase{{.tp = 2, .pp = 2}, 4, "priority"}}) {
    SCOPED_TRACE(c.policy);
    expect_same_losses(train(c, {.seed = 3, .validation = &validation, .rehearses = true}),
                       train(c, {.on_streams = false, .validation = &validation}));
  }
}

TEST(StreamRun, ValidatesBetweenSteps) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const ValidationJob validation{2, 2, Corpus::generate(5, 4096)};
  const StreamCase c{{.zero = 1}, 2, "priority"};
  expect_same_losses(train(c, {.seed = 4, .validation = &validation}),
                     train(c, {.on_streams = false, .validation = &validation}));
}

}  // namespace
}  // namespace weft
