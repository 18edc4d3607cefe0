#include "timeline/trace/one_job.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "timeline/trace/test_device_trace.hpp"

namespace weft {
namespace {

using test::TestDeviceTrace;

DeviceTrace trace_of(std::int32_t rank, std::int64_t world, const std::string& group = "",
                     std::vector<std::int32_t> members = {}) {
  TestDeviceTrace t(rank);
  t.trace().file = "rank" + std::to_string(rank) + ".json";
  t.trace().world_size = world;
  const std::int32_t activity = t.communicate(20, 100, 200);
  if (!group.empty()) t.collective(activity, "allreduce", group, 10, -1, std::move(members));
  return t.trace();
}

std::string refusal(const std::vector<DeviceTrace>& traces) {
  try {
    require_one_job(traces);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(OneJob, WorldsMustBeOfOneSize) {
  EXPECT_EQ(refusal({trace_of(0, 2), trace_of(1, 2)}), "");
  EXPECT_EQ(refusal({trace_of(0, 2), trace_of(1, 0)}), "");  // one does not say
  EXPECT_EQ(
      refusal({trace_of(0, 2), trace_of(3, 8)}),
      "rank0.json and rank3.json cannot be of one job: world sizes 2 and 8; give the traces of one job, or compare "
      "two with --against");
  EXPECT_NE(refusal({trace_of(0, 2), trace_of(5, 0)}).find("rank 5 in a world of 2"), std::string::npos);
}

TEST(OneJob, MembersOfAGroupMustAgreeWhoTheyAre) {
  EXPECT_EQ(refusal({trace_of(0, 4, "tp", {0, 1}), trace_of(1, 4, "tp", {0, 1})}), "");
  // Disjoint groups may share a name.
  EXPECT_EQ(refusal({trace_of(0, 4, "tp", {0, 1}), trace_of(2, 4, "tp", {2, 3})}), "");
  EXPECT_NE(refusal({trace_of(0, 4, "tp", {0, 1}), trace_of(1, 4, "tp", {1, 2})}).find("process group 'tp'"),
            std::string::npos);
}

TEST(OneJob, ATraceOfOursHoldsItsWholeJob) {
  std::vector<DeviceTrace> traces = {trace_of(0, 0), trace_of(1, 0)};
  for (DeviceTrace& trace : traces) trace.source = TraceSource::weft;
  EXPECT_NE(refusal(traces).find("holds all ranks"), std::string::npos);
  traces[1].file = traces[0].file;
  EXPECT_EQ(refusal(traces), "");
}

}  // namespace
}  // namespace weft
