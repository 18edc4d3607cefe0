#include "app/terminal_picture.hpp"

#include <gtest/gtest.h>

#include <sstream>

#include "timeline/test_timeline.hpp"

namespace weft {
namespace {

// A step of 1,000 ns: forward 0..400, then a transfer that is waited for, forward again 700..900, then nothing.
Timeline small_timeline() {
  test::TestTimeline test;
  const std::int32_t rank = test.rank();
  const std::int32_t first = test.compute(rank, 400), second = test.compute(rank, 200);
  const std::int32_t awaited = test.transfer(rank, TrafficKind::tp);
  test.wait(awaited, {first});
  test.wait(second, {awaited});
  test.run(first, 0, 400);
  test.run(second, 700, 900);
  test.run(awaited, 400, 700);
  test.window(0, 1000);
  return test.build();
}

// Twenty columns: ten for the name, and ten of 100 ns each.
TEST(TerminalTimeline, HasACharacterForEachShareOfTheStep) {
  const Timeline timeline = small_timeline();
  EXPECT_EQ(terminal_timeline(timeline, account(timeline), {20, false}),
            "stage 0   \u2592\u2592\u2592\u2592!!!\u2592\u2592 \n");
  EXPECT_EQ(terminal_timeline(timeline, account(timeline), {20, true}),
            "stage 0   \x1b[94m\u2592\u2592\u2592\u2592\x1b[33m!!!\x1b[94m\u2592\u2592\x1b[0m \n");
}

TEST(TerminalTimeline, ShowsEightOfManyRanks) {
  test::TestTimeline test;
  for (std::int32_t i = 0; i < 30; ++i) test.run(test.compute(test.rank(), 10), 0, 10);
  test.window(0, 10);
  const Timeline timeline = test.build();
  const std::string text = terminal_timeline(timeline, account(timeline), {40, false});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 8);
  EXPECT_TRUE(text.starts_with("stage 0 "));
  EXPECT_NE(text.find("\nstage 29 "), std::string::npos);
}

TEST(TerminalPicture, IsForTerminalsOnly) {
  const std::ostringstream pipe;
  EXPECT_EQ(terminal_steps({}, pipe), "");
  EXPECT_EQ(with_emphasis("ddp  1 s\n", "ddp", pipe), "ddp  1 s\n");
}

}  // namespace
}  // namespace weft
