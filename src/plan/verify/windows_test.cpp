// Windows of tasks: a plan without one of the waits that keep them is refused by name, and a run with random timings
// agrees; a window that a plan merely states is proven too.
#include <gtest/gtest.h>

#include "plan/test_oracle.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/passes.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

class Window : public ::testing::Test {
 protected:
  // Stage 0 waits for gradients between its last forward and its first backward, where the task may run.
  Window() {
    Layout layout{.pp = 2, .schedule = PipelineSchedule::gpipe};
    layout.tasks = {{.name = "evaluate",
                     .duration = Nanos{1000},
                     .release = "layer 1 ffn_residual forward",
                     .deadline = "layer 1 ffn_out input_grad"}};
    const PlanRequest request = test::request(test::small_gpt(4), parse_cluster("local:2,nic=1Gb/s"), layout, 3);
    Overlap overlap;
    overlap.order.fill_bubbles = true;
    plan_ = overlapped_plan(request, test::build(request), "test", overlap).plan();
    task_ = test::find_op(plan_.graph, "stage 0", "evaluate");
  }

  OpId find(std::string_view words) { return test::find_op(plan_.graph, "stage 0", words); }
  void expect_refused(std::initializer_list<std::string_view> words) {
    const std::optional<Violation> found = verify_plan(plan_);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(name_of(found->rule), "window") << found->message;
    for (const std::string_view word : words) {
      EXPECT_NE(found->message.find(word), std::string::npos) << "no '" << word << "' in: " << found->message;
    }
  }

  Plan plan_;
  OpId task_;
};

TEST_F(Window, IsKeptAsPlanned) {
  const std::optional<Violation> found = verify_plan(plan_);
  EXPECT_FALSE(found.has_value()) << found->message;
  EXPECT_FALSE(test::find_damage(plan_, 1, 50).has_value());
  const Queue& queue = plan_.classes[plan_.graph.op(task_).rank_class].queues[plan_.issues[task_].queue];
  EXPECT_EQ(queue.kind, QueueKind::extra);
}

TEST_F(Window, NeedsTheWaitForTheRelease) {
  ASSERT_EQ(std::erase_if(plan_.waits, [&](const Wait& wait) { return wait.operation == task_; }), 1u);
  expect_refused({"[stage 0: evaluate] may start before its release [stage 0: layer 1 ffn_residual forward"});
  EXPECT_TRUE(test::find_damage(plan_, 1, 200).has_value());
}

TEST_F(Window, NeedsTheWaitOfTheDeadline) {
  ASSERT_EQ(std::erase_if(plan_.waits, [&](const Wait& wait) { return wait.until == task_; }), 1u);
  expect_refused({"[stage 0: evaluate] may still run when its deadline [stage 0: layer 1 ffn_out input_grad"});
  EXPECT_TRUE(test::find_damage(plan_, 1, 200).has_value());
}

// The layout demands the window of a task, not the plan's list.
TEST_F(Window, OfATaskCannotBeLeftOut) {
  plan_.windows.clear();
  std::erase_if(plan_.waits, [&](const Wait& wait) { return wait.until == task_; });
  expect_refused({"evaluate", "deadline"});
}

TEST_F(Window, ThatAPlanStatesIsProven) {
  plan_.windows.push_back({find("layer 0 qkv forward"), find("layer 0 attention forward"), OpId{}, 0});
  expect_refused({"layer 0 qkv forward", "release", "layer 0 attention forward"});
  plan_.windows.back() = {find("layer 0 attention forward"), find("layer 0 qkv forward"), find("layer 0 qkv forward"),
                          1};
  const std::optional<Violation> found = verify_plan(plan_);
  EXPECT_FALSE(found.has_value()) << found->message;
}

TEST_F(Window, OfAnotherRankClassIsRefused) {
  plan_.windows.push_back({task_, test::find_op(plan_.graph, "stage 1", "layer 2 qkv forward"), OpId{}, 0});
  expect_refused({"evaluate", "is of another rank class"});
}

TEST_F(Window, CannotBeTakenOverByAnotherTask) {
  plan_.graph.operations[task_].task_name = "another";
  const std::optional<Violation> found = verify_plan(plan_);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->rule, Rule::provenance);
}

}  // namespace
}  // namespace weft
