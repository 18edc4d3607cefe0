#include "comm/nccl/program_rounds.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "collective/algorithms.hpp"
#include "collective/verify/verify_program.hpp"

namespace weft {
namespace {

constexpr std::int64_t kRanks = 4, kPiece = 256;

std::vector<RankRounds> rounds_of_all(const ProgramRequest& request, std::int64_t elements) {
  const Program program = make_program(request);
  const std::vector<LoweredRank> lowered =
      lower(program, verify_program(program).run, even_sizes(program.spec, elements), Bytes{4});
  std::vector<RankRounds> all;
  for (std::int64_t rank = 0; rank < std::ssize(lowered); ++rank) all.push_back(rounds_of(lowered, rank));
  return all;
}

// A ring of n ranks: n - 1 rounds in which a piece is received and added, then n - 1 in which one is received where it
// belongs. Round 0 has no message. All that is added lands in the memory of one piece, since it is added at once.
TEST(ProgramRounds, OfARingAreItsSteps) {
  const ProgramRequest ring{
      .algorithm = Algorithm::ring, .kind = Collective::all_reduce, .ranks = kRanks, .in_place = true};
  for (const RankRounds& own : rounds_of_all(ring, kRanks * kPiece)) {
    ASSERT_EQ(std::ssize(own.rounds), 1 + 2 * (kRanks - 1));
    EXPECT_EQ(own.scratch_bytes, 4 * kPiece);
    EXPECT_TRUE(own.rounds[0].sends.empty() && own.rounds[0].receives.empty() && own.rounds[0].work.empty());
    for (std::size_t i = 1; i < own.rounds.size(); ++i) {
      const ProgramRound& round = own.rounds[i];
      ASSERT_EQ(round.sends.size(), 1U);
      ASSERT_EQ(round.receives.size(), 1U);
      EXPECT_EQ(round.sends[0].bytes, 4 * kPiece);
      const bool adds = i < kRanks;
      EXPECT_EQ(round.receives[0].ranges[0].buffer, adds ? BufferKind::scratch : BufferKind::output);
      EXPECT_EQ(round.work.size(), adds ? 1U : 0U);
    }
  }
}

// Blocks that swap places would wait for each other for ever if each waited until its place was free.
TEST(ProgramRounds, OfAnExchangeInPlaceAreFew) {
  const ProgramRequest direct{
      .algorithm = Algorithm::direct, .kind = Collective::all_to_all, .ranks = kRanks, .in_place = true};
  for (const RankRounds& own : rounds_of_all(direct, kRanks * kPiece)) {
    ASSERT_EQ(own.rounds.size(), 2U);
    EXPECT_EQ(own.rounds[1].sends.size(), kRanks - 1U);
    EXPECT_EQ(own.rounds[1].receives.size(), kRanks - 1U);
  }
}

// Groups of a library end when all of their messages have, so both ends of a message must be in the same one, and the
// messages of two ranks in the same order.
TEST(ProgramRounds, HaveBothEndsOfAMessageInTheSameRound) {
  for (const Collective kind : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
    for (const Algorithm algorithm : algorithms_for(kind)) {
      const ProgramRequest request{.algorithm = algorithm,
                                   .kind = kind,
                                   .ranks = kRanks,
                                   .parts = 3,
                                   .inner = algorithm == Algorithm::hierarchical ? 2 : 0};
      const std::vector<RankRounds> all = rounds_of_all(request, 1000);
      std::size_t most = 0;
      for (const RankRounds& own : all) most = std::max(most, own.rounds.size());
      const auto bytes_between = [&](std::size_t round, std::int64_t from, std::int64_t to, bool sent) {
        std::vector<std::int64_t> bytes;
        const RankRounds& own = all[static_cast<std::size_t>(sent ? from : to)];
        if (round >= own.rounds.size()) return bytes;
        for (const RoundMessage& message : sent ? own.rounds[round].sends : own.rounds[round].receives) {
          if (message.peer == (sent ? to : from)) bytes.push_back(message.bytes);
        }
        return bytes;
      };
      for (std::size_t round = 0; round < most; ++round) {
        for (std::int64_t from = 0; from < kRanks; ++from) {
          for (std::int64_t to = 0; to < kRanks; ++to) {
            EXPECT_EQ(bytes_between(round, from, to, true), bytes_between(round, from, to, false))
                << name_of(algorithm) << " " << name_of(kind) << ", round " << round;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft
