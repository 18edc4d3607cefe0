#include "collective/rewrite.hpp"

#include <gtest/gtest.h>

namespace weft {
namespace {

Instruction nop(std::vector<InstructionId> after) {
  return {InstructionKind::nop, {}, {}, 0, std::move(after)};
}

Instruction copy(std::int64_t count, std::vector<InstructionId> after) {
  return {InstructionKind::copy, {BufferKind::input, 0}, {BufferKind::output, 0}, count, std::move(after)};
}

Program one_rank(std::vector<ThreadBlock> blocks) {
  return {"test", {Collective::all_reduce, 1, 0, 1}, false, {{0, std::move(blocks)}}};
}

ThreadBlock block(std::vector<Instruction> steps) {
  return {-1, -1, 0, std::move(steps)};
}

TEST(WithoutNops, TheNextInstructionWaitsForWhatTheyWaitedFor) {
  const Program program =
      one_rank({block({copy(1, {}), copy(1, {})}),
                block({nop({{0, 1}}), nop({{0, 0}}), copy(1, {{0, 0}}), copy(1, {}), nop({{0, 1}})}),
                block({copy(1, {{1, 3}})})});
  const Program expected =
      one_rank({block({copy(1, {}), copy(1, {})}), block({copy(1, {{0, 0}, {0, 1}}), copy(1, {}), nop({{0, 1}})}),
                block({copy(1, {{1, 1}})})});
  EXPECT_TRUE(without_nops(program) == expected);
}

TEST(WithoutNops, ANopThatOthersWaitForStays) {
  const Program program =
      one_rank({block({copy(1, {})}), block({nop({{0, 0}}), copy(1, {})}), block({copy(1, {{1, 0}})})});
  EXPECT_TRUE(without_nops(program) == program);
}

TEST(WithOneDependencyEach, UndoesWithoutNops) {
  const Program program = one_rank({block({copy(1, {}), copy(1, {})}), block({copy(1, {})}),
                                    block({copy(1, {{0, 1}, {1, 0}}), copy(1, {})}), block({copy(1, {{2, 1}})})});
  const Program spread = with_one_dependency_each(program);
  EXPECT_EQ(spread.ranks[0].blocks[2].steps[0], nop({{0, 1}}));
  EXPECT_EQ(spread.ranks[0].blocks[2].steps[1], copy(1, {{1, 0}}));
  EXPECT_EQ(spread.ranks[0].blocks[3].steps[0].after, (std::vector<InstructionId>{{2, 2}}));
  EXPECT_TRUE(without_nops(spread) == program);
}

TEST(WithCountsUpTo, TheFirstPieceWaitsAndTheLastIsWaitedFor) {
  const Program cut =
      with_counts_up_to(one_rank({block({copy(2, {})}), block({copy(7, {{0, 0}})}), block({copy(3, {{1, 0}})})}), 3);
  const std::vector<Instruction>& steps = cut.ranks[0].blocks[1].steps;
  ASSERT_EQ(steps.size(), 3U);  // 3 + 3 + 1
  EXPECT_EQ(steps[0], copy(3, {{0, 0}}));
  EXPECT_EQ(steps[2].count, 1);
  EXPECT_EQ(steps[2].src.slot, 6);
  EXPECT_EQ(steps[2].dst.slot, 6);
  EXPECT_TRUE(steps[1].after.empty() && steps[2].after.empty());
  EXPECT_EQ(cut.ranks[0].blocks[2].steps[0].after, (std::vector<InstructionId>{{1, 2}}));
}

}  // namespace
}  // namespace weft
