// Ranks are forked processes that are killed and stopped for real.
#include "comm/liveness.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "base/error.hpp"
#include "comm/tcp/process_group.hpp"
#include "comm/tcp/rendezvous.hpp"
#include "comm/tcp/test_reports.hpp"

namespace weft {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using Lines = std::multiset<std::string>;
using tcp::Reports;

// No test rank lives longer, whatever happens.
constexpr std::chrono::seconds kLife{40};
constexpr milliseconds kGrace{10'000};

struct Member {
  std::int64_t rank = 0;
  std::int64_t size = 0;
  Liveness& liveness;
};

int live(const Launch& launch, LivenessOptions options, const std::function<int(const Member&)>& body) {
  tcp::Rendezvous rendezvous({launch.rank, launch.ranks, launch.root, launch.secret, launch.root_listener, kGrace});
  options.secret = launch.secret;
  Liveness liveness(
      launch.rank, launch.ranks, [&](const std::string& mine) { return rendezvous.exchange(mine); },
      std::move(options));
  return body({launch.rank, launch.ranks, liveness});
}

bool wait_until(const std::function<bool()>& condition) {
  const auto deadline = Clock::now() + kLife;
  while (!condition() && Clock::now() < deadline) std::this_thread::sleep_for(milliseconds(10));
  return condition();
}

std::string words(const LostRank& loss) {
  return fmt::format("lost {}: {}", loss.rank, loss.reason);
}

Lines from_all_but(std::int64_t size, std::int64_t absent, const std::string& text) {
  Lines lines;
  for (std::int64_t rank = 0; rank < size; ++rank) {
    if (rank != absent) lines.insert(fmt::format("{}: {}", rank, text));
  }
  return lines;
}

// Waits for a loss, reports it, and dies of it without a goodbye, as fast as it can.
int die_of_loss(const Member& member, const Reports& reports) {
  reports.say(member.rank, "ready");
  if (!wait_until([&] { return member.liveness.lost().has_value(); })) return 1;
  reports.say(member.rank, words(*member.liveness.lost()));
  ::_exit(3);
}

struct KillCase {
  std::int64_t size, victim, mesh_limit;
};

class LivenessKill : public testing::TestWithParam<KillCase> {};

TEST_P(LivenessKill, AllOthersNameTheKilledRank) {
  const auto [size, victim, mesh_limit] = GetParam();
  Reports reports;
  LivenessOptions options;
  options.mesh_limit = mesh_limit;
  ProcessGroup group = ProcessGroup::fork(size, [&](const Launch& launch) {
    return live(launch, options, [&](const Member& member) { return die_of_loss(member, reports); });
  });
  ASSERT_EQ(reports.take(static_cast<std::size_t>(size)), from_all_but(size, -1, "ready"));
  group.signal(victim, SIGKILL);
  EXPECT_EQ(reports.take(static_cast<std::size_t>(size - 1)),
            from_all_but(size, victim, fmt::format("lost {}: its connection closed", victim)));
  const std::vector<RankExit> exits = group.wait(kGrace);
  EXPECT_EQ(exits.size(), static_cast<std::size_t>(size));
  EXPECT_EQ(exit_code(exits), 3);
}

INSTANTIATE_TEST_SUITE_P(Ranks, LivenessKill,
                         testing::Values(KillCase{2, 1, 64}, KillCase{2, 0, 64}, KillCase{4, 2, 64}, KillCase{4, 0, 64},
                                         KillCase{7, 3, 64}, KillCase{7, 3, 2}, KillCase{7, 0, 2}),
                         [](const auto& each) {
                           return fmt::format("{}of{}{}", each.param.victim, each.param.size,
                                              each.param.mesh_limit < each.param.size ? "Sparse" : "");
                         });

TEST(Liveness, AStoppedRankFallsSilentAndIsNotLost) {
  constexpr std::int64_t kVictim = 1;
  constexpr auto kNoticeable = std::chrono::seconds(2);
  Reports reports;
  ProcessGroup group = ProcessGroup::fork(3, [&](const Launch& launch) {
    return live(launch, {}, [&](const Member& member) {
      reports.say(member.rank, "ready");
      const Liveness& liveness = member.liveness;
      if (member.rank == kVictim) {
        const bool left = wait_until([&] { return liveness.left(0) && liveness.left(2); });
        return left && !liveness.lost() ? 0 : 1;
      }
      const std::int64_t other = 2 - member.rank;
      if (!wait_until([&] { return liveness.silence(kVictim) > kNoticeable; })) return 1;
      reports.say(member.rank, liveness.silence(other) < kNoticeable ? "one is silent" : "all are silent");
      if (!wait_until([&] { return liveness.silence(kVictim) < kNoticeable / 2; })) return 1;
      reports.say(member.rank, liveness.lost() ? "lost" : "it speaks again");
      return 0;
    });
  });
  ASSERT_EQ(reports.take(3).size(), 3U);
  group.signal(kVictim, SIGSTOP);
  EXPECT_EQ(reports.take(2), from_all_but(3, kVictim, "one is silent"));
  group.signal(kVictim, SIGCONT);
  EXPECT_EQ(reports.take(2), from_all_but(3, kVictim, "it speaks again"));
  EXPECT_EQ(exit_code(group.wait(kGrace)), 0);
}

TEST(Liveness, AProperGoodbyeIsNoLoss) {
  Reports reports;
  ProcessGroup group = ProcessGroup::fork(4, [&](const Launch& launch) {
    return live(launch, {}, [&](const Member& member) {
      if (member.rank == 0) return 0;
      const Liveness& liveness = member.liveness;
      if (!wait_until([&] { return liveness.left(0); })) return 1;
      std::this_thread::sleep_for(milliseconds(300));
      reports.say(member.rank, liveness.lost() ? words(*liveness.lost()) : "nobody lost");
      return liveness.silence(0).count() == 0 ? 0 : 1;
    });
  });
  EXPECT_EQ(reports.take(3), from_all_but(4, 0, "nobody lost"));
  EXPECT_EQ(exit_code(group.wait(kGrace)), 0);
}

// Rank 2 says whom it blames and is gone at once, without a goodbye.
void expect_blame(const LostRank& cause, std::int64_t ranks) {
  Reports reports;
  ProcessGroup group = ProcessGroup::fork(ranks, [&](const Launch& launch) {
    return live(launch, {}, [&](const Member& member) {
      if (member.rank != 2) return die_of_loss(member, reports);
      std::this_thread::sleep_for(milliseconds(100));
      member.liveness.declare_lost(cause);
      ::_exit(3);
    });
  });
  const std::multiset<std::string> lines = reports.take(static_cast<std::size_t>(2 * (ranks - 1)));
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    if (rank == 2) continue;
    const std::string expected =
        rank == cause.rank ? fmt::format("lost 2: it gave up on rank {}: {}", rank, cause.reason) : words(cause);
    EXPECT_EQ(lines.count(fmt::format("{}: {}", rank, expected)), 1U) << rank;
  }
  EXPECT_EQ(exit_code(group.wait(kGrace)), 3);
}

TEST(Liveness, ARankThatGivesUpSaysWhy) {
  expect_blame({2, "it gave up: timeout in all_reduce"}, 4);
}

TEST(Liveness, ARankThatGivesUpMayBlameAnother) {
  expect_blame({1, "no answer for 10 s"}, 3);
}

TEST(Liveness, TheCallbackTellsTheLossOnce) {
  Reports reports;
  ProcessGroup group = ProcessGroup::fork(3, [&](const Launch& launch) {
    LivenessOptions options;
    options.on_loss = [&](const LostRank& loss) { reports.say(launch.rank, words(loss)); };
    return live(launch, options, [&](const Member& member) {
      if (member.rank == 2) {
        std::this_thread::sleep_for(milliseconds(100));
        ::_exit(3);
      }
      wait_until([&] { return member.liveness.lost().has_value(); });
      std::this_thread::sleep_for(milliseconds(300));
      reports.say(member.rank, "end");
      return 3;
    });
  });
  Lines expected = from_all_but(3, 2, "lost 2: its connection closed");
  expected.merge(from_all_but(3, 2, "end"));
  EXPECT_EQ(reports.take(4), expected);
  group.wait(kGrace);
}

TEST(Liveness, AloneNobodyIsLost) {
  Liveness liveness(0, 1, [](const std::string& mine) { return std::vector<std::string>{mine}; }, {});
  EXPECT_FALSE(liveness.lost().has_value());
  EXPECT_EQ(liveness.silence(0).count(), 0);
}

TEST(Liveness, NeighboursAreMutualAndReachEverybody) {
  for (std::int64_t size = 1; size <= 40; ++size) {
    for (const std::int64_t limit : {std::int64_t{2}, size}) {
      for (std::int64_t rank = 0; rank < size; ++rank) {
        for (const std::int64_t other : Liveness::neighbours(rank, size, limit)) {
          ASSERT_NE(other, rank);
          const auto back = Liveness::neighbours(other, size, limit);
          EXPECT_EQ(std::count(back.begin(), back.end(), rank), 1) << size << ": " << rank << " " << other;
        }
        const auto near = Liveness::neighbours(rank, size, limit);
        EXPECT_TRUE(size == 1 || std::count(near.begin(), near.end(), (rank + 1) % size) == 1);
      }
    }
  }
}

}  // namespace
}  // namespace weft
