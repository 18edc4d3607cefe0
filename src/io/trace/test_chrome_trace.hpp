// Small timelines, their Chrome traces parsed back, and the rules of Perfetto's importer.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "io/trace/chrome_trace.hpp"
#include "timeline/test_timeline.hpp"

namespace weft {

using nlohmann::json;
using test::TestTimeline;

inline std::string trace_text(const Timeline& timeline, const TraceOptions& options = {}) {
  std::ostringstream out;
  write_chrome_trace(out, timeline, account(timeline), options);
  return out.str();
}

inline std::vector<json> events_of(const json& trace, const std::string& phase) {
  std::vector<json> result;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == phase) result.push_back(event);
  }
  return result;
}

inline std::int64_t nanos(const json& micros) {
  return std::llround(micros.get<double>() * 1000);
}

using Thread = std::pair<int, int>;
using Slices = std::map<Thread, std::vector<std::pair<std::int64_t, std::int64_t>>>;

inline Slices slices_of(const json& trace) {
  Slices slices;
  for (const json& event : events_of(trace, "X")) {
    const auto start = nanos(event.at("ts")), length = nanos(event.at("dur"));
    EXPECT_GE(start, 0);
    EXPECT_GE(length, 0);
    slices[{event.at("pid").get<int>(), event.at("tid").get<int>()}].emplace_back(start, start + length);
  }
  return slices;
}

// The rules of Perfetto's importer: known metadata, slices that follow each other on a thread (we never nest any),
// numeric counters, flows in pairs that lie inside a slice of their thread.
inline void expect_rules(const json& trace) {
  const std::set<std::string> known = {"process_name", "thread_name", "process_sort_index", "thread_sort_index"};
  for (const json& event : events_of(trace, "M")) EXPECT_TRUE(known.count(event.at("name"))) << event;
  Slices slices = slices_of(trace);
  for (auto& [thread, rows] : slices) {
    std::sort(rows.begin(), rows.end());
    for (std::size_t i = 1; i < rows.size(); ++i) EXPECT_LE(rows[i - 1].second, rows[i].first) << thread.second;
  }
  for (const json& event : events_of(trace, "C")) {
    EXPECT_FALSE(event.at("args").empty());
    for (const json& value : event.at("args")) EXPECT_TRUE(value.is_number());
  }
  std::map<std::tuple<std::string, std::string, int>, std::string> ends;
  for (const json& event : trace.at("traceEvents")) {
    const std::string phase = event.at("ph");
    if (phase != "s" && phase != "f") continue;
    ends[{event.at("cat"), event.at("name"), event.at("id")}] += phase;
    if (phase == "f") {
      EXPECT_EQ(event.at("bp"), "e");
    }
    const auto when = nanos(event.at("ts"));
    const auto& rows = slices[{event.at("pid").get<int>(), event.at("tid").get<int>()}];
    EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), [&](const auto& row) {
      return row.first <= when && when < row.second;
    })) << event;
  }
  for (const auto& [id, phases] : ends) EXPECT_EQ(phases, "sf");
}

//          0         1500      2000      3001   (ns), iteration 0; iteration 1 begins 4000 later
//  rank 0  [a          )
//  0 -> 1              [send/recv         )
//  rank 1                                 [b   3500)
inline Timeline two_stages(int iterations = 2) {
  TestTimeline t;
  const auto r0 = t.rank(16), r1 = t.rank();
  const auto a = t.compute(r0, 1000), b = t.compute(r1, 499);
  const auto send = t.transfer(r0, TrafficKind::pp, 0), recv = t.transfer(r1, TrafficKind::pp, 0);
  t.wait(send, {a});
  t.wait(b, {recv});
  t.wait(a, {a}, 1);
  for (int i = 0; i < iterations; ++i) {
    t.run(a, 4000 * i, 4000 * i + 1500, i);
    t.run(send, 4000 * i + 1500, 4000 * i + 3001, i);
    t.run(recv, 4000 * i + 1500, 4000 * i + 3001, i);
    t.run(b, 4000 * i + 3001, 4000 * i + 3500, i);
  }
  t.window(0, 4000, iterations);
  Timeline timeline = t.build();
  timeline.memory = {{{Nanos{0}, Bytes{100}}, {Nanos{1500}, Bytes{70}}, {Nanos{4000}, Bytes{90}}}, {}};
  return timeline;
}

// Two ranks as a run measures them, each by itself: rank 1 is late, and its clock 20 ns behind.
//  rank 0  [a   )100     [reduce     300)[b 310)
//  rank 1  [a        )190 [reduce 280)[b 290)
inline Timeline measured_ranks(int iterations) {
  TestTimeline t;
  for (int r = 0; r < 2; ++r) {
    t.rank();
    const auto a = t.compute(r, 100), reduce = t.transfer(r, TrafficKind::dp_grad, 4), b = t.compute(r, 10);
    t.wait(reduce, {a});
    t.wait(b, {reduce});
    t.wait(a, {b}, 1);
    for (int i = 0; i < iterations; ++i) {
      const std::int64_t begin = 1000 + 400 * i;
      t.run(a, begin, begin + (r == 0 ? 100 : 190), i);
      t.run(reduce, begin + (r == 0 ? 200 : 192), begin + (r == 0 ? 300 : 280), i);
      t.run(b, begin + (r == 0 ? 301 : 281), begin + (r == 0 ? 310 : 290), i);
    }
  }
  t.window(1400, 400, iterations - 1);
  Timeline timeline = t.build();
  timeline.measured = true;
  timeline.steady_first = 1;
  for (std::size_t r = 0; r < 2; ++r) timeline.ranks[r].name = "rank " + std::to_string(r);
  for (Span& span : timeline.spans) {
    if (span.operation == 1) span.ready = span.issued = span.start - Nanos{100};  // rank 0 was ready long before
  }
  return timeline;
}

inline std::map<int, std::string> processes_of(const json& trace) {
  std::map<int, std::string> processes;
  for (const json& event : events_of(trace, "M")) {
    if (event.at("name") == "process_name") processes[event.at("pid")] = event.at("args").at("name");
  }
  return processes;
}

}  // namespace weft
