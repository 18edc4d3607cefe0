#include "timeline/trace/transfer_match.hpp"

#include <gtest/gtest.h>

#include "timeline/trace/test_device_trace.hpp"
#include "timeline/trace/trace_study.hpp"

namespace weft {
namespace {

using test::TestDeviceTrace;

// A trace of ours: transfers carry numbers, and every activity says when it was ready.
class OwnTrace : public TestDeviceTrace {
 public:
  explicit OwnTrace(std::int32_t rank) : TestDeviceTrace(rank) {
    trace().source = TraceSource::weft;
    trace().file = "own.json";
    step(0, 0, 1'000'000);
  }
  std::int32_t add(std::int32_t activity, std::int64_t ready) {
    DeviceActivity& added = trace().device[activity];
    added.issued = added.ready = Nanos{ready};
    added.step = 0;
    return activity;
  }
  std::int32_t computes(std::int64_t start, std::int64_t end) { return add(compute(0, start, end), start); }
  std::int32_t transfers(const std::string& what, const std::string& group, std::int64_t number, std::int64_t ready,
                         std::int64_t start, std::int64_t end) {
    const std::int32_t activity = add(communicate(1, start, end, what), ready);
    collective(activity, what, group, 100, number);
    return activity;
  }
};

TraceStudy study(std::vector<OwnTrace>& ranks) {
  std::vector<StudyInput> inputs;
  for (OwnTrace& rank : ranks) inputs.push_back({&rank.trace(), rank.all()});
  return study_ranks(std::move(inputs));
}

// Both stages reduce over a group called "tp", at other times; these are different groups. One message joins them.
std::vector<OwnTrace> two_stages() {
  std::vector<OwnTrace> ranks = {OwnTrace(0), OwnTrace(2)};
  ranks[0].computes(0, 100);
  ranks[0].transfers("all_reduce", "tp", -1, 100, 100, 150);
  ranks[0].transfers("send_recv", "pp_next", 3, 150, 150, 170);
  ranks[1].transfers("send_recv", "pp_prev", 3, 0, 150, 170);
  ranks[1].computes(170, 300);
  ranks[1].transfers("all_reduce", "tp", -1, 300, 300, 350);
  return ranks;
}

TEST(TransferMatch, GroupsOfDifferentStagesAreNeverMatched) {
  std::vector<OwnTrace> ranks = two_stages();
  const TraceStudy found = study(ranks);
  ASSERT_EQ(found.match.collectives(), 1U);
  EXPECT_EQ(found.match.members[0].activity, 2);
  EXPECT_EQ(found.match.members[1].activity, 0);
  EXPECT_EQ(found.match.unmatched, 0);
}

TEST(TransferMatch, ClocksOfOurOwnTracesAreNotMoved) {
  std::vector<OwnTrace> ranks = two_stages();
  const TraceStudy found = study(ranks);
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(found.match.offset[r].value, 0);
    EXPECT_TRUE(found.match.aligned[r]);
  }
}

// 0..100 computation, ..150 all_reduce, ..170 message, ..300 computation, ..350 all_reduce: all of it is known.
TEST(TransferMatch, TheCriticalPathFollowsAMessageToItsSender) {
  std::vector<OwnTrace> ranks = two_stages();
  const TraceStudy found = study(ranks);
  const EnumArray<PathKind, Nanos, kPathKinds> times = path_time_by_kind(found.path);
  EXPECT_EQ(times[PathKind::computation].value, 100 + 130);
  EXPECT_EQ(times[PathKind::communication].value, 50 + 20 + 50);
  EXPECT_EQ(found.path.front().begin.value, 0);
  EXPECT_EQ(found.path.back().end.value, 350);
}

// A receiver that has room early does not wait; members of a collective do, from 100 to 180.
TEST(TransferMatch, MembersOfACollectiveWaitForTheLastThatIsReady) {
  std::vector<OwnTrace> ranks = {OwnTrace(0), OwnTrace(1)};
  ranks[0].computes(0, 100);
  ranks[1].computes(0, 180);
  for (std::size_t r = 0; r < 2; ++r) ranks[r].transfers("all_reduce", "norm", 0, r == 0 ? 100 : 180, 180, 200);
  const TraceStudy found = study(ranks);
  EXPECT_EQ(found.ranks[1].lateness.last, 1);
  EXPECT_EQ(found.ranks[1].lateness.caused.value, 80);
  EXPECT_EQ(found.ranks[0].lateness.waited.value, 80);
  std::vector<OwnTrace> stages = two_stages();
  EXPECT_EQ(study(stages).ranks[1].lateness.waited.value, 0);
}

// The dp transfer is exposed from 100 to 140, but computation waited for the message until then, not for it.
TEST(TransferMatch, ATransferBesideAWaitForSomethingElseIsNotToBlame) {
  std::vector<OwnTrace> ranks = {OwnTrace(0)};
  ranks[0].computes(0, 100);
  ranks[0].transfers("reduce_scatter", "dp", -1, 100, 100, 200);
  ranks[0].add(ranks[0].compute(0, 140, 300), 140);
  const TraceStudy found = study(ranks);
  ASSERT_EQ(found.ranks[0].exposed.stretches.size(), 1U);
  EXPECT_EQ(found.ranks[0].exposed.stretches[0].reason, ExposedReason::other_wait);
  EXPECT_EQ(found.ranks[0].exposed.stretches[0].end.value, 140);
}

}  // namespace
}  // namespace weft
