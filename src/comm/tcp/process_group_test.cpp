#include "comm/tcp/process_group.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "base/error.hpp"
#include "comm/tcp/launcher_news.hpp"
#include "comm/tcp/tcp_transport.hpp"
#include "comm/tcp/test_reports.hpp"
#include "comm/test_transport_contract.hpp"

namespace weft {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kGrace{10'000};
constexpr milliseconds kAtOnce{0};

TEST(ProcessGroup, EndsWellWhereAllRanksDo) {
  ProcessGroup group = ProcessGroup::fork(3, [](const Launch& launch) { return launch.ranks == 3 ? 0 : 1; });
  const std::vector<RankExit> exits = group.wait(kGrace);
  EXPECT_EQ(exits.size(), 3U);
  EXPECT_EQ(exit_code(exits), 0);
}

TEST(ProcessGroup, TheCodeIsTheOneThatFailedRanksAgreeOnOrThree) {
  EXPECT_EQ(exit_code({}), 0);
  EXPECT_EQ(exit_code({{0, 0, 0}, {1, 2, 0}, {2, 2, 0}}), 2);
  EXPECT_EQ(exit_code({{0, 1, 0}, {1, 0, 0}}), 1);
  EXPECT_EQ(exit_code({{0, 1, 0}, {1, 2, 0}}), 3);
  EXPECT_EQ(exit_code({{0, 2, 0}, {1, 0, 9}}), 3);
  EXPECT_EQ(exit_code({{0, 127, 0}}), 3);
}

TEST(ProcessGroup, SurvivorsOfAFailureAreKilled) {
  ProcessGroup group = ProcessGroup::fork(3, [](const Launch& launch) {
    if (launch.rank == 1) return 3;
    std::this_thread::sleep_for(std::chrono::seconds(60));
    return 0;
  });
  const std::vector<RankExit> exits = group.wait(kAtOnce);
  ASSERT_EQ(exits.size(), 3U);
  EXPECT_EQ(exits[0].text(), "rank 1 ended with code 3");
  EXPECT_EQ(exits[1].signal, SIGKILL);
  EXPECT_EQ(exits[2].signal, SIGKILL);
  EXPECT_EQ(exits[2].text(), fmt::format("rank {} was killed by signal 9 (Killed)", exits[2].rank));
  EXPECT_EQ(exit_code(exits), 3);
}

TEST(ProcessGroup, ARankThatThrowsFails) {
  testing::internal::CaptureStderr();
  ProcessGroup group = ProcessGroup::fork(1, [](const Launch&) -> int { fail("no such file"); });
  EXPECT_EQ(exit_code(group.wait(kGrace)), 3);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "rank 0: no such file\n");
}

TEST(ProcessGroup, PassesSignalsOnToTheRanks) {
  ProcessGroup group = ProcessGroup::fork(2, [](const Launch&) {
    std::this_thread::sleep_for(std::chrono::seconds(60));
    return 0;
  });
  ::kill(::getpid(), SIGTERM);
  const std::vector<RankExit> exits = group.wait(kGrace);
  ASSERT_EQ(exits.size(), 2U);
  for (const RankExit& one : exits) EXPECT_EQ(one.signal, SIGTERM);
}

// Rank 0 ends before it is seen that rank 1 was killed; rank 2 hears who was the origin.
TEST(ProcessGroup, TellsTheOthersOfTheKilledRankNotOfThoseThatEndedBecauseOfIt) {
  ProcessGroup group = ProcessGroup::fork(3, [](const Launch& launch) {
    if (launch.rank == 1) ::raise(SIGKILL);
    if (launch.rank == 0) return 3;
    std::promise<std::string> heard;
    const tcp::LauncherNews news(launch.launcher_news, {}, [&](const std::string& words) { heard.set_value(words); });
    return heard.get_future().get() == "rank 1 was killed by signal 9 (Killed)" ? 0 : 1;
  });
  for (const RankExit& one : group.wait(kGrace)) {
    if (one.rank == 2) {
      EXPECT_EQ(one.code, 0) << one.text();
    }
  }
}

TEST(ProcessGroup, AStoppedRankIsNotWaitedForOnceAnotherHasFailed) {
  ProcessGroup group = ProcessGroup::fork(2, [](const Launch& launch) {
    if (launch.rank == 0) ::raise(SIGSTOP);
    return 3;
  });
  const std::vector<RankExit> exits = group.wait(std::chrono::hours(1));
  ASSERT_EQ(exits.size(), 2U);
  EXPECT_EQ(exits[0].text(), "rank 1 ended with code 3");
  EXPECT_EQ(exits[1].text(), "rank 0 was killed by signal 9 (Killed)");
}

TEST(ProcessGroup, ACommandFindsItsPlaceInTheEnvironment) {
  const std::string script =
      "test $WEFT_RANKS = 2 && test -n \"$WEFT_JOB_SECRET\" && test -n \"$WEFT_ROOT_ADDRESS\" && "
      "case $WEFT_RANK in 0) test -S /proc/self/fd/$WEFT_ROOT_LISTENER;; 1) test -z \"$WEFT_ROOT_LISTENER\";; esac && "
      "test -S /proc/self/fd/$WEFT_LAUNCHER_NEWS";
  ProcessGroup group = ProcessGroup::execute(2, {"/bin/sh", "-c", script});
  EXPECT_EQ(exit_code(group.wait(kGrace)), 0);
}

TEST(ProcessGroup, ACommandThatIsNotThereFails) {
  testing::internal::CaptureStderr();
  ProcessGroup group = ProcessGroup::execute(1, {"/nowhere/weft"});
  EXPECT_EQ(exit_code(group.wait(kGrace)), 3);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "cannot run /nowhere/weft: No such file or directory\n");
}

std::unique_ptr<Transport> transport_of(const Launch& launch) {
  TcpOptions options;
  options.rank = launch.rank;
  options.size = launch.ranks;
  options.root = launch.root;
  options.secret = launch.secret;
  options.root_listener = launch.root_listener;
  return make_tcp_transport(options);
}

TEST(TcpProcesses, CarryMessagesBetweenProcesses) {
  ProcessGroup group = ProcessGroup::fork(3, [](const Launch& launch) {
    transport_contract::ring_of_every_size(*transport_of(launch));
    return testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(exit_code(group.wait(kGrace)), 0);
}

// A ring that turns for ever until a rank is killed; whoever waits for any rank names the killed one.
TEST(TcpProcesses, AllSurvivorsNameTheRankThatWasKilledAmongMessages) {
  constexpr std::int64_t kVictim = 0;  // the one that knew all the others first
  tcp::Reports reports;
  ProcessGroup group = ProcessGroup::fork(4, [&](const Launch& launch) -> int {
    try {
      const std::unique_ptr<Transport> transport = transport_of(launch);
      reports.say(launch.rank, "ready");
      while (true) {
        transport_contract::send_and_receive(*transport, transport_contract::next_of(*transport),
                                             transport_contract::previous_of(*transport), 1, 1 << 20);
      }
    } catch (const RunFailed& error) {
      reports.say(launch.rank, error.what());
      return 3;
    }
  });
  ASSERT_EQ(reports.take(4).size(), 4U);
  std::this_thread::sleep_for(milliseconds(50));
  group.signal(kVictim, SIGKILL);
  std::multiset<std::string> expected;
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    if (rank != kVictim) expected.insert(fmt::format("{}: rank {} is lost: its connection closed", rank, kVictim));
  }
  EXPECT_EQ(reports.take(3), expected);
  EXPECT_EQ(exit_code(group.wait(kGrace)), 3);
}

}  // namespace
}  // namespace weft
