#include "app/run/run_progress.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <sstream>

#include "app/test_cli.hpp"

namespace weft {
namespace {

std::string shown(bool terminal, std::int64_t steps, double hidden = 0.873) {
  std::ostringstream out;
  RunProgress progress(out, true, terminal);
  progress.begin("priority", steps);
  for (std::int64_t step = 0; step < steps; ++step) progress.step(step, 4.5, {2'500'000, hidden});
  return out.str();
}

std::int64_t lines(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

TEST(RunProgress, WritesATenthOfTheStepsIntoALog) {
  EXPECT_EQ(lines(shown(false, 1000)), 10);
  EXPECT_EQ(lines(shown(false, 25)), 10);
  EXPECT_EQ(lines(shown(false, 10)), 10);
  EXPECT_EQ(lines(shown(false, 3)), 3);
  EXPECT_EQ(lines(shown(false, 1)), 1);
  EXPECT_EQ(shown(false, 1), "priority       step 1/1  loss 4.5000  2.50 ms   87 % hidden\n");
  EXPECT_TRUE(contains(shown(false, 1000), "step 1000/1000"));
  EXPECT_FALSE(contains(shown(false, 1000), "\r"));
}

TEST(RunProgress, DrawsOneLineOnATerminal) {
  const std::string text = shown(true, 1000);
  EXPECT_EQ(lines(text), 1);
  EXPECT_TRUE(text.ends_with("\rpriority       step 1000/1000  loss 4.5000  2.50 ms   87 % hidden\033[K\n")) << text;
}

TEST(RunProgress, SaysNothingOfTransfersWhereThereAreNone) {
  EXPECT_FALSE(contains(shown(false, 1, std::numeric_limits<double>::quiet_NaN()), "hidden"));
}

TEST(RunProgress, GivesValidationALineOfItsOwn) {
  for (const bool terminal : {false, true}) {
    std::ostringstream out;
    RunProgress progress(out, true, terminal);
    progress.begin("ddp", 100);
    progress.validated(50, 3.25);
    EXPECT_TRUE(out.str().ends_with("ddp            step  50/100  validation loss 3.2500\n")) << out.str();
  }
}

TEST(RunProgress, KeepsDivergedLossesShort) {
  EXPECT_EQ(loss_in_words(5.56061), "5.5606");
  EXPECT_EQ(loss_in_words(4294967296), "4.3e+09");
}

TEST(RunProgress, OfAnotherRankThan0MakesRemarksOnly) {
  for (const bool terminal : {false, true}) {
    std::ostringstream out;
    RunProgress progress(out, false, terminal);
    progress.measuring(Nanos{1});
    progress.progress("calibrating", 0, 100);
    progress.begin("ddp", 2);
    progress.step(1, 1, {});
    progress.validated(2, 1);
    progress.remark("the disk is full");
    EXPECT_EQ(out.str(), "weft: the disk is full\n");
  }
}

TEST(RunProgress, LeavesTheTerminalToABarAndTellsALogInWords) {
  std::ostringstream log, screen;
  for (auto& [out, terminal] : {std::pair<std::ostream&, bool>{log, false}, {screen, true}}) {
    RunProgress progress(out, true, terminal);
    progress.measuring(Nanos{20'000'000'000});
    progress.progress("calibrating", 0, 100);
    progress.progress("calibrating", 100, 100);
  }
  EXPECT_EQ(log.str(), "measuring this machine for about 20.000 s\n");
  EXPECT_EQ(screen.str(), "\r\033[K");  // the bar came and went
}

}  // namespace
}  // namespace weft
