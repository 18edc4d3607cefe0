#include "collective/program_traffic.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "collective/program_builder.hpp"

namespace weft {
namespace {

// Rank 0 sends pieces 0 and 1 together, then 2, to rank 1, which passes piece 2 on.
Program three_ranks() {
  ProgramBuilder builder("by hand", {Collective::broadcast, 3, 0, 3}, true);
  builder.copy(input_of(0, 0), output_of(1, 0), 2);
  builder.copy(input_of(0, 2), output_of(1, 2));
  builder.copy(output_of(1, 2), output_of(2, 2));
  builder.copy(input_of(0, 0), output_of(2, 0), 2);
  return std::move(builder).finish();
}

TEST(ProgramTraffic, CountsBytesAndMessagesByRankAndPair) {
  const ProgramTraffic traffic = program_traffic(three_ranks(), {5, 7, 11}, Bytes{2});
  EXPECT_EQ(traffic.sent[0], (MessageCount{Bytes{2 * (12 + 11 + 12)}, 3}));
  EXPECT_EQ(traffic.sent[1], (MessageCount{Bytes{2 * 11}, 1}));
  EXPECT_EQ(traffic.sent[2], MessageCount{});
  EXPECT_EQ(traffic.between.at({0, 1}), (MessageCount{Bytes{2 * 23}, 2}));
  EXPECT_EQ(traffic.between.at({0, 2}), (MessageCount{Bytes{2 * 12}, 1}));
  EXPECT_EQ(traffic.between.size(), 3U);
  EXPECT_EQ(traffic.total, (MessageCount{Bytes{2 * 46}, 4}));
  EXPECT_EQ(traffic.instructions, (std::vector<std::int64_t>{3, 3, 2}));
}

TEST(ProgramTraffic, FollowsConnectionsArrivalsAndTurns) {
  // 0 -> 1 twice, then 1 -> 2; the message 0 -> 2 waits for none of them.
  EXPECT_EQ(program_traffic(three_ranks(), {1, 1, 1}, Bytes{1}).longest_chain, 3);
  ProgramBuilder builder("in turn", {Collective::broadcast, 4, 0, 1}, true);
  builder.send_in_turn(true);
  for (const std::int64_t rank : {1, 2, 3}) builder.copy(input_of(0, 0), output_of(rank, 0));
  EXPECT_EQ(program_traffic(std::move(builder).finish(), {1}, Bytes{1}).longest_chain, 3);
}

TEST(ProgramTraffic, NeedsAProgramThatWorks) {
  ProgramBuilder builder("nothing", {Collective::broadcast, 2, 0, 1}, true);
  EXPECT_THROW(program_traffic(std::move(builder).finish(), {1}, Bytes{1}), Error);
}

}  // namespace
}  // namespace weft
