#include "io/report/page_timeline.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.hpp"
#include "timeline/test_timeline.hpp"

namespace weft {
namespace {

using test::TestTimeline;

// A period of 1,000 ns from 100 on: compute 100..400 and 700..1100, between them a transfer of 400..700 that the second
// computation waits for; in the iteration before, the first computation alone ran, from 0 to 90.
Timeline small_step() {
  TestTimeline test;
  const std::int32_t rank = test.rank();
  const std::int32_t first = test.compute(rank, 300), unused = test.compute(rank, 5), second = test.compute(rank, 400);
  const std::int32_t awaited = test.transfer(rank, TrafficKind::dp_grad);
  test.wait(awaited, {first, unused});
  test.wait(second, {awaited});
  test.run(first, 0, 90, -1);
  test.run(first, 100, 400);
  test.run(second, 700, 1100);
  test.run(awaited, 400, 700);
  test.window(100, 1000);
  return test.build();
}

nlohmann::json columns(const PageTimeline& page) {
  std::ostringstream out;
  write_page_timeline(out, page);
  return nlohmann::json::parse(out.str());
}

TEST(PageTimeline, HoldsTheSpansOfItsWindowByRow) {
  const nlohmann::json json = columns(page_timeline(small_step(), account(small_step())));
  EXPECT_EQ(json["length"], 1000);
  // The operation without a span is gone: first, second and awaited are 0, 1 and 2. Rows: compute, then the transfers.
  EXPECT_EQ(json["operations"]["traffic"], nlohmann::json::parse("[-1,-1,0]"));
  EXPECT_EQ(json["spans"]["operation"], nlohmann::json::parse("[0,1,1]"));   // differences of 0, 1, 2
  EXPECT_EQ(json["spans"]["start"], nlohmann::json::parse("[0,600,-300]"));  // 100, 700, 400 less 100, as differences
  EXPECT_EQ(json["spans"]["length"], nlohmann::json::parse("[300,400,300]"));
}

TEST(PageTimeline, SaysWhatIsWaitedForExposedAndCritical) {
  const nlohmann::json json = columns(page_timeline(small_step(), account(small_step())));
  EXPECT_EQ(json["waits"]["count"], nlohmann::json::parse("[0,1,1]"));
  EXPECT_EQ(json["waits"]["back"], nlohmann::json::parse("[-1,2]"));  // 1 waits for 2, which waits for 0
  EXPECT_EQ(json["exposed"]["begin"], nlohmann::json::parse("[300]"));
  EXPECT_EQ(json["exposed"]["length"], nlohmann::json::parse("[300]"));
  EXPECT_EQ(json["path"]["operation"], nlohmann::json::parse("[0,2,-1]"));  // first, awaited, second
  EXPECT_EQ(json["path"]["length"], nlohmann::json::parse("[300,300,400]"));
}

TEST(PageTimeline, EndsEarlierWhereItWouldHoldTooMuch) {
  const PageTimeline page = page_timeline(small_step(), account(small_step()), {.max_spans = 2});
  EXPECT_EQ(page.end, Nanos{700});  // where the third span starts
  EXPECT_EQ(page.whole_end, Nanos{1100});
  EXPECT_EQ(page.timeline.spans.size(), 2U);
  EXPECT_EQ(page.left_out, 1);
  ASSERT_EQ(page.path.size(), 2U);
}

std::string text_of(const PageTimeline& page) {
  std::ostringstream out;
  write_page_timeline(out, page);
  return out.str();
}

// Nothing of what is written is lost, but the ends of messages.
TEST(PageTimeline, IsReadAsItWasWritten) {
  Timeline timeline = small_step();
  timeline.memory = {{{Nanos{100}, Bytes{1}}, {Nanos{300}, Bytes{7}}}};
  PageTimeline page = page_timeline(timeline, account(timeline));
  page.title = "<a title>";
  page.policy = "ddp";
  page.timeline.measured = true;
  const std::string text = text_of(page);
  const PageTimeline read = read_page_timeline(text, "here");
  EXPECT_EQ(text_of(read), text);
  EXPECT_EQ(read.end, Nanos{1100});
  EXPECT_EQ(read.timeline.spans.size(), 3U);
  EXPECT_EQ(read.path, page.path);
}

TEST(PageTimeline, RefusesWhatCannotBeOne) {
  const std::string text = text_of(page_timeline(small_step(), account(small_step())));
  const auto refused = [&](const std::string& old, const std::string& by) {
    std::string changed = text;
    const std::size_t at = changed.find(old);
    ASSERT_NE(at, std::string::npos) << old;
    changed.replace(at, old.size(), by);
    EXPECT_THROW(read_page_timeline(changed, "here"), Error) << by;
  };
  refused("\"traffic\":[-1,-1,0]", "\"traffic\":[-1,-1,7]");        // there is no such kind
  refused("\"traffic\":[-1,-1,0]", "\"traffic\":[-1,-1]");          // a row without
  refused("\"rank\":[0,0,0]", "\"rank\":[0,0,1]");                  // a rank that is not there
  refused("\"operation\":[0,1,1]", "\"operation\":[0,1,2]");        // an operation that is not there
  refused("\"length\":[300,400,300]", "\"length\":[300,-1,300]");   // ends before it starts
  refused("\"back\":[-1,2]", "\"back\":[-1,3]");                    // waits for what is not there
  refused("\"count\":[0,1,1]", "\"count\":[0,1,9]");                // more waits than there are
  refused("\"start\":[0,600,-300]", "\"start\":[2e18,2e18,2e18]");  // beyond all times
  EXPECT_THROW(read_page_timeline("[]", "here"), Error);
}

TEST(PageTimeline, KeepsThePeaksOfMemory) {
  Timeline timeline = small_step();
  timeline.memory = {{{Nanos{50}, Bytes{9}},
                      {Nanos{100}, Bytes{1}},
                      {Nanos{300}, Bytes{7}},
                      {Nanos{550}, Bytes{2}},
                      {Nanos{700}, Bytes{5}},
                      {Nanos{1099}, Bytes{3}},
                      {Nanos{1100}, Bytes{8}}}};
  // Two halves, 100..600 and 600..1100, of which 7 and 5 are the peaks.
  const PageTimeline page = page_timeline(timeline, account(timeline), {.max_memory_points = 2});
  ASSERT_EQ(page.timeline.memory[0].size(), 2U);
  EXPECT_EQ(page.timeline.memory[0][0].bytes, Bytes{7});
  EXPECT_EQ(page.timeline.memory[0][1].bytes, Bytes{5});
}

}  // namespace
}  // namespace weft
