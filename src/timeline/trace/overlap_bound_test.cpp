#include "timeline/trace/overlap_bound.hpp"

#include <gtest/gtest.h>

#include "timeline/trace/exposure_table.hpp"
#include "timeline/trace/test_device_trace.hpp"

namespace weft {
namespace {

using test::TestDeviceTrace;

struct Found {
  ExposedCommunication exposed;
  OverlapBound bound;
  ExposureTable table;
};

Found find(const DeviceTrace& trace) {
  const DeviceOrder order = order_device(trace);
  const DevicePrecedence precedence(trace, order);
  Found found;
  found.exposed = find_exposed(trace, order, precedence);
  found.bound = bound_overlap(trace, order, precedence, found.exposed);
  const CommunicationTable communication = communication_table(trace);
  found.table = tabulate_exposure({&trace, &order, &communication, &found.exposed, &found.bound, nullptr});
  return found;
}

// before (50) -> c (100) -> after (70); `free` (30) on another stream touches neither.
TEST(OverlapBound, OnlyWhatNeitherPrecedesNorFollowsCanHide) {
  TestDeviceTrace t;
  const auto before = t.compute(7, 0, 50, "before"), c = t.communicate(20, 50, 150),
             after = t.compute(7, 150, 220, "after");
  t.compute(8, 220, 250, "free");
  t.depends(before, c);
  t.depends(c, after);
  const Found found = find(t.trace());
  ASSERT_EQ(found.bound.communications.size(), 1u);
  const Hideable& hideable = found.bound.communications[0];
  EXPECT_EQ(hideable.activity, c);
  EXPECT_EQ(hideable.exposed.value, 100);
  EXPECT_EQ(hideable.later.value, 30);
  EXPECT_EQ(hideable.earlier.value, 0);
  EXPECT_EQ(found.bound.gain_same_order.value, 30);
  // In any order all 150 of computation are there for the 100 of communication.
  EXPECT_EQ(found.bound.gain_any_order.value, 100);
  const ExposureRow& row = found.table.at({"all_reduce", "?", -1});
  EXPECT_EQ(row.possible.value, 30);
  EXPECT_EQ(row.beside, (std::map<std::string, Nanos>{{"free", Nanos{30}}}));
}

// Computation that already hides something else is taken, and so is the part beside the communication itself.
TEST(OverlapBound, ComputationBesideCommunicationIsTaken) {
  TestDeviceTrace t;
  t.communicate(20, 0, 40);
  t.compute(7, 0, 60);
  t.communicate(20, 100, 200);
  const Found found = find(t.trace());
  EXPECT_EQ(found.bound.exposed.value, 100);
  EXPECT_EQ(found.bound.communications[0].earlier.value, 20);
  EXPECT_EQ(found.bound.gain_any_order.value, 20);
  EXPECT_EQ(found.bound.gain_same_order.value, 20);
}

TEST(OverlapBound, NothingHidesAcrossSteps) {
  TestDeviceTrace t;
  t.step(1, 0, 100);
  t.step(2, 100, 300);
  const auto a = t.compute(7, 0, 90), c = t.communicate(20, 100, 200);
  t.trace().device[a].step = 0;
  t.trace().device[c].step = 1;
  const Found found = find(t.trace());
  EXPECT_EQ(found.bound.exposed.value, 100);
  EXPECT_EQ(found.bound.gain_any_order.value, 0);
  EXPECT_EQ(found.bound.gain_same_order.value, 0);
}

TEST(ExposureTable, RowsAddUpToTheExposedTimeAndKnowTheBandwidth) {
  TestDeviceTrace t;
  t.compute(7, 0, 1000);
  const auto small = t.communicate(20, 1000, 2000), large = t.communicate(20, 2000, 6000);
  const auto hidden = t.communicate(21, 6000, 7000);
  t.compute(7, 6000, 8000);
  t.collective(small, "allreduce", "dp", 1000, -1, {0, 1, 2, 3});
  t.collective(large, "allreduce", "dp", 1'000'000, -1, {0, 1, 2, 3});
  t.collective(hidden, "_allgather_base", "dp", 1'000'000, -1, {0, 1, 2, 3});
  const Found found = find(t.trace());
  ASSERT_EQ(found.table.size(), 3u);
  Nanos sum{0};
  for (const auto& [key, row] : found.table) {
    sum += row.exposed;
    Nanos reasons{0};
    for (const Nanos time : row.reasons) reasons += time;
    EXPECT_EQ(reasons, row.exposed);
  }
  EXPECT_EQ(sum.value, 5000);
  EXPECT_EQ(sum, found.exposed.total());
  const ExposureRow& row = found.table.at({"all_reduce", "dp", size_class(4'000'000)});
  // 4 MB in 4 us: 1000 GB/s; a ring of four moves 2 * 3/4 of it over each link.
  EXPECT_DOUBLE_EQ(row.algorithm_bytes_per_s(), 1e12);
  EXPECT_DOUBLE_EQ(row.bus_bytes_per_s(), 1.5e12);
  EXPECT_EQ(row.ranks, 4);
  EXPECT_EQ(found.table.at({"all_gather", "dp", size_class(4'000'000)}).exposed.value, 0);
  // The most exposed first.
  EXPECT_EQ(by_exposed_time(found.table).front()->first.size, size_class(4'000'000));
}

}  // namespace
}  // namespace weft
