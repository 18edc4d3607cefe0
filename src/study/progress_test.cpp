#include "study/progress.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace weft {
namespace {

struct Call {
  std::string task;
  std::size_t done, total;
  friend bool operator==(const Call&, const Call&) = default;
};

TEST(TaskProgress, BeginsAtNothingAndEndsWithAllOnce) {
  std::vector<Call> calls;
  {
    TaskProgress progress([&](std::string_view task, std::size_t done,
                              std::size_t total) { calls.push_back({std::string(task), done, total}); },
                          "sweep", 10);
    progress.advance(3);
    progress.advance(4);
    progress.advance(3);
  }
  EXPECT_EQ(calls, (std::vector<Call>{{"sweep", 0, 10}, {"sweep", 3, 10}, {"sweep", 7, 10}, {"sweep", 10, 10}}));
}

TEST(TaskProgress, SharesNeverGoBackwards) {
  std::vector<std::size_t> done;
  {
    TaskProgress progress([&](std::string_view, std::size_t now, std::size_t) { done.push_back(now); }, "weft", 100);
    for (const double share : {0.25, 0.2, 0.255, 0.5}) progress.reach(share);
  }
  EXPECT_EQ(done, (std::vector<std::size_t>{0, 25, 50, 100}));
}

TEST(TaskProgress, NobodyNeedListen) {
  TaskProgress progress({}, "sweep", 1);
  progress.advance(1);
}

}  // namespace
}  // namespace weft
