// Layers with experts, cut by tokens and by capacity: accepted as policies make them, rejected with anything changed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "graph/operation_part.hpp"
#include "plan/test_oracle.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/overlap.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

std::string verdict(const Plan& plan) {
  const std::optional<Violation> found = verify_plan(plan, {.memory_limit = {}, .check_memory = false});
  return found ? fmt::format("{}: {}", name_of(found->rule), found->message) : "safe";
}

PlanRequest slow_links(Layout layout, std::int64_t micro_batches = 2) {
  layout.micro_batch = 4;
  return test::request(test::small_moe(4), parse_cluster("local:8,nic=2Gb/s"), layout, micro_batches);
}

// Every layer with experts in 4 parts, forward and back.
Plan cut_plan(std::int32_t axis) {
  const PlanRequest r = slow_links({.ep = 4});
  const SharedGraph graph = test::build(r);
  Overlap overlap = decide_overlap(r, graph, "ddp");
  overlap.beside.expert_parallel = overlap.order.parts_in_turn = true;
  if (axis == kTokenAxis) {
    overlap.partition.forward_rows = overlap.partition.backward_rows = 4;
  } else {
    overlap.partition.layers = merge_cuts(expert_cuts(graph, 4, true), expert_cuts(graph, 4, false));
  }
  return make_whole_plan(r, graph, "tutel", overlap).plan();
}

TEST(CutExpertsPlan, IsAcceptedAndRunsAtRandomTimings) {
  for (const std::int32_t axis : {kTokenAxis, kCapacityAxis}) {
    const Plan plan = cut_plan(axis);
    EXPECT_EQ(verdict(plan), "safe") << axis;
    EXPECT_EQ(test::find_damage(plan, 3, 2).value_or("safe"), "safe") << axis;
  }
}

TEST(ExpertPolicies, AreAcceptedInLayoutsWithExpertsAndRunAtRandomTimings) {
  int cut = 0, turn = 0;
  for (const char* policy : {"tutel", "lancet"}) {
    for (const Layout& base : {Layout{.ep = 8}, Layout{.ep = 2}, Layout{.tp = 2, .ep = 2, .etp = 2},
                               Layout{.tp = 2, .ep = 4, .etp = 1, .sequence_parallel = true}, Layout{.pp = 2, .ep = 4},
                               Layout{.pp = 2, .ep = 2, .recompute = Recompute::full}}) {
      for (int zero = 0; zero <= 3; ++zero) {
        Layout layout = base;
        layout.zero = zero;
        SCOPED_TRACE(fmt::format("{} tp {} pp {} ep {} zero {}", policy, base.tp, base.pp, base.ep, zero));
        const PlanRequest r = slow_links(layout, base.pp > 1 ? 3 : 2);
        const Plan plan = make_plan(r, test::build(r), policy);
        ASSERT_EQ(verdict(plan), "safe");
        if (turn++ % 5 == 0) {
          EXPECT_EQ(test::find_damage(plan, static_cast<std::uint64_t>(turn), 1).value_or("safe"), "safe");
        }
        const bool parts = std::any_of(plan.graph.operations.begin(), plan.graph.operations.end(),
                                       [](const Operation& op) { return op.per_micro_batch && is_part(op); });
        cut += parts ? 1 : 0;
      }
    }
  }
  EXPECT_GT(cut, 20);
}

class RejectsCutExperts : public ::testing::Test {
 protected:
  Plan plan_ = cut_plan(kTokenAxis);

  std::vector<OpId> parts(Role role, Phase phase) const {
    std::vector<OpId> found;
    for (std::size_t i = 0; i < plan_.graph.operations.size(); ++i) {
      const Operation& op = plan_.graph.operations[i];
      if (op.role == role && op.phase == phase && op.layer == 1) found.push_back(make_id<OpId>(i));
    }
    return found;
  }
  Operation& op(OpId id) { return plan_.graph.operations[id.index()]; }
  void expect(std::string_view rule, std::string_view words) const {
    EXPECT_EQ(verdict(plan_).substr(0, rule.size()), rule) << verdict(plan_);
    EXPECT_NE(verdict(plan_).find(words), std::string::npos) << verdict(plan_);
  }
};

TEST_F(RejectsCutExperts, NothingOfTheOriginal) {
  ASSERT_EQ(parts(Role::gate, Phase::forward).size(), 4U);
  EXPECT_EQ(verdict(plan_), "safe");
}

TEST_F(RejectsCutExperts, AGateThatForgetsWhatThePartsBeforeItUsed) {
  Operation& gate = op(parts(Role::gate, Phase::forward)[2]);
  ASSERT_EQ(std::erase_if(gate.reads, [](const Read& read) { return read.operand == Operand::loads; }), 1U);
  expect("provenance", "does not read what its origins read");
}

TEST_F(RejectsCutExperts, PartsOfAGateOutOfTurn) {
  const std::vector<OpId> gates = parts(Role::gate, Phase::forward);
  for (IssueBlock& block : plan_.classes.front().blocks) {
    for (OpId& id : block.operations) id = id == gates[1] ? gates[2] : id == gates[2] ? gates[1] : id;
  }
  EXPECT_NE(verdict(plan_), "safe");
}

TEST_F(RejectsCutExperts, ExpertsThatAreCutAlongTwoAxes) {
  const StepGraph whole = build_step_graph(plan_.model, Cluster(plan_.cluster), plan_.layout);
  for (const OpId id : parts(Role::expert_combine, Phase::forward)) {
    Operation& part = op(id);
    part.origins.front().axis = kCapacityAxis;
    part.key.dims[0] = part_size(whole, whole.op(part.origins.front().operation), part.origins.front());
    part.communication->bytes = {part.key.dims[0]};
  }
  expect("provenance", "experts of a layer are cut alike");
}

TEST_F(RejectsCutExperts, OneOperationCutAlongTwoAxes) {
  const StepGraph whole = build_step_graph(plan_.model, Cluster(plan_.cluster), plan_.layout);
  Operation& part = op(parts(Role::expert_in, Phase::forward)[1]);
  part.origins.front().axis = kCapacityAxis;
  part.key.dims[0] = part_size(whole, whole.op(part.origins.front().operation), part.origins.front());
  expect("provenance", "some of its parts are cut along axis");
}

TEST_F(RejectsCutExperts, ADispatchByCapacity) {
  for (const OpId id : parts(Role::dispatch, Phase::forward)) op(id).origins.front().axis = kCapacityAxis;
  expect("provenance", "which is no part of it");
}

TEST_F(RejectsCutExperts, PaddingThatNoTokenFills) {
  const StepGraph whole = build_step_graph(plan_.model, Cluster(plan_.cluster), plan_.layout);
  for (const OpId id : parts(Role::expert_dispatch, Phase::forward)) {
    Operation& part = op(id);
    part.key.dims[0] = whole.op(part.origins.front().operation).key.dims[0] / 4;
    part.communication->bytes = {part.key.dims[0]};
  }
  expect("provenance", "moves");
}

}  // namespace
}  // namespace weft
