#include "timeline/trace/trace_timeline.hpp"

#include <gtest/gtest.h>

#include "timeline/trace/test_device_trace.hpp"

namespace weft {
namespace {

using test::TestDeviceTrace;

// Computation 10..50 on stream 7, an all-reduce 30..80 on stream 9, computation 80..100 on stream 7: 50..80 is exposed.
TEST(TraceTimeline, DrawsStreamsAsQueuesAndKeepsWhatIsExposed) {
  TestDeviceTrace test(3);
  const std::int32_t before = test.compute(7, 10, 50);
  const std::int32_t reduce = test.communicate(9, 30, 80);
  test.compute(7, 80, 100);
  test.collective(reduce, "allreduce", "dp", 256);
  const TraceStudy study = study_ranks({{&test.trace(), test.all()}});
  const DrawnTrace drawn = draw_traces(study);
  const Timeline& timeline = drawn.timeline;
  check_timeline(timeline);

  ASSERT_EQ(timeline.ranks.size(), 1U);
  EXPECT_EQ(timeline.ranks[0].name, "rank 3");
  ASSERT_EQ(timeline.ranks[0].queues.size(), 2U);
  EXPECT_EQ(timeline.ranks[0].queues[QueueId{1}], "stream 9");
  ASSERT_EQ(timeline.operations.size(), 3U);
  EXPECT_EQ(timeline.operations[before].activity, Activity::compute);
  EXPECT_EQ(timeline.operations[reduce].activity, Activity::transfer);
  EXPECT_EQ(timeline.operations[reduce].queue, QueueId{1});
  EXPECT_EQ(timeline.operations[reduce].bytes, Bytes{1024});  // 256 floats
  EXPECT_EQ(timeline.names[timeline.operations[reduce].collective], "all_reduce");
  EXPECT_EQ(timeline.steady_begin, Nanos{10});
  EXPECT_EQ(timeline.period_ns, 90);
  ASSERT_EQ(drawn.exposed.size(), 1U);
  EXPECT_EQ(drawn.exposed[0].begin, Nanos{50});
  EXPECT_EQ(drawn.exposed[0].end, Nanos{80});
}

// The third activity follows the first on its stream.
TEST(TraceTimeline, KnowsTheOrderOfAStream) {
  TestDeviceTrace test;
  test.compute(7, 0, 10);
  test.compute(8, 5, 20);
  test.compute(7, 30, 40);
  const TraceStudy study = study_ranks({{&test.trace(), test.all()}});
  const Timeline timeline = draw_traces(study).timeline;
  ASSERT_EQ(timeline.dependency_begin.size(), 4U);
  EXPECT_EQ(timeline.dependency_begin[1], 0);
  EXPECT_EQ(timeline.dependency_begin[2], 0);
  ASSERT_GE(timeline.dependencies.size(), 1U);
  EXPECT_EQ(timeline.dependencies[0].operation, 0);
  EXPECT_TRUE(timeline.dependencies[0].order);
}

}  // namespace
}  // namespace weft
