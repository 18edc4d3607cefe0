#include "plan/shared_queues.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "planner/test_plans.hpp"

namespace weft {
namespace {

// Every class numbers its queues differently, and both ends of every transfer are on queues of one number.
void expect_numbers_meet(const Plan& plan) {
  const SharedQueues queues(plan);
  EXPECT_FALSE(queues.conflict());
  for (const ClassId c : plan.classes.ids()) {
    std::set<std::int32_t> numbers;
    for (const QueueId q : plan.classes[c].queues.ids()) numbers.insert(queues.number(c, q));
    EXPECT_EQ(numbers.size(), plan.classes[c].queues.size());
  }
  std::map<std::int32_t, std::set<std::int32_t>> by_transfer;
  for (std::size_t i = 0; i < plan.graph.operations.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    if (!op.communication || op.communication->transfer < 0) continue;
    by_transfer[op.communication->transfer].insert(queues.number(op.rank_class, plan.issues[i].queue));
  }
  EXPECT_FALSE(by_transfer.empty());
  for (const auto& [transfer, numbers] : by_transfer) EXPECT_EQ(numbers.size(), 1u) << "transfer " << transfer;
}

TEST(SharedQueues, MeetForEveryTransferAcrossStages) {
  using enum PipelineSchedule;
  expect_numbers_meet(test::serial(test::small_gpt(3), "local:3", {.pp = 3, .clip_grad = 1}));
  expect_numbers_meet(test::serial(test::small_gpt(4), "local:2", {.pp = 2, .vpp = 2, .schedule = interleaved}));
  expect_numbers_meet(test::serial(test::small_llama(8), "local:16", {.tp = 2, .pp = 8, .zero = 1, .clip_grad = 1}));
}

// Stage s sends forward to s + 1 and receives from s - 1, and back: a middle stage has four queues of messages beside
// compute, and a chain of stages can be numbered with five numbers, however long it is.
TEST(SharedQueues, NeedNoMoreNumbersForMoreStages) {
  const Plan plan = test::serial(test::small_llama(16), "local:16", {.pp = 16});
  const SharedQueues queues(plan);
  std::int32_t highest = 0;
  for (const ClassId c : plan.classes.ids()) {
    for (const QueueId q : plan.classes[c].queues.ids()) highest = std::max(highest, queues.number(c, q));
  }
  EXPECT_LE(highest, 5);
}

// The name of a queue means nothing: what is on it does.
TEST(SharedQueues, GoByTransfersNotByNames) {
  Plan plan = test::serial(test::small_gpt(4), "local:2", {.pp = 2});
  plan.classes[0].queues[1].name = "another name";
  expect_numbers_meet(plan);
}

TEST(SharedQueues, NameTwoTransfersThatOneMemberKeepsApartAndAnotherDoesNot) {
  Plan plan =
      test::serial(test::small_gpt(4), "local:2", {.pp = 2, .vpp = 2, .schedule = PipelineSchedule::interleaved});
  plan.classes[0].queues.push_back({"another", QueueKind::communication});
  // Stage 1 sends the gradients of both model chunks on one queue; stage 0 now receives one of them on another.
  const OpId moved = test::find_op(plan.graph, "stage 0", "stage_output input_grad");
  plan.issues[moved].queue = plan.classes[0].queues.last_id();
  const SharedQueues queues(plan);
  ASSERT_TRUE(queues.conflict());
  const auto stage = [&](OpId id) { return plan.graph.op(id).rank_class.index(); };
  EXPECT_EQ(stage(queues.conflict()->first), stage(queues.conflict()->second));
  EXPECT_NE(plan.issues[queues.conflict()->first.index()].queue, plan.issues[queues.conflict()->second.index()].queue);
}

}  // namespace
}  // namespace weft
