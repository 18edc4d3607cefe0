// Late operations: how far their reads reach is compared with writing iterations out, and what does not fit is refused.
#include "plan/late.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <tuple>

#include "base/error.hpp"
#include "plan/unfold.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

Plan plan_of_one_micro_batch(int zero) {
  const PlanRequest request = test::request(test::small_gpt(2), parse_cluster("local:2"), {.zero = zero}, 1);
  return make_whole_plan(request, test::build(request), "serial").plan();
}

// Whoever reads a late value of its own step is late too, and so are all writers of a value.
void close_lateness(Plan& plan) {
  const std::vector<std::vector<OpId>> writers = writers_of(plan.graph);
  for (bool changed = true; changed;) {
    changed = false;
    const auto make_late = [&](OpId id) { changed = !std::exchange(plan.issues[id].late, true) || changed; };
    for (const OpId id : plan.graph.operations.ids()) {
      for (const Read& read : plan.graph.op(id).reads) {
        for (const OpId writer : writers[read.value.index()]) {
          if (read.distance == 0 && plan.issues[writer].late) make_late(id);
        }
      }
      if (!plan.issues[id].late) continue;
      for (const Write& write : plan.graph.op(id).writes) {
        for (const OpId writer : writers[write.value.index()]) make_late(writer);
      }
    }
  }
}

// (reader, its iteration, writer, its iteration)
using Waits = std::set<std::tuple<OpId, int, OpId, int>>;
constexpr int kIterations = 4;

Waits written_out(const Plan& plan) {
  Waits waits;
  const std::vector<std::vector<OpId>> writers = writers_of(plan.graph);
  for (const OpId id : plan.graph.operations.ids()) {
    for (const Read& read : plan.graph.op(id).reads) {
      for (const OpId writer : writers[read.value.index()]) {
        for (int i = read.distance; i < kIterations; ++i) waits.emplace(id, i, writer, i - read.distance);
      }
    }
  }
  return waits;
}

// Passes 0 .. kIterations: a late operation is of the iteration before its pass.
Waits unfolded_waits(const Plan& plan) {
  Waits waits;
  const Unfolded unfolded(plan);
  const auto iteration = [&](OpId id, int pass) { return plan.issues[id].late ? pass - 1 : pass; };
  for (const InstanceId i : unfolded.instances().ids()) {
    const OpId reader = unfolded.instances()[i].operation;
    for (const Edge& edge : unfolded.waits_for(i)) {
      if (edge.kind != EdgeKind::data) continue;
      const OpId writer = unfolded.instances()[edge.from].operation;
      for (int pass = 0; pass <= kIterations; ++pass) {
        const int reads_in = iteration(reader, pass), written_in = iteration(writer, pass - edge.distance);
        if (written_in >= 0 && reads_in < kIterations) waits.emplace(reader, reads_in, writer, written_in);
      }
    }
  }
  return waits;
}

TEST(Late, ReadsReachAsFarAsIterationsWrittenOut) {
  std::mt19937 random(1);
  for (const int zero : {0, 1}) {
    const Plan plan = plan_of_one_micro_batch(zero);
    ASSERT_EQ(unfolded_waits(plan), written_out(plan));
    for (int draw = 0; draw < 40; ++draw) {
      Plan late = plan;
      for (const OpId id : late.graph.operations.ids()) {
        late.issues[id].late = may_be_late(late.graph.op(id)) && random() % 8 == 0;
      }
      close_lateness(late);
      ASSERT_EQ(unfolded_waits(late), written_out(late)) << "zero " << zero << ", draw " << draw;
    }
  }
}

std::string late_refusal(const Plan& plan) {
  const CheckedPlan checked = check_plan(plan);
  return checked.violation ? checked.violation->message : "";
}

template <class Wanted>
OpId find_late_candidate(const Plan& plan, const Wanted& wanted) {
  for (const OpId id : plan.graph.operations.ids()) {
    if (wanted(plan.graph.op(id))) return id;
  }
  ADD_FAILURE() << "no such operation";
  return {};
}

TEST(Late, RefusesWhatDoesNotFit) {
  const Plan plan = plan_of_one_micro_batch(0);
  const OpId forward = find_late_candidate(plan, [](const Operation& op) { return op.phase == Phase::forward; });
  const OpId gradient = find_late_candidate(
      plan, [](const Operation& op) { return op.phase == Phase::weight_grad && op.per_micro_batch && op.layer == 1; });
  const auto with = [&](OpId id) {
    Plan late = plan;
    late.issues[id].late = true;
    return late;
  };
  EXPECT_NE(late_refusal(with(forward)).find("only weight gradients and what a step does once may be"),
            std::string::npos)
      << late_refusal(with(forward));
  // Its reduction and its update are not late: they would read what the next pass writes.
  EXPECT_NE(late_refusal(with(gradient)).find("before the pass that writes it"), std::string::npos)
      << late_refusal(with(gradient));

  const PlanRequest several = test::request(test::small_gpt(2), parse_cluster("local:2"), {}, 2);
  Plan of_two = make_whole_plan(several, test::build(several), "serial").plan();
  of_two.issues[gradient].late = true;
  close_lateness(of_two);
  EXPECT_NE(late_refusal(of_two).find("late operations and 2 micro-batches"), std::string::npos)
      << late_refusal(of_two);
}

// The order of a plan without late operations does not fit late ones: the next forward has read the weights by then.
TEST(Late, OrderMustLetForwardFindItsWeights) {
  Plan plan = plan_of_one_micro_batch(0);
  const OpId gradient = find_late_candidate(
      plan, [](const Operation& op) { return op.phase == Phase::weight_grad && op.per_micro_batch && op.layer == 1; });
  plan.issues[gradient].late = true;
  close_lateness(plan);
  EXPECT_NE(late_refusal(plan).find("deadlock"), std::string::npos) << late_refusal(plan);
}

}  // namespace
}  // namespace weft
