#include "base/parallel.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "base/progress.hpp"

namespace weft {
namespace {

TEST(ParallelFor, DoesEveryRoundOnceWhateverTheThreads) {
  for (const std::size_t jobs : {0u, 1u, 2u, 5u}) {
    for (const std::size_t count : {0u, 1u, 2u, 3u, 1000u}) {
      std::vector<std::atomic<int>> done(count);
      parallel_for(count, jobs, [&](std::size_t i) { ++done[i]; });
      for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(done[i], 1) << jobs << " threads, round " << i;
    }
  }
}

TEST(ParallelFor, RethrowsAtTheEnd) {
  for (const std::size_t jobs : {1u, 4u}) {
    std::atomic<int> after{0};
    try {
      parallel_for(100, jobs, [&](std::size_t i) {
        if (i == 3) throw std::runtime_error("round 3");
        if (i > 3) ++after;
      });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "round 3");
    }
    if (jobs == 1) {
      EXPECT_EQ(after, 0);
    }
  }
}

TEST(ProgressLine, ShowsTheShareAndWhatIsLeft) {
  // 15 of 60 done in 5 s: 7 of 30 cells, and 45 more at 3 a second take 15 s.
  EXPECT_EQ(progress_line("sweep", 15, 60, 5.0), "sweep  [#######.......................]   25 %  15/60  15 s left");
  EXPECT_EQ(progress_line("sweep", 0, 60, 0.0), "sweep  [..............................]    0 %  0/60");
  EXPECT_EQ(progress_line("sweep", 60, 60, 9.0), "sweep  [##############################]  100 %  60/60");
}

TEST(ProgressBar, WipesItsLineAtTheEnd) {
  std::ostringstream out;
  {
    ProgressBar bar(out, "sweep", 2);
    bar.show(1);
  }
  EXPECT_TRUE(out.str().ends_with("\r\033[K"));
}

}  // namespace
}  // namespace weft
