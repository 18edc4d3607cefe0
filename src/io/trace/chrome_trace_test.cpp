// The written trace parsed back, against the rules of Perfetto's importer and against small timelines drawn here.
#include "io/trace/chrome_trace.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.hpp"
#include "io/trace/chrome_trace_events.hpp"
#include "io/trace/test_chrome_trace.hpp"
#include "timeline/folded_spans.hpp"

namespace weft {
namespace {

TEST(ChromeTrace, KeepsTheRulesOfPerfettosImporter) {
  expect_rules(json::parse(trace_text(two_stages())));
}

TEST(ChromeTrace, NamesAProcessPerRankAndAThreadPerQueue) {
  const json trace = json::parse(trace_text(two_stages()));
  std::map<int, std::string> processes;
  std::map<Thread, std::string> threads;
  for (const json& event : events_of(trace, "M")) {
    if (event.at("name") == "process_name") processes[event.at("pid")] = event.at("args").at("name");
    if (event.at("name") == "thread_name") {
      threads[{event.at("pid").get<int>(), event.at("tid").get<int>()}] = event.at("args").at("name");
    }
  }
  EXPECT_EQ(processes, (std::map<int, std::string>{{0, "stage 0 (rank 0, ×16)"}, {1, "stage 1 (rank 1)"}}));
  EXPECT_EQ((threads[{0, 1}]), "compute");
  EXPECT_EQ((threads[{0, 2}]), "comm");
  EXPECT_EQ((threads[{0, 3}]), "extra");
  EXPECT_EQ((threads[{1, 4}]), "exposed communication");
}

TEST(ChromeTrace, SlicesCarryExactTimesAndWhatTheSpanKnows) {
  const std::string text = trace_text(two_stages());
  // 1500 ns and 3001 - 1500 ns, in microseconds to the last digit.
  EXPECT_NE(text.find("\"ts\":1.500,\"dur\":1.501"), std::string::npos);
  const auto slices = events_of(json::parse(text), "X");
  const auto of = [&](int pid, int tid) {
    return *std::find_if(slices.begin(), slices.end(),
                         [&](const json& s) { return s.at("pid") == pid && s.at("tid") == tid; });
  };
  const json compute = of(0, 1), transfer = of(0, 2);
  EXPECT_EQ(compute.at("cat"), "forward");
  EXPECT_EQ(compute.at("args").at("alone_us"), 1.0);
  EXPECT_EQ(compute.at("args").at("slowdown_us"), 0.5);
  EXPECT_FALSE(compute.at("args").contains("bytes"));
  EXPECT_FALSE(compute.at("args").contains("micro_batch"));
  EXPECT_EQ(transfer.at("cat"), "pp");
  EXPECT_EQ(transfer.at("args").at("bytes"), 1024);
  EXPECT_EQ(transfer.at("args").at("group"), "group");
  EXPECT_EQ(transfer.at("args").at("issued_us"), 1.5);
  EXPECT_EQ(transfer.at("args").at("ready_us"), 1.5);
}

// Twelve spans one after the other on one rank, six of them written: the first two, the two from (12 - 2) / 2 on, the
// last two.
TEST(ChromeTrace, ALongTimelineIsWrittenInThreeStretchesAndSaysWhatItLeavesOut) {
  TestTimeline made;
  const std::int32_t rank = made.rank();
  for (int i = 0; i < 12; ++i) made.run(made.compute(rank, 1000), 1000 * i, 1000 * (i + 1));
  made.window(0, 12'000);
  const Timeline timeline = made.build();
  TraceOptions options;
  options.max_spans = 6;
  options.how_to_get_all = "ask for all";
  std::ostringstream out;
  EXPECT_EQ(write_chrome_trace(out, timeline, account(timeline), options), 6);
  const json trace = json::parse(out.str());
  expect_rules(trace);
  std::set<std::int64_t> starts, gaps;
  for (const json& event : events_of(trace, "X")) {
    (event.at("cat") == "left_out" ? gaps : starts).insert(nanos(event.at("ts")) / 1000);
  }
  EXPECT_EQ(starts, (std::set<std::int64_t>{0, 1, 5, 6, 10, 11}));
  EXPECT_EQ(gaps, (std::set<std::int64_t>{2, 7}));
  EXPECT_EQ(processes_of(trace), (std::map<int, std::string>{{0, "stage 0 (rank 0)"}, {1, "not written"}}));
  EXPECT_EQ(trace.at("otherData").at("left_out"), "6 of 12 operations, 2 us to 5 us, 7 us to 10 us; all: ask for all");
  // All where they are few enough.
  EXPECT_FALSE(json::parse(trace_text(timeline)).at("otherData").contains("left_out"));
}

TEST(ChromeTrace, TwoTimelinesStandSideBySideFromTimeZero) {
  const Timeline predicted = two_stages(), measured = measured_ranks(3);
  const Accounting predicted_account = account(predicted), measured_account = account(measured);
  std::ostringstream out;
  TraceOptions options;
  options.metadata = {{"links", "emulated"}};
  write_chrome_traces(
      out, {{&predicted, &predicted_account, "predicted", 1, 1}, {&measured, &measured_account, "measured", 2, 2}},
      options);
  const json trace = json::parse(out.str());
  expect_rules(trace);  // the arrows' numbers too
  EXPECT_EQ(trace.at("otherData"), (json{{"timeline", "predicted and measured"}, {"links", "emulated"}}));
  EXPECT_EQ(processes_of(trace), (std::map<int, std::string>{{0, "predicted stage 0 (rank 0, ×16)"},
                                                             {1, "predicted stage 1 (rank 1)"},
                                                             {2, "measured rank 0"},
                                                             {3, "measured rank 1"}}));
  std::map<int, std::int64_t> first, last;
  for (const auto& [thread, rows] : slices_of(trace)) {
    for (const auto& [begin, end] : rows) {
      first.try_emplace(thread.first, begin);
      first[thread.first] = std::min(first[thread.first], begin);
      last[thread.first] = std::max(last[thread.first], end);
    }
  }
  EXPECT_EQ(first, (std::map<int, std::int64_t>{{0, 0}, {1, 1500}, {2, 0}, {3, 0}}));
  EXPECT_EQ(last, (std::map<int, std::int64_t>{{0, 3001}, {1, 3500}, {2, 310}, {3, 290}}));
}

// Rank 1: late peer until 1500, then bytes until 3001: exposed. Rank 0: a waits for a only, nothing is exposed, but
// after the last a the transfer that still runs is.
TEST(ChromeTrace, ExposedStretchesAreSlicesAndALevel) {
  const json trace = json::parse(trace_text(two_stages()));
  std::vector<std::pair<std::int64_t, std::int64_t>> rank1;
  for (const json& event : events_of(trace, "X")) {
    if (event.at("cat") != "exposed" || event.at("pid") != 1) continue;
    EXPECT_EQ(event.at("name"), "pp");
    rank1.emplace_back(nanos(event.at("ts")), nanos(event.at("dur")));
  }
  EXPECT_EQ(rank1, (std::vector<std::pair<std::int64_t, std::int64_t>>{{1500, 1501}, {5500, 1501}}));
  std::vector<std::pair<std::int64_t, int>> level;
  for (const json& event : events_of(trace, "C")) {
    if (event.at("name") == "exposed" && event.at("pid") == 1) {
      level.emplace_back(nanos(event.at("ts")), event.at("args").at("pp").get<int>());
    }
  }
  EXPECT_EQ(level, (std::vector<std::pair<std::int64_t, int>>{{0, 0}, {1500, 1}, {3001, 0}, {5500, 1}, {7001, 0}}));
}

TEST(ChromeTrace, IterationsAskedForCutSlicesCountersAndArrows) {
  TraceOptions options;
  options.first_iteration = options.last_iteration = 1;
  const json trace = json::parse(trace_text(two_stages(3), options));
  expect_rules(trace);
  for (const json& event : events_of(trace, "X")) {
    EXPECT_GE(nanos(event.at("ts")), 4000);
    EXPECT_LE(nanos(event.at("ts")) + nanos(event.at("dur")), 7500);
  }
  std::vector<std::pair<std::int64_t, int>> memory;
  for (const json& event : events_of(trace, "C")) {
    if (event.at("name") != "memory") continue;
    memory.emplace_back(nanos(event.at("ts")), event.at("args").at("bytes").get<int>());
  }
  EXPECT_EQ(memory, (std::vector<std::pair<std::int64_t, int>>{{4000, 90}}));

  options.first_iteration = options.last_iteration = 9;
  EXPECT_THROW(trace_text(two_stages(), options), Error);
}

// Memory is known at 0 and 1500 only; at the begin of the written iteration, 4000, the value of 1500 still holds.
TEST(ChromeTrace, MemoryAtTheBeginOfACutTraceIsTheLastKnown) {
  Timeline timeline = two_stages();
  timeline.memory[0].pop_back();
  TraceOptions options;
  options.first_iteration = 1;
  for (const json& event : events_of(json::parse(trace_text(timeline, options)), "C")) {
    if (event.at("name") != "memory") continue;
    EXPECT_EQ(nanos(event.at("ts")), 4000);
    EXPECT_EQ(event.at("args").at("bytes"), 70);
  }
}

// [0,10) and [5,15) overlap, [10,20) fits behind the first again; a zero-length span fits between.
TEST(ChromeTrace, SpansThatOverlapOnAQueueSpillToAnotherLane) {
  TestTimeline t;
  const auto r = t.rank();
  const auto a = t.transfer(r, TrafficKind::tp), b = t.transfer(r, TrafficKind::tp), c = t.transfer(r, TrafficKind::tp);
  const auto d = t.transfer(r, TrafficKind::tp), after = t.compute(r, 5);
  t.run(a, 0, 10);
  t.run(b, 5, 15);
  t.run(c, 10, 20);
  t.run(d, 10, 10);
  t.run(after, 20, 25);
  t.wait(after, {a, b, c, d});
  t.window(0, 25);
  const json trace = json::parse(trace_text(t.build()));
  expect_rules(trace);
  const Slices slices = slices_of(trace);
  EXPECT_EQ(slices.at({0, 2}).size(), 3u);  // a, c, d
  EXPECT_EQ(slices.at({0, 3}).size(), 1u);  // b
  EXPECT_EQ(slices.at({0, 1}).size(), 1u);  // after
  bool named = false;
  for (const json& event : events_of(trace, "M")) {
    named = named || (event.value("tid", 0) == 3 && event.at("args").value("name", "") == "comm (lane 2)");
  }
  EXPECT_TRUE(named);
}

TEST(ChromeTrace, NamesAreEscapedAndStrayBytesReplaced) {
  EXPECT_EQ(json_quoted("a\"b\\c\n\x01"), "\"a\\\"b\\\\c\\u000a\\u0001\"");
  EXPECT_EQ(json_quoted("×16 \xF0\x9F\x98\x80"), "\"×16 \xF0\x9F\x98\x80\"");
  // A stray continuation, a cut sequence, an overlong slash, a surrogate: each byte becomes U+FFFD.
  EXPECT_EQ(json::parse(json_quoted("\x80")), "\uFFFD");
  EXPECT_EQ(json::parse(json_quoted("x\xE2\x82")), "x\uFFFD\uFFFD");
  EXPECT_EQ(json::parse(json_quoted("\xC0\xAF")), "\uFFFD\uFFFD");
  EXPECT_EQ(json::parse(json_quoted("\xED\xA0\x80")), "\uFFFD\uFFFD\uFFFD");
  Timeline timeline = two_stages();
  timeline.names[0] = "layer \"3\"\t\\ \xFF";
  TraceOptions options;
  options.metadata = {{"title", "a \"quoted\" title"}, {"emulated", "links paced"}};
  const json trace = json::parse(trace_text(timeline, options));
  EXPECT_EQ(events_of(trace, "X").front().at("name"), "layer \"3\"\t\\ \uFFFD");
  EXPECT_EQ(trace.at("otherData").at("title"), "a \"quoted\" title");
  EXPECT_EQ(trace.at("otherData").at("emulated"), "links paced");
  EXPECT_EQ(trace.at("otherData").at("timeline"), "predicted");
}

TEST(ChromeTrace, TimesBeforeZeroAreMovedAndTheMoveIsStated) {
  Timeline timeline = two_stages();
  for (Span& span : timeline.spans) {
    for (Nanos* t : {&span.issued, &span.ready, &span.start, &span.end}) *t -= Nanos{1001};
  }
  const json trace = json::parse(trace_text(timeline));
  expect_rules(trace);
  EXPECT_EQ(nanos(trace.at("otherData").at("moved_us")), 1001);
}

TEST(ChromeTrace, BadNamesAndFailingStreamsAreErrors) {
  Timeline timeline = two_stages();
  timeline.operations[0].name = 99;
  EXPECT_THROW(trace_text(timeline), Error);
  std::ostringstream broken;
  broken.setstate(std::ios::badbit);
  EXPECT_THROW(write_chrome_trace(broken, two_stages(), {}, {}), Error);
}

TEST(ChromeTrace, FoldedSpansAreWrittenOut) {
  // Two iterations of a 10, a transfer of 5, b 20; the second follows the first.
  test::TestTimeline t;
  const auto rank = t.rank();
  const auto a = t.compute(rank, 10), tp = t.transfer(rank, TrafficKind::tp), b = t.compute(rank, 20);
  t.wait(tp, {a});
  t.wait(b, {tp});
  t.wait(a, {b}, 1);
  t.window(35, 35);
  Timeline folded = t.build();
  folded.operations[tp].alone = Nanos{5};
  for (const std::int32_t iteration : {0, 1}) folded.folded.push_back({a, 3, iteration, Nanos{35 * iteration}});
  const Timeline plain = expanded(folded);
  ASSERT_EQ(plain.spans.size(), 6u);
  for (const std::int32_t first : {0, 1}) {
    std::ostringstream of_folded, of_plain;
    write_chrome_trace(of_folded, folded, account(folded), {.first_iteration = first, .metadata = {}});
    write_chrome_trace(of_plain, plain, account(plain), {.first_iteration = first, .metadata = {}});
    EXPECT_EQ(of_folded.str(), of_plain.str());
    EXPECT_NE(of_folded.str().find("\"ts\":0.045,\"dur\":0.005"), std::string::npos) << of_folded.str();
  }
  std::ostringstream none;
  for (const std::int32_t first : {2, 3}) {  // of 2, the iteration before is there
    EXPECT_THROW(write_chrome_trace(none, folded, {}, {.first_iteration = first, .metadata = {}}), Error);
  }
}

TEST(ChromeTrace, AnEmptyTimelineIsAnEmptyTrace) {
  std::ostringstream out;
  write_chrome_trace(out, Timeline{}, {}, {});
  EXPECT_TRUE(json::parse(out.str()).at("traceEvents").empty());
}

class TraceCheckTool : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("python3 --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "python3 is not installed";
    file_ = std::filesystem::path(testing::TempDir()) /
            (std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) + ".trace.json");
  }
  void TearDown() override { std::filesystem::remove(file_); }

  // Its exit status, and its last line in `said`.
  int check(const std::string& text, std::string& said) {
    std::ofstream(file_) << text;
    const std::string command = "python3 \"" WEFT_SOURCE_DIR "/tools/trace_check.py\" \"" + file_.string() + "\" 2>&1";
    FILE* pipe = popen(command.c_str(), "r");
    said.clear();
    for (char line[512]; std::fgets(line, sizeof line, pipe);) said = line;
    return WEXITSTATUS(pclose(pipe));
  }

  std::filesystem::path file_;
};

TEST_F(TraceCheckTool, AcceptsWhatIsWritten) {
  std::string said;
  EXPECT_EQ(check(trace_text(two_stages()), said), 0) << said;
  // 8 spans, 3 exposed stretches (two on rank 1, the last transfer on rank 0).
  EXPECT_NE(said.find("11 slices"), std::string::npos) << said;
}

TEST_F(TraceCheckTool, RejectsEveryBrokenRuleAndNamesIt) {
  struct Case {
    std::string replaced, by, named;
  };
  const Case cases[] = {
      {"\"dur\":1.500", "\"dur\":-1.500", "'dur' is"},
      {"\"dur\":1.500", "\"later\":1.500", "no 'dur'"},
      {"\"ts\":0.000,\"dur\"", "\"ts\":\"0\",\"dur\"", "'ts' is"},
      {"\"dur\":1.500", "\"dur\":4.001", "overlaps"},
      {"\"ph\":\"f\"", "\"ph\":\"Q\"", "one of X M C s t f"},
      {"\"bp\":\"e\"", "\"bp\":\"x\"", "'bp' is"},
      {"\"cat\":\"dependency\"", "\"cat\":\"else\"", "starts and"},
      {"\"ts\":1.499,\"cat\"", "\"ts\":1.500,\"cat\"", "outside of every slice"},
      {"\"process_name\"", "\"process_nick\"", "one of process_name"},
      {"\"thread_name\"", "\"thread_sort_index\"", "no 'sort_index'"},
      {"\"bytes\":100", "\"bytes\":\"many\"", "not a number"},
      {"\"traceEvents\"", "\"events\"", "traceEvents"},
      {"\"dur\":1.500", "\"dur\":NaN", "NaN"},
  };
  const std::string good = trace_text(two_stages());
  for (const Case& c : cases) {
    std::string bad = good, said;
    const auto place = bad.find(c.replaced);
    ASSERT_NE(place, std::string::npos) << c.replaced;
    bad.replace(place, c.replaced.size(), c.by);
    EXPECT_EQ(check(bad, said), 1) << c.by;
    EXPECT_NE(said.find(c.named), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace weft
