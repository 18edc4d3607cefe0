// Calibration on an accelerator that carries out lists of calls, with collectives between two of them.
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "calibrate/calibrate.hpp"
#include "comm/test_ranks.hpp"
#include "exec/checkpoint/test_checkpoints.hpp"
#include "exec/test_fake_collectives.hpp"
#include "exec/test_training.hpp"

namespace weft {
namespace {

using test::FakeAccelerator, test::FakeCollectives, test::FakeFabric, test::PlannedLayout;

// `share_device`: the kernels of a rank wait for those of others on the same GPU.
std::vector<Calibration> calibrate_on_streams(const Layout& layout, std::int64_t ranks, bool share_device = false) {
  const PlannedLayout planned(test::tiny_gpt(), layout, ranks, "serial", 2);
  FakeFabric fabric;
  std::vector<Calibration> results(static_cast<std::size_t>(ranks));
  local_ranks::on_ranks({.ranks = ranks}, {}, [&](Communicator& communicator) {
    FakeAccelerator accelerator(static_cast<unsigned>(communicator.rank()));
    FakeCollectives collectives(fabric, communicator.rank(), share_device);
    CalibrationJob job{planned.whole, {}, Corpus::generate(3, 4096), std::chrono::milliseconds(100)};
    job.largest_transfer = Bytes{256 << 10};
    results[static_cast<std::size_t>(communicator.rank())] =
        calibrate_rank(job, communicator, Processor(accelerator, ranks > 1 ? &collectives : nullptr));
  });
  return results;
}

std::set<OpKey> keys_of(const Layout& layout, std::int64_t ranks) {
  const PlannedLayout planned(test::tiny_gpt(), layout, ranks, "serial", 2);
  std::set<OpKey> keys;
  for (const Operation& op : planned.whole.plan().graph.operations) {
    if (!op.is_transfer()) keys.insert(op.key);
  }
  return keys;
}

// Ranks that came to different numbers would make different plans.
void expect_same(const Calibration& a, const Calibration& b) {
  EXPECT_EQ(a.operations, b.operations);
  EXPECT_EQ(a.library, b.library);
  EXPECT_EQ(a.compute_slowdown, b.compute_slowdown);
  EXPECT_EQ(a.transfer_slowdown, b.transfer_slowdown);
  EXPECT_EQ(a.further_slowdown, b.further_slowdown);
  EXPECT_EQ(a.waiting_slowdown, b.waiting_slowdown);
}

TEST(CalibrationOnStreams, TimesEveryOperationOnce) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const Calibration found = calibrate_on_streams({}, 1).front();
  std::set<OpKey> keys;
  for (const auto& [key, time] : found.operations) {
    keys.insert(key);
    EXPECT_GT(time, Nanos{0});
  }
  EXPECT_EQ(keys, keys_of({}, 1));
  EXPECT_TRUE(found.library.measured.empty());
}

TEST(CalibrationOnStreams, TimesTheCollectivesOfTheStep) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  Layout layout;
  layout.zero = 3;
  const std::vector<Calibration> found = calibrate_on_streams(layout, 2);
  expect_same(found[0], found[1]);
  EXPECT_EQ(found[0].operations.size(), keys_of(layout, 2).size());
  for (const Collective collective : {Collective::all_gather, Collective::reduce_scatter}) {
    const auto& points = found[0].library.measured.at({collective, 2});
    EXPECT_TRUE(std::ranges::is_sorted(points, {}, &LibraryProfile::Point::bytes));
    for (const LibraryProfile::Point& point : points) {
      EXPECT_GT(point.time, Nanos{0});
      EXPECT_GE(point.after_pause, point.time);
    }
  }
  EXPECT_GE(found[0].compute_slowdown, 0);
  EXPECT_GE(found[0].transfer_slowdown, 0);
}

// 32 hardware queues are 4 for each of 8 ranks, which their computation takes: one transfer at a time is all there is
// room for, and nothing is said of several.
TEST(CalibrationOnStreams, RanksThatShareADeviceTimeAsManyAtOnceAsItHasQueuesFor) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const std::vector<Calibration> found = calibrate_on_streams({}, 8, true);
  for (const Calibration& each : found) {
    expect_same(found[0], each);
    EXPECT_EQ(each.library.at_once, 1);
    EXPECT_EQ(each.further_slowdown, 0);
  }
  EXPECT_FALSE(found[0].library.measured.empty());
}

// What was tried is kept: the library's choice first, and what was taken is one of them.
TEST(CalibrationOnStreams, SaysWhatThreadBlocksWereChosenFrom) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const Calibration found = calibrate_on_streams({}, 2).front();
  std::vector<std::int32_t> blocks;
  for (const TransferBeside& each : found.beside) {
    blocks.push_back(each.thread_blocks);
    EXPECT_GT(each.alone, 0);
  }
  EXPECT_EQ(blocks, (std::vector<std::int32_t>{0, 1, 2, 4}));
  const auto taken = std::ranges::find(found.beside, found.library.thread_blocks, &TransferBeside::thread_blocks);
  ASSERT_NE(taken, found.beside.end());
  EXPECT_EQ(found.compute_slowdown, taken->compute_slowdown);
  EXPECT_EQ(found.transfer_slowdown, taken->transfer_slowdown);
}

// Nobody waits for ever for a transfer that will not end.
TEST(CalibrationOnStreams, EndsWhereCollectivesFail) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const PlannedLayout planned(test::tiny_gpt(), {}, 2, "serial", 2);
  FakeFabric fabric;
  std::array<std::string, 2> words;
  local_ranks::on_ranks({.ranks = 2}, {}, [&](Communicator& communicator) {
    FakeAccelerator accelerator(static_cast<unsigned>(communicator.rank()));
    FakeCollectives collectives(fabric, communicator.rank());
    collectives.break_with("NCCL: remote error");
    const CalibrationJob job{planned.whole, {}, Corpus::generate(3, 4096), std::chrono::milliseconds(100)};
    try {
      calibrate_rank(job, communicator, Processor(accelerator, &collectives));
    } catch (const RunFailed& failure) {
      words[static_cast<std::size_t>(communicator.rank())] = failure.what();
    }
  });
  for (const std::string& said : words) EXPECT_EQ(said, "NCCL: remote error");
}

// Members of a group prepare the same calls whatever other groups a rank is in.
TEST(CalibrationOnStreams, StagesOfAPipelineAgree) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  Layout layout;
  layout.pp = 2;
  const std::vector<Calibration> found = calibrate_on_streams(layout, 4);
  for (const Calibration& other : found) expect_same(found[0], other);
}

}  // namespace
}  // namespace weft
