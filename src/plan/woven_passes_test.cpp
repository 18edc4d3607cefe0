#include "plan/woven_passes.hpp"

#include <gtest/gtest.h>

namespace weft {
namespace {

// A class with a block of one, two and three operations of these kinds.
ClassPlan three_blocks() {
  ClassPlan plan;
  plan.blocks.push_back({.kind = BlockKind::forward, .chunk = 0, .operations = {OpId{0}, OpId{1}}});
  plan.blocks.push_back({.kind = BlockKind::input_grad, .chunk = 0, .operations = {OpId{2}, OpId{3}}});
  plan.blocks.push_back({.kind = BlockKind::weight_grad, .chunk = 0, .operations = {OpId{4}, OpId{5}}});
  return plan;
}
constexpr BlockId kForward{0}, kInputGrad{1}, kWeightGrad{2};

TEST(WovenKinds, ThoseOfPassesThatAreOpenAtATime) {
  ClassPlan plan = three_blocks();
  // F0, half of B0, half of W, the rest of B0, F1, and only then the rest of W: W is open beside B and beside F, which
  // are not open beside each other.
  const MicroBatch first{0}, second{1};
  plan.order = {{kForward, first},         {kInputGrad, first, 0, 1}, {kWeightGrad, first, 0, 1},
                {kInputGrad, first, 1, 2}, {kForward, second},        {kWeightGrad, first, 1, 2}};
  const WovenKinds woven = woven_kinds(plan);
  EXPECT_TRUE(woven[BlockKind::weight_grad][BlockKind::input_grad]);
  EXPECT_TRUE(woven[BlockKind::input_grad][BlockKind::weight_grad]);
  EXPECT_TRUE(woven[BlockKind::forward][BlockKind::weight_grad]);
  EXPECT_FALSE(woven[BlockKind::forward][BlockKind::input_grad]);
  EXPECT_TRUE(has_woven_passes(plan));
}

TEST(WovenKinds, NoneWherePassesFollowEachOther) {
  ClassPlan plan = three_blocks();
  plan.order = {{kForward, {0}}, {kInputGrad, {0}}, {kWeightGrad, {0}, 0, 1}, {kWeightGrad, {0}, 1, 2}};
  EXPECT_EQ(woven_kinds(plan), WovenKinds{});
  EXPECT_FALSE(has_woven_passes(plan));
}

}  // namespace
}  // namespace weft
