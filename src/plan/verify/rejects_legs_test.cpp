// Transfers in legs: accepted as they are in every layout, rejected with anything changed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "graph/operation_part.hpp"
#include "graph/substitute.hpp"
#include "plan/test_oracle.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/overlap.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

const std::vector<Substitution> kInLevels{Substitution::all_reduce_in_levels, Substitution::reduce_scatter_in_levels,
                                          Substitution::all_gather_in_levels};
const std::vector<Substitution> kInHalves{Substitution::all_reduce_in_halves};

Plan plan_in_legs(const PlanRequest& request, std::string_view policy, const std::vector<Substitution>& wanted,
                  std::int32_t parts) {
  const SharedGraph graph = test::build(request);
  Overlap overlap = decide_overlap(request, graph, std::string(policy));
  overlap.partition.substitutions = first_possible(graph, wanted);
  if (parts > 1) {
    overlap.partition.parts.clear();
    for (const Operation& op : graph->operations) overlap.partition.parts.push_back(op.per_micro_batch ? 1 : parts);
  }
  return make_whole_plan(request, graph, std::string(policy), overlap).plan();
}

std::string verdict(const Plan& plan) {
  const std::optional<Violation> found = verify_plan(plan, {.memory_limit = {}, .check_memory = false});
  return found ? fmt::format("{}: {}", name_of(found->rule), found->message) : "safe";
}

bool is_leg(const Operation& op) {
  return op.rule != Substitution::none;
}

class AcceptsLegs : public ::testing::TestWithParam<const char*> {};

TEST_P(AcceptsLegs, InEveryLayoutAtEveryZeroStage) {
  int turn = 0, legs = 0;
  for (const auto& [name, base] : test::layouts()) {
    for (int zero = 0; zero <= 3; ++zero, ++turn) {
      Layout layout = base;
      layout.zero = zero;
      layout.clip_grad = turn % 2;
      const Transformer model = base.ep > 1     ? test::small_moe()
                                : turn % 3 == 0 ? test::small_llama()
                                                : test::small_gpt();
      const ClusterSpec cluster =
          turn % 5 == 4 ? test::uneven_nics() : parse_cluster(turn % 2 == 0 ? "dgx-a100:2" : "p4de:2");
      const std::vector<Substitution>& wanted = turn % 3 == 1 && zero == 0 ? kInHalves : kInLevels;
      PlanRequest r = test::request(model, cluster, layout, layout.pp == 1 ? 2 : 4);
      // Every second time each parameter is a bucket of its own, which may be cut.
      const bool apart = turn % 2 == 1;
      if (apart) r.options = {.bucket_parameters = 1, .bucket_mib = 0};
      SCOPED_TRACE(fmt::format("{}, zero {}, {}, {}", name, zero, cluster.name, name_of(wanted.front())));
      const Plan plan = plan_in_legs(r, GetParam(), wanted, apart ? 3 : 1);
      ASSERT_EQ(verdict(plan), "safe");
      const bool any = std::any_of(plan.graph.operations.begin(), plan.graph.operations.end(), is_leg);
      legs += any ? 1 : 0;
      if (any && turn % 4 == 1) {
        EXPECT_EQ(test::find_damage(plan, 3, 2).value_or("safe"), "safe");
      }
    }
  }
  EXPECT_GT(legs, 20);
}

INSTANTIATE_TEST_SUITE_P(Policies, AcceptsLegs,
                         ::testing::Values("serial", "ddp", "megatron-param", "fsdp", "priority"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Legs, GoTogetherWithLayersInRowsAndWovenOrders) {
  for (const int zero : {0, 1, 2}) {
    const PlanRequest r = test::request(test::small_gpt(2), parse_cluster("dgx-a100:2"),
                                        {.tp = 2, .micro_batch = 2, .zero = zero, .sequence_parallel = true}, 2);
    const SharedGraph graph = test::build(r);
    Overlap overlap = decide_overlap(r, graph, "megatron-param");
    overlap.partition.substitutions = first_possible(graph, kInLevels);
    overlap.partition.forward_rows = overlap.partition.backward_rows = 2;
    overlap.beside.tensor_parallel = overlap.weave.enabled = true;
    const Plan plan = make_whole_plan(r, graph, "megatron-param", overlap).plan();
    EXPECT_TRUE(std::any_of(plan.graph.operations.begin(), plan.graph.operations.end(), is_leg));
    EXPECT_TRUE(std::any_of(plan.graph.operations.begin(), plan.graph.operations.end(), is_part));
    EXPECT_EQ(verdict(plan), "safe") << zero;
    EXPECT_EQ(test::find_damage(plan, 7, 2).value_or("safe"), "safe") << zero;
  }
}

// Orders chosen anew keep the legs of a unit of ZeRO together.
TEST(Legs, MayBeWoven) {
  for (const int zero : {0, 1, 2, 3}) {
    for (const char* policy : {"megatron-param", "fsdp"}) {
      const PlanRequest r = test::request(test::small_gpt(4), parse_cluster("dgx-a100:2"), {.zero = zero}, 2);
      const SharedGraph graph = test::build(r);
      Overlap overlap = decide_overlap(r, graph, policy);
      overlap.partition.substitutions = first_possible(graph, kInLevels);
      overlap.weave.enabled = true;
      const Plan plan = make_whole_plan(r, graph, policy, overlap).plan();
      EXPECT_EQ(verdict(plan), "safe") << policy << zero;
      EXPECT_EQ(test::find_damage(plan, 7, 3).value_or("safe"), "safe") << policy << zero;
    }
  }
}

TEST(Legs, PipelineThroughQueuesOfTheirOwn) {
  PlanRequest r = test::request(test::small_gpt(2), parse_cluster("dgx-a100:2"), {}, 2);
  r.options = {.bucket_parameters = 1, .bucket_mib = 0};
  const Plan plan = plan_in_legs(r, "ddp", kInLevels, 1);
  std::vector<std::string> names;
  for (const Queue& queue : plan.classes[0].queues) names.push_back(queue.name);
  EXPECT_EQ(names, (std::vector<std::string>{"compute", "dp inner", "dp outer", "dp inner gather"}));
}

class RejectsLegs : public ::testing::TestWithParam<int> {
 protected:
  RejectsLegs() {
    PlanRequest r = test::request(test::small_gpt(2), parse_cluster("dgx-a100:2"), {.zero = GetParam()}, 2);
    r.options = {.bucket_parameters = 1, .bucket_mib = 0};
    plan_ = plan_in_legs(r, "megatron-param", kInLevels, 2);
  }

  // The legs of one gradient's reduction, by leg and part.
  OpId find(std::int32_t leg, std::int32_t part) const {
    for (std::size_t i = 0; i < plan_.graph.operations.size(); ++i) {
      const Operation& op = plan_.graph.operations[i];
      if (op.role == Role::grad_reduce && op.subject == Role::qkv && op.layer == 0 && op.leg == leg &&
          op.part == part) {
        return make_id<OpId>(i);
      }
    }
    ADD_FAILURE() << "no leg " << leg << " part " << part;
    return OpId{0};
  }
  Operation& op(std::int32_t leg, std::int32_t part = 0) { return plan_.graph.operations[find(leg, part).index()]; }
  void remove(OpId id) {
    plan_.graph.operations.erase(plan_.graph.operations.begin() + id.value);
    plan_.issues.erase(plan_.issues.begin() + id.value);
    for (ClassPlan& c : plan_.classes) {
      for (IssueBlock& block : c.blocks) {
        std::erase(block.operations, id);
        for (OpId& other : block.operations) {
          if (other > id) --other.value;
        }
      }
    }
  }
  void expect_rejected(std::string_view why) const {
    const std::string text = verdict(plan_);
    EXPECT_NE(text.find("provenance"), std::string::npos) << text;
    EXPECT_NE(text.find(why), std::string::npos) << text;
  }

  Plan plan_;
};

TEST_P(RejectsLegs, NothingAsTheyAre) {
  EXPECT_EQ(verdict(plan_), "safe");
  EXPECT_EQ(test::find_damage(plan_, 5, 5).value_or("safe"), "safe");
}

TEST_P(RejectsLegs, ALegLeftOut) {
  for (const std::int32_t leg : {0, 1}) {
    const Plan whole = plan_;
    remove(find(leg, 1));
    expect_rejected("its parts end with piece 1 of 2");
    remove(find(leg, 0));
    expect_rejected("is carried out 0 times instead of once");
    plan_ = whole;
  }
}

TEST_P(RejectsLegs, TwoLegsSwapped) {
  std::swap(op(0), op(1));
  // Where each stands in the graph says nothing; which data it works on does.
  EXPECT_NE(verdict(plan_), "safe");
  std::swap(op(0), op(1));
  std::swap(op(0).leg, op(1).leg);
  expect_rejected("which is another kind of operation");
}

TEST_P(RejectsLegs, AnotherScope) {
  for (const Scope scope : {Scope::whole, Scope::outer}) {
    op(0).communication->scope = scope;
    expect_rejected("which is another kind of operation");
  }
}

TEST_P(RejectsLegs, AnotherCollective) {
  op(1).communication->collective = Collective::all_gather;
  expect_rejected("which is another kind of operation");
}

TEST_P(RejectsLegs, ValuesRetargeted) {
  const Plan whole = plan_;
  op(1).reads.front().value = op(0).reads.front().value;
  expect_rejected("does not read what its origins read");
  plan_ = whole;
  op(0).writes.front() = op(1).writes.front();
  expect_rejected("does not write what its origins write");
  plan_ = whole;
  plan_.graph.values[op(0).writes.front().value.index()].shape.front() -= 1;
  expect_rejected("values are not those");
  plan_ = whole;
  plan_.graph.values.push_back(plan_.graph.values.back());
  plan_.placements.push_back(plan_.placements.back());
  expect_rejected("values are not those");
}

TEST_P(RejectsLegs, AnotherRule) {
  op(0).rule = Substitution::none;
  expect_rejected("another operation by");
  const Substitution other = GetParam() == 0 ? Substitution::all_reduce_in_halves : Substitution::all_gather_in_levels;
  for (Operation& changed : plan_.graph.operations) {
    if (is_leg(changed) && changed.role == Role::grad_reduce) changed.rule = other;
  }
  EXPECT_NE(verdict(plan_), "safe");
}

TEST_P(RejectsLegs, ALegThatTheRuleDoesNotHave) {
  op(1).leg = 7;
  // Looked for by its number, so it is no longer found as leg 1.
  expect_rejected("is leg 7 of");
}

TEST_P(RejectsLegs, ALegOfAnOperationThatHasNone) {
  for (Operation& other : plan_.graph.operations) {
    if (other.role != Role::update) continue;
    other.leg = 1;
    break;
  }
  expect_rejected("is leg 1 of none, which has 1");
}

TEST_P(RejectsLegs, OtherBytes) {
  op(1).communication->bytes.value += 4;
  op(1).key.dims[0] += 4;
  expect_rejected("moves");
}

TEST_P(RejectsLegs, MemoryOfALegThatAnotherValueUses) {
  const ValueId between = op(0).writes.front().value;
  for (std::size_t v = 0; v < plan_.graph.values.size(); ++v) {
    const Value& value = plan_.graph.values[v];
    if (value.kind != ValueKind::optimizer_state) continue;
    plan_.placements[between.index()].offset = plan_.placements[v].offset;
    break;
  }
  const std::string text = verdict(plan_);
  EXPECT_NE(text.find("hazard"), std::string::npos) << text;
}

INSTANTIATE_TEST_SUITE_P(Zero, RejectsLegs, ::testing::Values(0, 1));

}  // namespace
}  // namespace weft
