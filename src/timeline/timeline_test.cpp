// Names, and that every index a timeline holds is checked.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "base/error.hpp"
#include "timeline/test_timeline.hpp"

namespace weft {
namespace {

using test::TestTimeline;

Timeline small_timeline() {
  TestTimeline t;
  const auto r = t.rank();
  const auto a = t.compute(r, 10), b = t.transfer(r, TrafficKind::tp);
  t.wait(b, {a});
  t.run(a, 0, 10);
  t.run(b, 10, 20);
  t.window(0, 20);
  return t.build();
}

TEST(Timeline, TrafficKindsHaveTheNamesOfTheJsonReport) {
  EXPECT_EQ(name_of(TrafficKind::dp_grad), "dp_grad");
  EXPECT_EQ(name_of(TrafficKind::param_gather), "param_gather");
  EXPECT_EQ(name_of(TrafficKind::tp), "tp");
  EXPECT_EQ(name_of(TrafficKind::pp), "pp");
  EXPECT_EQ(name_of(TrafficKind::cp), "cp");
  EXPECT_EQ(name_of(TrafficKind::ep), "ep");
  EXPECT_EQ(name_of(TrafficKind::other), "other");
}

TEST(Timeline, CheckNamesWhatIsOutOfRange) {
  EXPECT_NO_THROW(check_timeline(small_timeline()));
  EXPECT_NO_THROW(check_timeline(Timeline{}));
  struct Case {
    const char* named;
    std::function<void(Timeline&)> spoil;
  };
  const Case cases[] = {
      {"operation 1: rank 3", [](Timeline& t) { t.operations[1].rank = 3; }},
      {"operation 0: rank -1", [](Timeline& t) { t.operations[0].rank = -1; }},
      {"operation 0: queue 9", [](Timeline& t) { t.operations[0].queue = {9}; }},
      {"operation 1: traffic 7", [](Timeline& t) { t.operations[1].traffic = static_cast<TrafficKind>(7); }},
      {"operation 0: -1 ns alone", [](Timeline& t) { t.operations[0].alone = Nanos{-1}; }},
      {"dependency 0: operation 5", [](Timeline& t) { t.dependencies[0].operation = 5; }},
      {"distance -1", [](Timeline& t) { t.dependencies[0].distance = -1; }},
      {"dependency_begin holds 2", [](Timeline& t) { t.dependency_begin.pop_back(); }},
      {"dependency_begin descends", [](Timeline& t) { t.dependency_begin[1] = 2; }},
      {"span 1: operation 2", [](Timeline& t) { t.spans[1].operation = 2; }},
      {"span 0: it ends at -1", [](Timeline& t) { t.spans[0].end = Nanos{-1}; }},
      {"span 0: time", [](Timeline& t) { t.spans[0].issued = Nanos{std::numeric_limits<std::int64_t>::min()}; }},
      {"steady state begins", [](Timeline& t) { t.steady_begin = Nanos{std::numeric_limits<std::int64_t>::max()}; }},
      {"stands for 0", [](Timeline& t) { t.ranks[0].ranks = 0; }},
      {"memory of 2", [](Timeline& t) { t.memory.resize(2); }},
  };
  for (const Case& c : cases) {
    Timeline timeline = small_timeline();
    c.spoil(timeline);
    try {
      check_timeline(timeline);
      ADD_FAILURE() << c.named;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(c.named), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace weft
