// Hundreds of random changes to real plans. What a run with random timings shows to be broken, the verifier must
// reject; what it accepts, no run may break.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/test_effort.hpp"
#include "graph/operation_part.hpp"
#include "graph/substitute.hpp"
#include "plan/memory/place.hpp"
#include "plan/test_mutator.hpp"
#include "plan/test_oracle.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/passes.hpp"
#include "planner/schedule/overlap_receives.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

// As serial, but every transfer other than a receive runs beside compute.
Plan beside(Plan plan) {
  for (std::size_t i = 0; i < plan.issues.size(); ++i) {
    const auto& transfer = plan.graph.operations[i].communication;
    if (transfer && (transfer->collective != Collective::send_recv || transfer->sends)) plan.issues[i].blocking = false;
  }
  place_values(plan);
  return plan;
}

Plan receiving_early(Plan plan) {
  overlap_receives(plan);
  place_values(plan);
  return plan;
}

// dW on the extra queue, beside everything else.
Plan with_extra(Plan plan) {
  for (ClassPlan& c : plan.classes) c.queues.push_back({"extra", QueueKind::extra});
  for (std::size_t i = 0; i < plan.issues.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    if (op.is_transfer() || op.phase != Phase::weight_grad) continue;
    plan.issues[i].queue = plan.classes[op.rank_class].queues.last_id();
  }
  place_values(plan);
  return plan;
}

// Buckets under backward, gathers under the next forward; across classes where the cluster says so.
Plan overlapped(PlanRequest request, std::string_view policy) {
  request.options = {.bucket_parameters = 30'000, .bucket_mib = 0.05, .part_mib = 0.02};
  return make_plan(request, test::build(request), policy);
}

// Layers in parts, tensor-parallel traffic beside compute, the order searched for.
Plan woven(const PlanRequest& request, std::int32_t forward_rows, std::int32_t backward_rows) {
  const SharedGraph graph = test::build(request);
  Overlap overlap = decide_overlap(request, graph, "priority");
  overlap.partition.forward_rows = forward_rows;
  overlap.partition.backward_rows = backward_rows;
  overlap.beside.tensor_parallel = overlap.weave.enabled = true;
  return overlapped_plan(request, graph, "weft", overlap).plan();
}

// Forwards and backwards of different micro-batches in pieces that take turns.
Plan paired(const PlanRequest& request) {
  const SharedGraph graph = test::build(request);
  Overlap overlap = decide_overlap(request, graph, "priority");
  overlap.beside.tensor_parallel = overlap.weave.enabled = overlap.weave.pairs = true;
  return overlapped_plan(request, graph, "weft", overlap).plan();
}

// Two nodes of two, transfers in levels, in so many parts.
Plan staged(Layout layout, std::string_view policy, std::int32_t parts) {
  PlanRequest r = test::request(test::small_gpt(2), parse_cluster("dgx-a100:2,gpus=2"), std::move(layout), 2);
  r.options = {.bucket_parameters = parts > 1 ? 1 : 30'000, .bucket_mib = 0.05};
  const SharedGraph graph = test::build(r);
  Overlap overlap = decide_overlap(r, graph, policy);
  overlap.partition.substitutions = first_possible(
      graph,
      {Substitution::all_reduce_in_levels, Substitution::reduce_scatter_in_levels, Substitution::all_gather_in_levels});
  overlap.partition.parts.clear();
  for (const Operation& op : graph->operations) overlap.partition.parts.push_back(op.per_micro_batch ? 1 : parts);
  return make_whole_plan(r, graph, policy, overlap).plan();
}

std::vector<Plan> plans() {
  using enum PipelineSchedule;
  return {
      test::serial(test::small_gpt(3), "local:3", {.pp = 3}),
      test::serial(test::small_llama(4), "local:2", {.pp = 2, .vpp = 2, .clip_grad = 1, .schedule = interleaved}),
      test::serial(test::small_gpt(2), "dgx-a100:1,gpus=4",
                   {.tp = 2, .zero = 1, .sequence_parallel = true, .recompute = Recompute::full}, 2),
      beside(test::serial(test::small_gpt(2), "local:4", {.pp = 2, .zero = 1, .clip_grad = 1, .schedule = gpipe}, 3)),
      beside(test::serial(test::small_llama(2), "local:2", {.zero = 3}, 3)),
      beside(test::serial(test::small_moe(2), "local:4", {.ep = 2, .zero = 2}, 2)),
      with_extra(test::serial(test::small_gpt(2), "local:4", {.pp = 2, .zero = 2})),
      beside(test::serial(test::small_gpt(4), "local:4", {.tp = 2, .pp = 2, .vpp = 2, .schedule = interleaved})),
      overlapped(test::request(test::small_llama(2), test::uneven_nics(), {.zero = 1}, 2), "megatron-param"),
      overlapped(test::request(test::small_gpt(4), parse_cluster("dgx-a100:1"),
                               {.tp = 2, .pp = 2, .zero = 1, .sequence_parallel = true, .clip_grad = 1}, 3),
                 "megatron-param"),
      overlapped(test::request(test::small_moe(4), parse_cluster("local:4"), {.pp = 2, .ep = 2}, 2), "ddp"),
      test::fsdp(test::small_llama(4), "local:2", {.zero = 3, .clip_grad = 1}, 3),
      overlapped(test::request(test::small_gpt(2), parse_cluster("local:2,nic=200Mb/s"), {}, 1), "priority"),
      overlapped(test::request(test::small_llama(2), test::uneven_nics(), {.zero = 1}, 2), "priority"),
      overlapped(test::request(test::small_gpt(4), parse_cluster("local:4"), {.pp = 2, .zero = 2}, 2), "priority"),
      receiving_early(test::fsdp(test::small_moe(4), "local:8", {.pp = 2, .ep = 2, .zero = 3})),
      woven(test::request(test::small_gpt(2), parse_cluster("local:2"), {.tp = 2, .micro_batch = 2}, 2), 2, 2),
      woven(test::request(test::small_llama(2), parse_cluster("local:4"),
                          {.tp = 2, .micro_batch = 2, .zero = 1, .sequence_parallel = true}, 1),
            4, 2),
      woven(test::request(test::small_gpt(4), parse_cluster("local:8"),
                          {.tp = 2, .pp = 2, .zero = 2, .recompute = Recompute::full}, 3),
            2, 4),
      woven(test::request(test::small_llama(2), parse_cluster("local:4"), {.tp = 2, .zero = 3}, 2), 4, 4),
      paired(test::request(test::small_gpt(2), parse_cluster("local:2"), {.tp = 2, .zero = 1}, 4)),
      paired(test::request(test::small_llama(4), parse_cluster("local:4"),
                           {.tp = 2, .pp = 2, .sequence_parallel = true}, 5)),
      staged({}, "megatron-param", 3),
      staged({.zero = 1, .clip_grad = 1}, "megatron-param", 2),
      staged({}, "priority", 1),
      staged({.zero = 1}, "priority", 3),
      staged({.zero = 2}, "fsdp", 2),
  };
}

struct Tally {
  int rejected = 0, broken = 0, mutations = 0;
};

TEST(Verifier, RejectsEveryMutationThatARunWithRandomTimingsBreaks) {
  constexpr int kRuns = 5;
  const int mutations_of_a_plan = test::rounds(55);
  std::map<std::string, Tally> tallies;
  std::uint64_t seed = 1;
  for (const Plan& original : plans()) {
    ASSERT_FALSE(verify_plan(original).has_value()) << verify_plan(original)->message;
    ASSERT_EQ(test::find_damage(original, seed, kRuns).value_or("safe"), "safe");
    for (int i = 0; i < mutations_of_a_plan; ++i) {
      Plan plan = original;
      const std::string kind = test::Mutator(plan, ++seed).mutate();
      const std::optional<Violation> violation = verify_plan(plan);
      const std::optional<std::string> damage = test::find_damage(plan, seed, violation ? kRuns : 2 * kRuns);
      EXPECT_TRUE(violation || !damage) << "seed " << seed << ": " << kind << " is accepted, but " << *damage;
      Tally& tally = tallies[kind];
      ++tally.mutations;
      tally.rejected += violation ? 1 : 0;
      tally.broken += damage ? 1 : 0;
    }
  }
  // What is rejected and not shown broken is of three kinds: orders that the data dependencies would repair at run time
  // but that no host could issue (an operation before the one whose result it waits for, on queues that run beside
  // each other); races that the drawn timings did not hit; offsets off the alignment or over bytes that happen to be
  // free, and copies at the edge of a step.
  int mutations = 0, rejected = 0, broken = 0;
  for (const auto& [kind, tally] : tallies) {
    fmt::print("{:16} {:4} mutations, {:4} rejected, {:4} shown broken\n", kind, tally.mutations, tally.rejected,
               tally.broken);
    mutations += tally.mutations;
    rejected += tally.rejected;
    broken += tally.broken;
  }
  fmt::print("all              {:4} mutations, {:4} rejected, {:4} shown broken\n", mutations, rejected, broken);
  EXPECT_GE(mutations, test::rounds(1000));
  // The oracle sees most of what is wrong, and neither side says no to everything.
  EXPECT_GE(broken, rejected * 2 / 3);
  EXPECT_GE(mutations - rejected, mutations / 20);
}

// Between two parts of an operation another value of its block may be written: where it lies over what the first part
// has left, the second part's write does not bring that back.
TEST(Verifier, RejectsEveryValueThatLiesWhereOtherPartsHaveWritten) {
  int laid_over = 0, accepted = 0;
  for (const Plan& original :
       {woven(test::request(test::small_gpt(2), parse_cluster("local:2"), {.tp = 2, .micro_batch = 2}, 1), 2, 2),
        woven(test::request(test::small_llama(2), parse_cluster("local:2"),
                            {.tp = 2, .micro_batch = 2, .sequence_parallel = true}, 1),
              4, 2)}) {
    std::set<std::size_t> in_parts, all;
    for (const Operation& op : original.graph.operations) {
      for (const Write& write : op.writes) {
        if (!op.per_micro_batch || !original.graph.value(write.value).per_micro_batch) continue;
        all.insert(write.value.index());
        if (is_part(op)) in_parts.insert(write.value.index());
      }
    }
    ASSERT_FALSE(in_parts.empty());
    test::Sample sample;
    for (const std::size_t under : in_parts) {
      for (const std::size_t over : all) {
        if (over == under || !sample.takes()) continue;
        Plan plan = original;
        plan.placements[over].offset = plan.placements[under].offset;
        ++laid_over;
        if (verify_plan(plan)) continue;
        ++accepted;
        const auto damage = test::find_damage(plan, static_cast<std::uint64_t>(laid_over), 2);
        EXPECT_FALSE(damage) << original.graph.values[over].name << " over " << original.graph.values[under].name
                             << " is accepted, but " << *damage;
      }
    }
  }
  EXPECT_GT(accepted, laid_over / 100);  // values that never live together may share memory
}

}  // namespace
}  // namespace weft
