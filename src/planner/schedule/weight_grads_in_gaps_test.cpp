// Weight gradients between the operations of other passes: nothing but they moves, they stand where compute waits for
// transfers, and what comes out is safe.
#include "planner/schedule/weight_grads_in_gaps.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "plan/happens_before.hpp"
#include "plan/test_oracle.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/passes.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

struct SplitCase {
  const char* name;
  Layout layout;
  bool pairs = false;
};

std::vector<SplitCase> split_cases() {
  using enum PipelineSchedule;
  return {
      {"zb-h1", {.tp = 2, .pp = 4, .etp = 2, .schedule = zb_h1}},
      {"zb-h2, sequence parallel", {.tp = 2, .pp = 4, .etp = 2, .sequence_parallel = true, .schedule = zb_h2}},
      {"zbv", {.tp = 2, .pp = 4, .vpp = 2, .etp = 2, .schedule = zbv}},
      {"zbv, sequence parallel, recompute",
       {.tp = 2,
        .pp = 2,
        .vpp = 2,
        .etp = 2,
        .zero = 1,
        .sequence_parallel = true,
        .recompute = Recompute::full,
        .schedule = zbv}},
      {"v-half", {.tp = 2, .pp = 4, .vpp = 2, .etp = 2, .zero = 1, .schedule = v_half}},
      {"v-min, clipped", {.tp = 4, .pp = 2, .vpp = 2, .etp = 4, .clip_grad = 1, .schedule = v_min}},
      {"dualpipev", {.tp = 2, .pp = 4, .vpp = 2, .etp = 2, .schedule = dualpipev}},
      {"dualpipev, pairs",
       {.tp = 2, .pp = 4, .vpp = 2, .etp = 2, .sequence_parallel = true, .schedule = dualpipev},
       true},
      {"dualpipe, pairs", {.tp = 2, .pp = 4, .vpp = 2, .etp = 2, .schedule = dualpipe}, true},
      {"zbv, experts", {.pp = 4, .vpp = 2, .ep = 4, .schedule = zbv}},
  };
}

constexpr GapRule kRules[] = {GapRule::early, GapRule::spare_at_end, GapRule::held_back};

Overlap overlap_of(const SplitCase& c, GapRule rule) {
  Overlap overlap;
  overlap.beside.tensor_parallel = overlap.beside.expert_parallel = overlap.beside.receives = true;
  overlap.weave.enabled = true;
  overlap.weave.pairs = c.pairs;
  overlap.order.gaps = rule;
  return overlap;
}

WholePlan plan_of(const SplitCase& c, GapRule rule, std::int64_t micro_batches = 6) {
  const Transformer model = c.layout.ep > 1 ? test::small_moe() : test::small_llama();
  const PlanRequest r = test::request(model, parse_cluster("dgx-a100:2"), c.layout, micro_batches);
  return overlapped_plan(r, test::build(r), "weft", overlap_of(c, rule));
}

// What a class issues of some blocks, operation by operation.
std::vector<std::pair<OpId, MicroBatch>> issued(const ClassPlan& plan, bool weight_grads) {
  std::vector<std::pair<OpId, MicroBatch>> result;
  for (const IssueSlot& slot : plan.order) {
    if ((block_of(plan, slot).kind == BlockKind::weight_grad) != weight_grads) continue;
    for (const OpId id : operations_of(plan, slot)) result.emplace_back(id, slot.micro_batch);
  }
  return result;
}

bool has_traffic_beside_compute(const Plan& plan, ClassId c) {
  return std::any_of(plan.graph.operations.begin(), plan.graph.operations.end(), [&](const Operation& op) {
    return op.rank_class == c && op.communication && op.per_micro_batch && op.layer >= 0 &&
           op.communication->collective != Collective::send_recv;
  });
}

TEST(WeightGradsInGaps, OnlyMoveBetweenTheOtherPasses) {
  for (const SplitCase& c : split_cases()) {
    const WholePlan apart = plan_of(c, GapRule::none);
    for (const GapRule rule : kRules) {
      SCOPED_TRACE(fmt::format("{}, rule {}", c.name, static_cast<int>(rule)));
      const WholePlan made = plan_of(c, rule);
      for (const ClassId id : made.plan().classes.ids()) {
        const ClassPlan &own = made.plan().classes[id], &before = apart.plan().classes[id];
        EXPECT_EQ(issued(own, false), issued(before, false));
        EXPECT_EQ(issued(own, true), issued(before, true));
        EXPECT_NE(own.order, before.order);
      }
    }
  }
}

TEST(WeightGradsInGaps, MakePlansThatAreSafe) {
  for (const SplitCase& c : split_cases()) {
    for (const GapRule rule : kRules) {
      SCOPED_TRACE(fmt::format("{}, rule {}", c.name, static_cast<int>(rule)));
      const WholePlan made = plan_of(c, rule);
      const auto found = verify_plan(made, {.memory_limit = {}, .check_memory = false});
      EXPECT_EQ(found ? found->message : "safe", "safe");
      EXPECT_EQ(test::find_damage(made.plan(), 1, 2).value_or("safe"), "safe");
    }
  }
}

// Behind weight gradients within a pass comes an operation that waits for a transfer of the pass which was issued
// before them: there was a gap. (Of a pair, either of its blocks may be the one that waits.)
TEST(WeightGradsInGaps, StandWhereComputeWaitsForTransfers) {
  for (const SplitCase& c : split_cases()) {
    if (c.pairs) continue;
    SCOPED_TRACE(c.name);
    const WholePlan made = plan_of(c, GapRule::early);
    const Plan& plan = made.plan();
    int gaps = 0;
    for (const ClassId id : plan.classes.ids()) {
      if (!has_traffic_beside_compute(plan, id)) continue;
      const ClassPlan& own = plan.classes[id];
      for (std::size_t i = 2; i < own.order.size(); ++i) {
        const IssueSlot& slot = own.order[i];
        if (slot.begin == 0 || block_of(own, slot).kind == BlockKind::weight_grad) continue;
        ++gaps;
        const std::vector<OpId>& operations = block_of(own, slot).operations;
        const Operation& waiting = plan.graph.op(operations[static_cast<std::size_t>(slot.begin)]);
        const bool waits = std::any_of(operations.begin(), operations.begin() + slot.begin, [&](OpId before) {
          const Operation& op = plan.graph.op(before);
          return op.is_transfer() && std::any_of(op.writes.begin(), op.writes.end(), [&](const Write& write) {
                   return std::any_of(waiting.reads.begin(), waiting.reads.end(),
                                      [&](const Read& read) { return read.value == write.value; });
                 });
        });
        EXPECT_TRUE(waits) << describe(waiting);
      }
    }
    EXPECT_GT(gaps, 0);
  }
}

// Those held back come later than their turn, and never later than the update.
TEST(WeightGradsInGaps, HeldBackComeLaterThanEarlyOnes) {
  const SplitCase c{"zbv", {.tp = 2, .pp = 4, .vpp = 2, .etp = 2, .schedule = PipelineSchedule::zbv}};
  const WholePlan early = plan_of(c, GapRule::early), late = plan_of(c, GapRule::held_back);
  // The number of other operations before each weight gradient, summed.
  const auto lateness = [](const WholePlan& whole) {
    std::int64_t sum = 0;
    for (const ClassPlan& own : whole.plan().classes) {
      std::int64_t others = 0;
      for (const IssueSlot& slot : own.order) {
        const auto count = static_cast<std::int64_t>(operations_of(own, slot).size());
        const bool is_weight_grad = block_of(own, slot).kind == BlockKind::weight_grad;
        (is_weight_grad ? sum : others) += is_weight_grad ? count * others : count;
      }
    }
    return sum;
  };
  EXPECT_GT(lateness(late), lateness(early));
}

// Inputs of weight gradients wait for those before them to be used, and whatever the links, never for what comes later.
TEST(WeightGradsInGaps, InputsOfSlowLinksCloseNoCycle) {
  using enum PipelineSchedule;
  for (const char* cluster : {"local:8,nic=200Mb/s", "local:8,nic=10Gb/s", "local:8,nic=400Gb/s"}) {
    for (const PipelineSchedule schedule : {zb_h1, zb_h2}) {
      for (const Transformer& model : {test::small_llama(), test::small_mla()}) {
        const Layout layout{.tp = 2, .pp = 4, .etp = 2, .sequence_parallel = true, .schedule = schedule};
        const PlanRequest r = test::request(model, parse_cluster(cluster), layout, 6);
        const SharedGraph graph = test::build(r);
        for (const GapRule rule : kRules) {
          for (const std::int32_t rows : {1, 2}) {
            Overlap overlap = overlap_of({"", layout}, rule);
            overlap.partition.forward_rows = overlap.partition.backward_rows = rows;
            SCOPED_TRACE(
                fmt::format("{}, {}, rule {}, {} parts", cluster, name_of(schedule), static_cast<int>(rule), rows));
            const WholePlan made = overlapped_plan(r, graph, "weft", overlap);
            EXPECT_TRUE(find_run_order(made.unfolded()).cycle.empty());
            EXPECT_EQ(test::find_damage(made.plan(), 1, 1).value_or("safe"), "safe");
          }
        }
      }
    }
  }
}

// Of what weight gradients of a pass gather, two at a time have memory: those that come before the pass, and those
// within it.
TEST(WeightGradsInGaps, InputsHaveFourPlaces) {
  const SplitCase c{"", {.tp = 2, .pp = 2, .etp = 2, .sequence_parallel = true, .schedule = PipelineSchedule::zb_h2}};
  const WholePlan made = plan_of(c, GapRule::early);
  const Plan& plan = made.plan();
  for (const ClassId id : plan.classes.ids()) {
    std::set<std::int64_t> places;
    std::int64_t gathers = 0;
    for (const IssueBlock& block : plan.classes[id].blocks) {
      if (block.kind != BlockKind::weight_grad) continue;
      for (const OpId op : block.operations) {
        if (!plan.graph.op(op).is_transfer()) continue;
        ++gathers;
        for (const Write& write : plan.graph.op(op).writes) {
          const Placement& place = plan.placements[write.value];
          ASSERT_EQ(place.copies, 1);
          places.insert(place.offset.value);
        }
      }
    }
    EXPECT_GT(gathers, 4);
    EXPECT_LE(places.size(), 4);
  }
}

// Whole backwards have their weight gradients already; slices and gradients that are reduced layer by layer stay as
// they are.
TEST(WeightGradsInGaps, LeaveOtherPlansAlone) {
  using enum PipelineSchedule;
  for (const Layout& layout : {Layout{.tp = 2, .pp = 4, .etp = 2, .schedule = one_f_one_b},
                               Layout{.tp = 2, .pp = 4, .etp = 2, .zero = 2, .schedule = zb_h1},
                               Layout{.tp = 2, .pp = 4, .etp = 2, .slice_tokens = {16, 16}, .schedule = zb_h1}}) {
    const SplitCase c{"", layout};
    const WholePlan filled = plan_of(c, GapRule::early), apart = plan_of(c, GapRule::none);
    EXPECT_EQ(filled.plan().classes, apart.plan().classes);
  }
}

}  // namespace
}  // namespace weft
