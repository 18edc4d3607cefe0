// Receives joined with the sends that pass them on: rings look as MSCCL's own files do, and nothing else changes.
#include "collective/fuse.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "collective/algorithms.hpp"
#include "collective/program_builder.hpp"
#include "collective/rewrite.hpp"
#include "collective/verify/symbolic_run.hpp"

namespace weft {
namespace {

std::vector<InstructionKind> kinds_of(const ThreadBlock& block) {
  std::vector<InstructionKind> kinds;
  for (const Instruction& step : block.steps) kinds.push_back(step.kind);
  return kinds;
}

std::vector<InstructionKind> row(std::initializer_list<std::pair<std::int64_t, InstructionKind>> runs) {
  std::vector<InstructionKind> kinds;
  for (const auto& [count, kind] : runs) kinds.insert(kinds.end(), static_cast<std::size_t>(count), kind);
  return kinds;
}

std::int64_t messages_of(const Program& program) {
  std::int64_t count = 0;
  for (const RankProgram& rank : program.ranks) {
    for (const ThreadBlock& block : rank.blocks) {
      count += std::count_if(block.steps.begin(), block.steps.end(), [](const auto& step) { return sends(step.kind); });
    }
  }
  return count;
}

// Of N ranks. A slice starts with a send at one rank, passes N-2 ranks as a partial sum that they need not keep, is
// complete at the next, passes N-2 ranks as a result and ends at the last one.
TEST(Fused, RingAllReduceIsOneBlockAsInMscclFiles) {
  for (const std::int64_t ranks : {2, 3, 4, 7}) {
    for (const bool in_place : {false, true}) {
      const Program program = fused(make_program({.ranks = ranks, .in_place = in_place}));
      for (const RankProgram& rank : program.ranks) {
        ASSERT_EQ(rank.blocks.size(), 1U) << ranks << " " << in_place;
        EXPECT_EQ(kinds_of(rank.blocks[0]), row({{1, InstructionKind::send},
                                                 {ranks - 2, InstructionKind::receive_reduce_send},
                                                 {1, InstructionKind::receive_reduce_copy_send},
                                                 {ranks - 2, InstructionKind::receive_copy_send},
                                                 {1, InstructionKind::receive}}));
      }
      EXPECT_EQ(run_symbolically(program).violation.value_or(""), "");
    }
  }
}

// In one block, both parts would be sent before the first is received. With two message slots every connection is then
// full, and an instruction that receives and sends waits for room in the next one, all around the ring.
TEST(Fused, BlocksThatNeedMoreMessageSlotsStayApart) {
  const Program program = make_program({.ranks = 3, .parts = 2, .in_place = true});
  EXPECT_TRUE(fused(program) == program);
}

TEST(Fused, RingReduceScatterNeedsNoScratch) {
  const Program before = make_program({.kind = Collective::reduce_scatter, .ranks = 4});
  EXPECT_GT(before.ranks[0].scratch_slots, 0);
  const Program after = fused(before);
  for (const RankProgram& rank : after.ranks) {
    EXPECT_EQ(rank.scratch_slots, 0);
    ASSERT_EQ(rank.blocks.size(), 1U);
    EXPECT_EQ(kinds_of(rank.blocks[0]), row({{1, InstructionKind::send},
                                             {2, InstructionKind::receive_reduce_send},
                                             {1, InstructionKind::receive_reduce_copy}}));
  }
  EXPECT_EQ(run_symbolically(after).violation.value_or(""), "");
}

TEST(Fused, EveryGeneratedProgramReachesTheSameResultWithTheSameMessages) {
  for (int kind = 0; kind <= static_cast<int>(Collective::barrier); ++kind) {
    for (const Algorithm algorithm : algorithms_for(static_cast<Collective>(kind))) {
      for (const std::int64_t ranks : {2, 3, 4, 8}) {
        if (static_cast<Collective>(kind) == Collective::send_recv && ranks != 2) continue;
        const ProgramRequest request{.algorithm = algorithm,
                                     .kind = static_cast<Collective>(kind),
                                     .ranks = ranks,
                                     .parts = 2,
                                     .inner = ranks % 2 == 0 ? 2 : 1};
        const Program program = make_program(request);
        const Program after = fused(program);
        EXPECT_EQ(run_symbolically(after).violation.value_or(""), "") << program.name << " " << kind << " " << ranks;
        EXPECT_EQ(messages_of(after), messages_of(program)) << program.name << " " << kind << " " << ranks;
      }
    }
  }
}

TEST(Fused, AStoreThatIsReadLaterStays) {
  // Rank 1 adds its part to what comes from 0 and passes it to 2, the root, which also asks rank 1 for the same sum
  // again: the second send reads what the first instruction stored.
  ProgramBuilder builder("chain", {Collective::reduce, 3, 2, 1}, false);
  builder.reduce(input_of(0, 0), input_of(1, 0), scratch_of(1, 0), 1);
  builder.copy(scratch_of(1, 0), scratch_of(2, 0));
  builder.copy(scratch_of(1, 0), scratch_of(2, 1), 1, 1);
  builder.copy(input_of(2, 0), output_of(2, 0));
  builder.reduce(scratch_of(2, 1), output_of(2, 0));
  const Program program = fused(std::move(builder).finish());
  EXPECT_EQ(run_symbolically(program).violation.value_or(""), "");
  ASSERT_EQ(program.ranks[1].blocks.size(), 2U);
  EXPECT_EQ(kinds_of(program.ranks[1].blocks[0]), row({{1, InstructionKind::receive_reduce_copy_send}}));
  EXPECT_EQ(kinds_of(program.ranks[1].blocks[1]), row({{1, InstructionKind::send}}));
  EXPECT_EQ(program.ranks[1].blocks[1].steps[0].after, (std::vector<InstructionId>{{0, 0}}));
  EXPECT_EQ(program.ranks[1].scratch_slots, 1);
}

TEST(Fused, WhatChangesBetweenReceiveAndSendIsNotJoined) {
  // Rank 1 receives from 0, adds its own part in a block of its own, then sends.
  ProgramBuilder builder("chain", {Collective::reduce, 3, 2, 1}, false);
  builder.copy(input_of(0, 0), scratch_of(1, 0));
  builder.reduce(input_of(1, 0), scratch_of(1, 0));
  builder.copy(input_of(2, 0), output_of(2, 0));
  builder.reduce(scratch_of(1, 0), output_of(2, 0));
  const Program program = std::move(builder).finish();
  ASSERT_EQ(run_symbolically(program).violation.value_or(""), "");
  EXPECT_TRUE(fused(program) == program);
}

TEST(Fused, ADependencyOnTheJoinedBlocksIsRenumbered) {
  // As above without the local sum: rank 1 passes on what it receives, then overwrites it, after the send.
  ProgramBuilder builder("relay", {Collective::broadcast, 3, 0, 1}, false);
  builder.copy(input_of(0, 0), output_of(0, 0));
  builder.copy(input_of(0, 0), scratch_of(1, 0));
  builder.copy(scratch_of(1, 0), output_of(2, 0));
  builder.copy(scratch_of(1, 0), output_of(1, 0));
  const Program program = fused(std::move(builder).finish());
  EXPECT_EQ(run_symbolically(program).violation.value_or(""), "");
  ASSERT_EQ(program.ranks[1].blocks.size(), 2U);
  EXPECT_EQ(kinds_of(program.ranks[1].blocks[0]), row({{1, InstructionKind::receive_copy_send}}));
  EXPECT_EQ(program.ranks[1].blocks[1].steps[0].after, (std::vector<InstructionId>{{0, 0}}));
}

TEST(Fused, AProgramThatDoesNotWorkComesBackAsItIs) {
  Program program = make_program({.ranks = 4});
  program.ranks[2].blocks[0].steps.pop_back();
  EXPECT_TRUE(fused(program) == program);
}

}  // namespace
}  // namespace weft
