// The reported peak against its definition: at every operation in issue order, the union of the addresses that hold
// something, over layouts, policies and points of the search's decision space drawn at random.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/test_effort.hpp"
#include "plan/memory/use.hpp"
#include "planner/passes.hpp"
#include "planner/search/decisions.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

struct Held {
  std::int64_t first = 0, last = 0;  // moments
  std::int64_t begin = 0, end = 0;   // addresses
};

// By operation and micro-batch (-1: once a step).
using Moments = std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t>;

Moments moments_of(const ClassPlan& plan) {
  Moments moments;
  for (const IssueSlot& slot : plan.order) {
    for (const OpId op : operations_of(plan, slot)) {
      const auto now = static_cast<std::int64_t>(moments.size());
      moments[{op.value, slot.micro_batch.value}] = now;
    }
  }
  return moments;
}

// What micro-batches make, one entry for each value and micro-batch; what a step has once is held throughout.
std::vector<Held> held_by(const Plan& plan, std::size_t rank_class, const Moments& moments) {
  std::vector<Held> held;
  const auto end_of_step = static_cast<std::int64_t>(moments.size());
  for (std::size_t v = 0; v < plan.graph.values.size(); ++v) {
    const Value& value = plan.graph.values[v];
    if (value.rank_class.index() != rank_class) continue;
    const std::int64_t size = aligned(value.bytes()).value;
    const auto micro_batches = value.per_micro_batch ? static_cast<std::int32_t>(plan.graph.micro_batches) : 1;
    for (std::int32_t mb = 0; mb < micro_batches; ++mb) {
      const std::int64_t at = address(plan, make_id<ValueId>(v), {mb}).value;
      if (!value.per_micro_batch) {
        held.push_back({0, end_of_step, at, at + size});
        continue;
      }
      Held own{end_of_step, -1, at, at + size};
      for (std::size_t i = 0; i < plan.graph.operations.size(); ++i) {
        const Operation& op = plan.graph.operations[i];
        const auto is_it = [&](const auto& touch) { return touch.value.index() == v; };
        const bool writes = std::any_of(op.writes.begin(), op.writes.end(), is_it);
        const bool reads = std::any_of(op.reads.begin(), op.reads.end(), is_it);
        if (!writes && !reads) continue;
        const std::int64_t now = moments.at({static_cast<std::int32_t>(i), op.per_micro_batch ? mb : -1});
        if (writes) own.first = std::min(own.first, now);
        own.last = std::max(own.last, now);
      }
      if (own.first <= own.last) held.push_back(own);
    }
  }
  std::sort(held.begin(), held.end(), [](const Held& a, const Held& b) { return a.begin < b.begin; });
  return held;
}

// Of entries by address.
std::int64_t peak_of(const std::vector<Held>& held, std::size_t moments) {
  std::int64_t peak = 0;
  for (std::int64_t now = 0; now < static_cast<std::int64_t>(moments); ++now) {
    std::int64_t bytes = 0, covered_to = 0;
    for (const Held& entry : held) {
      if (now < entry.first || now > entry.last || entry.end <= covered_to) continue;
      bytes += entry.end - std::max(entry.begin, covered_to);
      covered_to = entry.end;
    }
    peak = std::max(peak, bytes);
  }
  return peak;
}

void expect_peak_by_definition(const Plan& plan) {
  const std::vector<MemoryUse> use = memory_use(plan);
  for (std::size_t c = 0; c < plan.classes.size(); ++c) {
    const Moments moments = moments_of(plan.classes[c]);
    const std::vector<Held> held = held_by(plan, c, moments);
    for (const Held& entry : held) ASSERT_LE(entry.end, plan.classes[c].memory.value) << "outside the arena";
    EXPECT_EQ(use[c].peak.live.value, peak_of(held, moments.size())) << "class " << c;
    EXPECT_LE(use[c].peak.live.value, plan.classes[c].memory.value) << "class " << c;
  }
}

Layout varied(Layout layout, int turn) {
  layout.zero = turn % 4;
  layout.recompute = static_cast<Recompute>(turn % 3);
  if (turn % 6 == 2) layout.recompute_layers = {1};
  layout.clip_grad = turn % 2;
  return layout;
}

TEST(MemoryUseProperty, ThePeakIsTheUnionOfAddressesInUseUnderEveryPolicy) {
  int turn = 0;
  for (const auto& [name, base] : test::layouts()) {
    const Layout layout = varied(base, turn++);
    const Transformer model = layout.ep > 1 ? test::small_moe() : test::small_gpt();
    const PlanRequest r = test::request(model, parse_cluster("dgx-a100:2"), layout, 4);
    const StepGraph graph = test::build(r);
    for (const char* policy : {"serial", "fsdp", "priority", "centauri"}) {
      SCOPED_TRACE(fmt::format("{}, zero {}, {}", name, layout.zero, policy));
      expect_peak_by_definition(make_plan(r, graph, policy));
    }
  }
}

// Pairs weave a forward and a backward into each other: the one begins to write what the other has read already.
TEST(MemoryUseProperty, ThePeakIsTheUnionOfAddressesInUseInWovenPlans) {
  std::mt19937_64 random(7);
  int turn = 0, paired = 0;
  for (const auto& [name, base] : test::layouts()) {
    for (int draw = 0; draw < test::rounds(3); ++draw, ++turn) {
      Layout layout = varied(base, turn);
      layout.zero = draw % 2 == 0 ? turn % 2 : layout.zero;  // pairs are for ZeRO 0 and 1
      const Transformer model = layout.ep > 1 ? test::small_moe() : test::small_llama();
      const PlanRequest r = test::request(model, parse_cluster("dgx-a100:2"), layout, 4);
      const SharedGraph graph = test::build(r);
      const DecisionSpace space(r, graph);
      Decisions decisions = space.start();
      for (std::size_t d = 0; d < DecisionSpace::kDimensions; ++d) {
        decisions.chosen[d] = static_cast<std::size_t>(random() % space.options(d));
      }
      decisions.chosen[DecisionSpace::kWeave] = 0;
      decisions.chosen[DecisionSpace::kWeaveVisits] = 0;
      if (draw % 2 == 0) decisions.chosen[DecisionSpace::kPairs] = space.options(DecisionSpace::kPairs) - 1;
      SCOPED_TRACE(fmt::format("{}, zero {}, turn {}", name, layout.zero, turn));
      const WholePlan made = overlapped_plan(r, graph, "weft", space.overlap(decisions));
      paired += has_sections(made.plan().classes.front()) ? 1 : 0;
      expect_peak_by_definition(made.plan());
    }
  }
  EXPECT_GT(paired, test::rounds(10));
}

}  // namespace
}  // namespace weft
