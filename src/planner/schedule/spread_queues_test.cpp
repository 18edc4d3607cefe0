#include "planner/schedule/spread_queues.hpp"

#include <gtest/gtest.h>

#include "plan/verify/verify_plan.hpp"
#include "planner/passes.hpp"
#include "planner/policy/policy.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

Plan spread(const Layout& layout, const std::string& policy, int queues, std::int64_t micro_batches = 1) {
  const PlanRequest request = test::request(test::small_gpt(4), parse_cluster("local:4"), layout, micro_batches);
  const SharedGraph graph = test::build(request);
  Overlap overlap = decide_overlap(request, graph, policy);
  overlap.order.queues = queues;
  return overlapped_plan(request, graph, policy, overlap).plan();
}

// Names of the queues of transfers beside compute, in the order of their issue.
std::vector<std::string> queues_of(const Plan& plan) {
  std::vector<std::string> names;
  const ClassPlan& c = plan.classes.front();
  for (const IssueSlot& slot : c.order) {
    for (const OpId id : operations_of(c, slot)) {
      if (plan.graph.op(id).is_transfer() && !plan.issues[id].blocking)
        names.push_back(c.queues[plan.issues[id].queue].name);
    }
  }
  return names;
}

TEST(SpreadQueues, TransfersTakeTurns) {
  const std::vector<std::string> names = queues_of(spread({}, "priority", 3));
  ASSERT_GE(names.size(), 6U);
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(names[i], i % 3 == 0 ? "dp" : i % 3 == 1 ? "dp 2" : "dp 3");
  }
}

// Compute waits for every one of them anyway.
TEST(SpreadQueues, LeavesBlockingTransfersWhereTheyAre) {
  EXPECT_EQ(spread({.tp = 4, .etp = 4}, "serial", 2).classes.front().queues,
            spread({.tp = 4, .etp = 4}, "serial", 1).classes.front().queues);
}

TEST(SpreadQueues, PlansAreSafe) {
  for (const std::string policy : {"ddp", "priority", "fsdp", "megatron-param"}) {
    for (const int zero : {0, 1, 2, 3}) {
      if ((policy == "fsdp") != (zero == 3) && policy != "priority") continue;
      for (const std::int64_t pp : {1, 2}) {
        const Plan plan = spread({.pp = pp, .zero = zero}, policy, 2, 2);
        const std::optional<Violation> violation = verify_plan(plan);
        EXPECT_FALSE(violation) << policy << " zero " << zero << " pp " << pp << ": " << violation->message;
      }
    }
  }
}

}  // namespace
}  // namespace weft
