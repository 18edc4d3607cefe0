#include "comm/tcp/launcher_news.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <future>

namespace weft::tcp {
namespace {

TEST(LauncherNews, ReachAllRanks) {
  auto [launcher, ranks] = open_launcher_news();
  std::promise<std::string> first, second;
  const LauncherNews one(::dup(ranks.fd()), {}, [&](const std::string& words) { first.set_value(words); });
  const LauncherNews two(::dup(ranks.fd()), {}, [&](const std::string& words) { second.set_value(words); });
  tell_ranks(launcher, "rank 7 was killed");
  EXPECT_EQ(first.get_future().get(), "rank 7 was killed");
  EXPECT_EQ(second.get_future().get(), "rank 7 was killed");
}

TEST(LauncherNews, AreNotPassedOnOnceTheRankHasConnected) {
  auto [launcher, ranks] = open_launcher_news();
  bool heard = false;
  {
    // The delay outlasts the test: only the end of `news` can end its thread.
    const LauncherNews news(ranks.release(), std::chrono::hours(1), [&](const std::string&) { heard = true; });
    EXPECT_EQ(news.words(), std::nullopt);
    tell_ranks(launcher, "rank 7 was killed");
    EXPECT_EQ(news.words(), "rank 7 was killed");  // for who asks
  }
  EXPECT_FALSE(heard);
}

TEST(LauncherNews, MayNotExist) {
  const LauncherNews news(-1, {}, [](const std::string&) { FAIL(); });
  EXPECT_EQ(news.words(), std::nullopt);
}

TEST(LauncherNews, TheEndOfTheLauncherIsNone) {
  auto [launcher, ranks] = open_launcher_news();
  bool heard = false;
  {
    const LauncherNews news(ranks.release(), {}, [&](const std::string&) { heard = true; });
    launcher.close();
  }
  EXPECT_FALSE(heard);
}

}  // namespace
}  // namespace weft::tcp
