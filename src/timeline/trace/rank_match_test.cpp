#include "timeline/trace/rank_match.hpp"

#include <gtest/gtest.h>

#include "timeline/trace/test_device_trace.hpp"
#include "timeline/trace/trace_study.hpp"

namespace weft {
namespace {

using test::TestDeviceTrace;

// One all_reduce of a rank: when it began and ended on the first rank's clock, and how large it was.
struct Call {
  std::int64_t start, end, elements = 100, sequence = -1;
};

DeviceTrace trace_of(std::int32_t rank, std::int64_t clock, const std::vector<Call>& calls, bool named = true) {
  TestDeviceTrace t(rank);
  for (const Call& call : calls) {
    const auto i = t.communicate(20, call.start - clock, call.end - clock);
    if (named) t.collective(i, "allreduce", "dp", call.elements, call.sequence);
  }
  return t.trace();
}

TraceStudy study(const std::vector<DeviceTrace>& traces) {
  std::vector<StudyInput> inputs;
  for (const DeviceTrace& trace : traces) {
    StudyInput input{&trace, {}};
    for (std::size_t i = 0; i < trace.device.size(); ++i) input.activities.push_back(static_cast<std::int32_t>(i));
    inputs.push_back(std::move(input));
  }
  return study_ranks(std::move(inputs));
}

// The second rank's clock is 5000 behind; it is late by 30 and by 20, early by 60.
TEST(RankMatch, EndsTellTheClocksApartAndStartsWhoWasLate) {
  const std::vector<DeviceTrace> traces = {trace_of(0, 0, {{100, 200}, {300, 400}, {560, 600}}),
                                           trace_of(1, 5000, {{130, 200}, {320, 400}, {500, 600}})};
  const TraceStudy found = study(traces);
  EXPECT_EQ(found.match.collectives(), 3u);
  EXPECT_EQ(found.match.offset[1].value, 5000);
  EXPECT_EQ(found.ranks[0].lateness.last, 1);
  EXPECT_EQ(found.ranks[0].lateness.waited.value, 50);
  EXPECT_EQ(found.ranks[0].lateness.caused.value, 60);
  EXPECT_EQ(found.ranks[1].lateness.last, 2);
  EXPECT_EQ(found.ranks[1].lateness.waited.value, 60);
  EXPECT_EQ(found.ranks[1].lateness.caused.value, 50);
  // On its own clock rank 1 waits for rank 0 from -4500 to -4440.
  ASSERT_EQ(found.ranks[1].peers.size(), 1u);
  EXPECT_EQ(found.ranks[1].peers[0].start.value, 560 - 5000);
  const DeviceExposure& first = found.ranks[0].exposed.stretches.front();
  EXPECT_EQ(first.reason, ExposedReason::late_peer);
  EXPECT_EQ(first.end.value, 130);
  EXPECT_EQ(first.peer, 1);
}

TEST(RankMatch, BandwidthCountsFromTheLastMemberOn) {
  const std::vector<DeviceTrace> traces = {trace_of(0, 0, {{100, 200}}), trace_of(1, 0, {{160, 200}})};
  const TraceStudy found = study(traces);
  for (const RankStudy& rank : found.ranks) EXPECT_DOUBLE_EQ(rank.table.begin()->second.moving_s, 40e-9);
}

// The second trace began one collective later: sizes tell.
TEST(RankMatch, ListsOfDifferentLengthAreShifted) {
  const std::vector<DeviceTrace> traces = {trace_of(0, 0, {{100, 200, 7}, {300, 400, 8}, {500, 600, 9}, {700, 800, 7}}),
                                           trace_of(1, 0, {{310, 400, 8}, {500, 600, 9}, {700, 800, 7}})};
  const TraceStudy found = study(traces);
  EXPECT_EQ(found.match.collectives(), 3u);
  EXPECT_EQ(found.match.unmatched, 1);
  ASSERT_EQ(found.ranks[0].peers.size(), 1u);
  EXPECT_EQ(found.ranks[0].peers[0].activity, 1);
}

// All sizes are equal; only the ends tell that the second trace lacks the first collective.
TEST(RankMatch, WhereSizesAreEqualTheEndsDecide) {
  const std::vector<DeviceTrace> traces = {trace_of(0, 0, {{100, 200}, {300, 450}, {500, 1600}, {1700, 1900}}),
                                           trace_of(1, 77, {{310, 450}, {500, 1600}, {1700, 1900}})};
  const TraceStudy found = study(traces);
  EXPECT_EQ(found.match.offset[1].value, 77);
  ASSERT_EQ(found.ranks[0].peers.size(), 1u);
  EXPECT_EQ(found.ranks[0].peers[0].activity, 1);
}

TEST(RankMatch, SequenceNumbersDecideWhereTheyAreThere) {
  const std::vector<DeviceTrace> traces = {trace_of(0, 0, {{100, 200, 5, 11}, {300, 400, 5, 12}, {500, 600, 5, 13}}),
                                           trace_of(1, 0, {{340, 400, 5, 12}, {500, 600, 5, 13}, {700, 800, 5, 14}})};
  const TraceStudy found = study(traces);
  EXPECT_EQ(found.match.collectives(), 2u);
  EXPECT_EQ(found.match.unmatched, 2);
  EXPECT_EQ(found.ranks[1].lateness.caused.value, 40);
}

TEST(RankMatch, GroupsWithoutNamesAreMatchedOnlyWhereAllAgrees) {
  const std::vector<Call> calls = {{100, 200}, {300, 400}};
  EXPECT_EQ(study({trace_of(0, 0, calls, false), trace_of(1, 0, calls, false)}).match.collectives(), 2u);
  const TraceStudy differ = study({trace_of(0, 0, calls, false), trace_of(1, 0, {{100, 200}}, false)});
  EXPECT_EQ(differ.match.collectives(), 0u);
  EXPECT_FALSE(differ.match.remarks.empty());
  EXPECT_FALSE(differ.match.aligned[1]);
}

// Rank 0 and 2 never meet, rank 1 meets both: clocks go through it.
TEST(RankMatch, ClocksAreKnownThroughOthers) {
  TestDeviceTrace a(0), b(1), c(2);
  const auto a0 = a.communicate(20, 100, 200);
  const auto b0 = b.communicate(20, 100 - 40, 200 - 40), b1 = b.communicate(21, 300 - 40, 400 - 40);
  const auto c1 = c.communicate(21, 300 + 9, 400 + 9);
  a.collective(a0, "allreduce", "x", 5, -1, {0, 1});
  b.collective(b0, "allreduce", "x", 5, -1, {0, 1});
  b.collective(b1, "allreduce", "y", 5, -1, {1, 2});
  c.collective(c1, "allreduce", "y", 5, -1, {1, 2});
  const TraceStudy found = study({a.trace(), b.trace(), c.trace()});
  EXPECT_EQ(found.match.offset[1].value, 40);
  EXPECT_EQ(found.match.offset[2].value, -9);
  EXPECT_TRUE(found.match.aligned[2]);
}

// Two runs of one program, an hour apart: everything agrees but the clocks.
TEST(RankMatch, AClockMovedByMoreThanAMinuteIsAnotherRun) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  const std::vector<Call> calls = {{100, 200}, {300, 400}};
  const TraceStudy near = study({trace_of(0, 0, calls), trace_of(1, 59 * kSecond, calls)});
  EXPECT_EQ(near.match.collectives(), 2u);
  EXPECT_EQ(near.match.offset[1].value, 59 * kSecond);
  const TraceStudy far = study({trace_of(0, 0, calls), trace_of(1, 3600 * kSecond, calls)});
  EXPECT_EQ(far.match.collectives(), 0u);
  EXPECT_EQ(far.match.unmatched, 4);
  EXPECT_EQ(far.match.offset[1].value, 0);
  EXPECT_FALSE(far.match.aligned[1]);
  ASSERT_EQ(far.match.remarks.size(), 1u);
  EXPECT_NE(far.match.remarks[0].find("clock moved by 3600 s"), std::string::npos) << far.match.remarks[0];
}

TEST(RankMatch, RanksOnOtherDevicesAreNotMatched) {
  const std::vector<Call> calls = {{100, 200}, {300, 400}};
  std::vector<DeviceTrace> traces = {trace_of(0, 0, calls), trace_of(1, 0, calls)};
  traces[0].devices = {{0, "A100", Bytes{}, 108, 8, 0}};
  traces[1].devices = {{0, "V100", Bytes{}, 80, 7, 0}};
  const TraceStudy found = study(traces);
  EXPECT_EQ(found.match.collectives(), 0u);
  ASSERT_EQ(found.match.remarks.size(), 1u);
  EXPECT_NE(found.match.remarks[0].find("V100"), std::string::npos);
}

}  // namespace
}  // namespace weft
