#include "io/timeline_json.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <tuple>

#include "base/error.hpp"
#include "io/test_plan_files.hpp"
#include "sim/memory_curve.hpp"
#include "sim/simulate_plan.hpp"
#include "timeline/accounting.hpp"
#include "timeline/folded_spans.hpp"

namespace weft {
namespace {

using nlohmann::json;
using test::plan_of;

// Two ranks, a message between them, two iterations, times before zero, memory of one of them.
Timeline small_timeline() {
  Timeline t;
  t.names = {"layer 0 qkv forward", "stage_output forward", "forward", "pp_next", "\"quoted\" \xc3\xa9"};
  t.ranks = {{"rank 0", Rank{0}, 1, {"compute", "pp"}}, {"rank 1", Rank{1}, 3, {"compute", "pp", "extra"}}};
  t.operations.resize(3);
  t.operations[0].phase = 2;
  t.operations[0].micro_batch = {0};
  t.operations[0].alone = Nanos{100};
  for (std::int32_t i = 0; i < 2; ++i) {
    TimelineOperation& message = t.operations[static_cast<std::size_t>(i) + 1];
    message.name = 1;
    message.phase = 2;
    message.rank = i;
    message.queue = {1};
    message.activity = Activity::transfer;
    message.traffic = TrafficKind::pp;
    message.group = 3;
    message.collective = 0;
    message.group_size = 2;
    message.bytes = Bytes{4096};
    message.alone = Nanos{50};
    message.transfer = 7;
    message.receives = i == 1;
  }
  t.dependencies = {{2, 1, false}, {0, 0, true}, {0, 0, false, true}};
  t.dependency_begin = {0, 1, 3, 3};
  for (std::int32_t i = 0; i < 2; ++i) {
    const std::int64_t begin = 200 * i - 10;
    t.spans.push_back({0, i, Nanos{begin}, Nanos{begin - 3}, Nanos{begin + 1}, Nanos{begin + 120}});
    t.spans.push_back({1, i, Nanos{begin}, Nanos{begin + 120}, Nanos{begin + 121}, Nanos{begin + 180}});
    t.spans.push_back({2, i, Nanos{begin}, Nanos{begin}, Nanos{begin + 122}, Nanos{begin + 181}});
  }
  t.memory = {{}, {{Nanos{-10}, Bytes{5}}, {Nanos{20}, Bytes{0}}}};
  t.steady_first = 1;
  t.steady_begin = Nanos{190};
  t.period_ns = 200.0 / 3;
  t.periods = 3;
  t.measured = true;
  return t;
}

std::string written(const Timeline& timeline, const std::map<std::string, std::string>& about = {}) {
  std::ostringstream out;
  write_timeline_json(out, {timeline, about});
  return out.str();
}

void expect_same(const Timeline& a, const Timeline& b) {
  EXPECT_EQ(a.names, b.names);
  ASSERT_EQ(a.ranks.size(), b.ranks.size());
  for (std::size_t i = 0; i < a.ranks.size(); ++i) {
    const auto fields = [](const TimelineRank& r) { return std::tie(r.name, r.rank, r.ranks, r.queues); };
    EXPECT_EQ(fields(a.ranks[i]), fields(b.ranks[i])) << i;
  }
  ASSERT_EQ(a.operations.size(), b.operations.size());
  for (std::size_t i = 0; i < a.operations.size(); ++i) {
    const auto fields = [](const TimelineOperation& o) {
      return std::tie(o.name, o.micro_batch, o.rank, o.queue, o.activity, o.traffic, o.phase, o.group, o.collective,
                      o.group_size, o.bytes, o.alone, o.transfer, o.receives);
    };
    EXPECT_EQ(fields(a.operations[i]), fields(b.operations[i])) << i;
  }
  EXPECT_EQ(a.dependency_begin, b.dependency_begin);
  EXPECT_EQ(a.dependencies, b.dependencies);
  ASSERT_EQ(a.spans.size(), b.spans.size());
  for (std::size_t i = 0; i < a.spans.size(); ++i) {
    const auto fields = [](const Span& s) {
      return std::tie(s.operation, s.iteration, s.issued, s.ready, s.start, s.end);
    };
    EXPECT_EQ(fields(a.spans[i]), fields(b.spans[i])) << i;
  }
  EXPECT_EQ(a.folded.size(), b.folded.size());
  ASSERT_EQ(a.memory.size(), b.memory.size());
  for (std::size_t r = 0; r < a.memory.size(); ++r) {
    ASSERT_EQ(a.memory[r].size(), b.memory[r].size());
    for (std::size_t i = 0; i < a.memory[r].size(); ++i) {
      EXPECT_EQ(a.memory[r][i].at, b.memory[r][i].at);
      EXPECT_EQ(a.memory[r][i].bytes, b.memory[r][i].bytes);
    }
  }
  EXPECT_EQ(std::tie(a.steady_first, a.steady_begin, a.period_ns, a.periods, a.measured),
            std::tie(b.steady_first, b.steady_begin, b.period_ns, b.periods, b.measured));
}

TEST(TimelineJson, ReadsBackWhatItWrites) {
  const std::map<std::string, std::string> about{{"policy", "ddp"}, {"links", "emulated \"200 Mb/s\""}};
  const TimelineFile file = read_timeline_json(written(small_timeline(), about), "timeline.json");
  expect_same(file.timeline, small_timeline());
  EXPECT_EQ(file.about, about);
}

TEST(TimelineJson, UnknownDependenciesStayUnknown) {
  Timeline timeline = small_timeline();
  timeline.dependency_begin.clear();
  timeline.dependencies.clear();
  expect_same(read_timeline_json(written(timeline), "timeline.json").timeline, timeline);
  expect_same(read_timeline_json(written(Timeline{}), "timeline.json").timeline, Timeline{});
}

TEST(TimelineJson, APredictionComesBackWithItsFoldedSpansWrittenOutAndTheSameAccounts) {
  const Plan plan = plan_of({"", "gpt2", 2, "local:2", Layout{.pp = 2, .precision = ElementType::fp32}, 2});
  const Cluster cluster(plan.cluster);
  Timeline timeline = simulate_plan(WholePlan(plan), CostModel(plan.graph, cluster, default_profile()));
  ASSERT_FALSE(timeline.folded.empty());
  timeline.memory = memory_curve(plan, timeline);
  const Timeline read = read_timeline_json(written(timeline), "timeline.json").timeline;
  expect_same(read, expanded(timeline));
  EXPECT_EQ(account(read).mean.exposed_s, account(timeline).mean.exposed_s);
}

std::string message_of(const std::string& text) {
  try {
    read_timeline_json(text, "timeline.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

struct TimelineMistake {
  const char* name;
  const char* pointer;  // what is replaced (or added) in the file
  const char* value;
  const char* message;
};
void PrintTo(const TimelineMistake& mistake, std::ostream* out) {
  *out << mistake.name;
}

class TimelineFileMistake : public testing::TestWithParam<TimelineMistake> {};

TEST_P(TimelineFileMistake, IsNamed) {
  json file = json::parse(written(small_timeline()));
  file[json::json_pointer(GetParam().pointer)] = json::parse(GetParam().value);
  EXPECT_NE(message_of(file.dump()).find(GetParam().message), std::string::npos)
      << message_of(file.dump()) << "\nwas to contain\n"
      << GetParam().message;
}

INSTANTIATE_TEST_SUITE_P(
    Mistakes, TimelineFileMistake,
    testing::Values(
        TimelineMistake{"version", "/weft_timeline", "2", "timeline.json: key 'weft_timeline': version 2 of the"},
        TimelineMistake{"no_version", "", "{}", "timeline.json: key 'weft_timeline' is missing"},
        TimelineMistake{"no_object", "", "[]", "timeline.json: value [] is not an object"},
        TimelineMistake{"unknown_key", "/span", "[]", "key 'span' is not known; did you mean 'spans'?"},
        TimelineMistake{"origin", "/timeline", "\"mesured\"", "did you mean 'measured'?"},
        TimelineMistake{"spans_missing", "/spans", "null", "timeline.json: key 'spans': value null is not an array"},
        TimelineMistake{"names", "/names/1", "3", "timeline.json: key 'names'[1]: value 3 is not a string"},
        TimelineMistake{"about", "/about", R"({"links": 3})", "timeline.json: about: key 'links': value 3 is not a"},
        TimelineMistake{"period", "/steady/period", "-1", "timeline.json: steady: key 'period': value -1 is not"},
        TimelineMistake{"periods", "/steady/periods", "0", "steady: key 'periods': value 0 is not an integer in 1.."},
        TimelineMistake{"steady_key", "/steady/frist", "0", "steady: key 'frist' is not known"},
        TimelineMistake{"stands_for", "/ranks/0/ranks", "0", "ranks[0]: key 'ranks': value 0 is not an integer in 1.."},
        TimelineMistake{"queues", "/ranks/0/queues", "[]", "operations[0]: key 'queue': value 0 is not an integer in"},
        TimelineMistake{"name", "/operations/1/name", "5",
                        "operations[1]: key 'name': value 5 is not an integer in 0..4"},
        TimelineMistake{"rank", "/operations/1/rank", "2",
                        "operations[1]: key 'rank': value 2 is not an integer in 0..1"},
        TimelineMistake{"queue", "/operations/1/queue", "2",
                        "operations[1]: key 'queue': value 2 is not an integer in 0..1"},
        TimelineMistake{"alone", "/operations/1/alone", "-1", "operations[1]: key 'alone': value -1 is not an integer"},
        TimelineMistake{"traffic", "/operations/1/traffic", "\"pq\"",
                        "operations[1]: key 'traffic': value 'pq' is not known"},
        TimelineMistake{"bytes", "/operations/1/bytes", "1.5",
                        "operations[1]: key 'bytes': value 1.5 is not an integer"},
        TimelineMistake{"bytes_of_compute", "/operations/0/bytes", "5",
                        "operations[0]: key 'bytes' is for transfers, which have a key 'traffic'"},
        TimelineMistake{"waits", "/operations/1/waits", "[[3, 0, 0]]",
                        "operations[1]: key 'waits'[0]: operation 3 is not an integer in 0..2"},
        TimelineMistake{"distance", "/operations/1/waits", "[[0, 2, 0]]",
                        "operations[1]: key 'waits'[0]: distance 2 is not an integer in 0..1"},
        TimelineMistake{"waits_of_unknown", "/dependencies", "false",
                        "operations[0]: key 'waits' where key 'dependencies' is false"},
        TimelineMistake{"span_operation", "/spans/2/0", "3", "key 'spans'[2]: operation 3 is not an integer in 0..2"},
        TimelineMistake{"span_iteration", "/spans/2/1", "1e3", "key 'spans'[2]: iteration 1000.0 is not an integer"},
        TimelineMistake{"span_time", "/spans/2/4", "9000000000000000000", "key 'spans'[2]: start 9000000000000000000"},
        TimelineMistake{"span_shape", "/spans/2", "[1, 2]",
                        "key 'spans'[2]: an array of 2 is not [operation, iteration, issued, ready, start, end]"},
        TimelineMistake{"span_backwards", "/spans/0/5", "-100", "timeline.json: timeline: span 0: it ends at -100 ns"},
        TimelineMistake{"memory_ranks", "/memory", "[[]]", "timeline.json: timeline: memory of 1 ranks, none or 2"},
        TimelineMistake{"memory_sample", "/memory/1/0", "[1]", "memory[1]: key 'samples'[0]: an array of 1 is not"},
        TimelineMistake{"memory_order", "/memory/1", "[[5, 1], [4, 1]]",
                        "memory[1]: key 'samples'[1]: time 4 is not asc"}),
    [](const testing::TestParamInfo<TimelineMistake>& mistake) { return std::string(mistake.param.name); });

// Whatever the text: an Error, or a timeline whose every index holds.
TEST(TimelineFileMistakes, OfAnyKindAreErrors) {
  const std::string text = written(small_timeline(), {{"policy", "ddp"}});
  for (std::size_t length = 0; length + 2 < text.size(); ++length) {
    EXPECT_NE(message_of(text.substr(0, length)), "no error") << length;
  }
  std::mt19937 random(5);
  std::int64_t read = 0, refused = 0;
  const std::string alphabet = "0123456789-.,:[]{}\"etnul ";
  for (int i = 0; i < 4'000; ++i) {
    std::string mutated = text;
    for (auto changes = 1 + random() % 3; changes > 0; --changes) {
      const std::size_t place = random() % mutated.size();
      const char c = alphabet[random() % alphabet.size()];
      if (random() % 3 == 0) {
        mutated.erase(place, 1 + random() % 8);
      } else if (random() % 2 == 0) {
        mutated.insert(place, 1, c);
      } else {
        mutated[place] = c;
      }
    }
    try {
      const Timeline timeline = read_timeline_json(mutated, "timeline.json").timeline;
      check_timeline(timeline);
      ++read;
      account(timeline);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(read, 50);  // the mutations reach past the parser
  EXPECT_GT(refused, 1000);
}

TEST(TimelineJson, WhatCannotBeWrittenIsRefused) {
  Timeline timeline = small_timeline();
  timeline.period_ns = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(written(timeline), Error);
  timeline = small_timeline();
  timeline.spans[0].operation = 9;
  EXPECT_THROW(written(timeline), Error);
}

// A failed write names neither the file nor the reason here; who opened the stream knows both.
TEST(TimelineFileText, LeavesAFailedStreamToWhoeverOpenedIt) {
  std::ostream nowhere(nullptr);
  EXPECT_NO_THROW(write_timeline_json(nowhere, {small_timeline(), {}}));
  EXPECT_TRUE(nowhere.bad());
}

}  // namespace
}  // namespace weft
