// Hundreds of random changes to real plans. What a run with random timings shows to be broken, the verifier must
// reject; what it accepts, no run may break.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/test_effort.hpp"
#include "graph/operation_part.hpp"
#include "plan/memory/place.hpp"
#include "plan/partition/substitute.hpp"
#include "plan/policy/overlap.hpp"
#include "plan/schedule/overlap_receives.hpp"
#include "plan/test_oracle.hpp"
#include "plan/test_plans.hpp"
#include "plan/verify/verify_plan.hpp"

namespace weft {
namespace {

class Mutator {
 public:
  Mutator(Plan& plan, std::uint64_t seed) : plan_(plan), random_(seed) {}

  // Changes the plan in one place and says how.
  std::string mutate() {
    class_ = below(plan_.classes.size());
    switch (below(14)) {
      case 0:
        return swap_slots();
      case 1:
        return drop_slot();
      case 2:
        return repeat_slot();
      case 3:
        return move_operation();
      case 4:
        return swap_operations();
      case 5:
        return change_copies();
      case 6:
        return shift_offset();
      case 7:
        return share_offset();
      case 8:
        return flip_blocking();
      case 9:
        return swap_transfers();
      case 10:
        return change_part();
      case 11:
        return retarget();
      case 12:
        return shrink_memory();
      default:
        return change_queue();
    }
  }

 private:
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
  ClassPlan& plan() { return plan_.classes[class_]; }

  // A part claims other pieces of its operation, or a whole operation to be a part.
  std::string change_part() {
    std::vector<std::size_t> parts;
    for (std::size_t i = 0; i < plan_.graph.operations.size(); ++i) {
      if (is_part(plan_.graph.operations[i])) parts.push_back(i);
    }
    const std::size_t i = parts.empty() ? below(plan_.graph.operations.size()) : parts[below(parts.size())];
    Origin& origin = plan_.graph.operations[i].origins.front();
    switch (below(3)) {
      case 0:
        origin.begin = (origin.begin + 1) % origin.of;
        origin.end = origin.begin + 1;
        break;
      case 1:
        origin.of *= 2;
        break;
      default:
        origin.end = origin.of;
    }
    return "change part";
  }

  // An operation reads or writes another value of the same size.
  std::string retarget() {
    Operation& op = plan_.graph.operations[below(plan_.graph.operations.size())];
    const bool reads = !op.reads.empty() && (op.writes.empty() || below(2) == 0);
    ValueId& value = reads ? op.reads[below(op.reads.size())].value : op.writes[below(op.writes.size())];
    std::vector<ValueId> others;
    for (std::size_t v = 0; v < plan_.graph.values.size(); ++v) {
      const Value &a = plan_.graph.values[v], &b = plan_.graph.value(value);
      if (a.rank_class == b.rank_class && a.bytes() == b.bytes() && a.kind == b.kind)
        others.push_back(make_id<ValueId>(v));
    }
    value = others[below(others.size())];
    return "retarget";
  }

  std::string shrink_memory() {
    plan().memory = Bytes{plan().memory.value - static_cast<std::int64_t>(1 + below(1000))};
    return "shrink memory";
  }

  std::string swap_slots() {
    // Mostly neighbours: those mutations are the ones that are nearly right.
    std::vector<Slot>& order = plan().order;
    const std::size_t i = below(order.size() - 1);
    std::swap(order[i], order[below(3) > 0 ? i + 1 : below(order.size())]);
    return "swap slots";
  }
  std::string drop_slot() {
    plan().order.erase(plan().order.begin() + static_cast<std::ptrdiff_t>(below(plan().order.size())));
    return "drop slot";
  }
  std::string repeat_slot() {
    std::vector<Slot>& order = plan().order;
    const Slot slot = order[below(order.size())];
    order.insert(order.begin() + static_cast<std::ptrdiff_t>(below(order.size())), slot);
    return "repeat slot";
  }
  std::vector<OpId>& some_block() {
    for (;;) {
      std::vector<OpId>& operations = plan().blocks[below(plan().blocks.size())].operations;
      if (operations.size() > 1) return operations;
    }
  }
  std::string move_operation() {
    std::vector<OpId>& operations = some_block();
    const auto from = operations.begin() + static_cast<std::ptrdiff_t>(below(operations.size()));
    const auto to = operations.begin() + static_cast<std::ptrdiff_t>(below(operations.size()));
    from < to ? std::rotate(from, from + 1, to + 1) : std::rotate(to, from, from + 1);
    return "move operation";
  }
  std::string swap_operations() {
    std::vector<OpId>& operations = some_block();
    const std::size_t i = below(operations.size() - 1);
    std::swap(operations[i], operations[i + 1]);
    return "swap operations";
  }
  std::string change_copies() {
    // Of a value that has several; in a plan without any, of any value.
    std::vector<Placement*> several;
    for (Placement& place : plan_.placements) {
      if (place.copies > 1) several.push_back(&place);
    }
    Placement& place =
        several.empty() ? plan_.placements[below(plan_.placements.size())] : *several[below(several.size())];
    place.copies = std::max(1, place.copies + (below(4) > 0 ? -1 : 1));
    return "change copies";
  }
  std::string shift_offset() {
    Placement& place = plan_.placements[below(plan_.placements.size())];
    const auto distance = static_cast<std::int64_t>(kAlignment << below(8));
    place.offset.value = std::max<std::int64_t>(0, place.offset.value + (below(2) == 0 ? distance : -distance));
    return "shift offset";
  }
  std::string share_offset() {
    const std::size_t i = below(plan_.placements.size()), j = below(plan_.placements.size());
    plan_.placements[i].offset = plan_.placements[j].offset;
    return "share offset";
  }
  std::size_t some_transfer() {
    for (;;) {
      const std::size_t i = below(plan_.issues.size());
      if (plan_.graph.operations[i].is_transfer()) return i;
    }
  }
  std::string flip_blocking() {
    bool& blocking = plan_.issues[some_transfer()].blocking;
    blocking = !blocking;
    return "flip blocking";
  }
  // Two transfers of a class exchange their numbers.
  std::string swap_transfers() {
    const std::size_t i = some_transfer(), j = some_transfer();
    Operation &a = plan_.graph.operations[i], &b = plan_.graph.operations[j];
    if (a.rank_class == b.rank_class) std::swap(a.communication->transfer, b.communication->transfer);
    return "swap transfers";
  }
  std::string change_queue() {
    const std::size_t i = some_transfer();
    std::vector<Queue>& queues = plan_.classes[plan_.graph.operations[i].rank_class.index()].queues;
    if (below(2) == 0) queues.push_back({"another", QueueKind::communication});
    do plan_.issues[i].queue = static_cast<std::int32_t>(1 + below(queues.size() - 1));
    while (queues[static_cast<std::size_t>(plan_.issues[i].queue)].kind != QueueKind::communication);
    return "change queue";
  }

  Plan& plan_;
  std::mt19937_64 random_;
  std::size_t class_ = 0;
};

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
    plan.issues[i].queue = static_cast<std::int32_t>(plan.classes[op.rank_class.index()].queues.size()) - 1;
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
  const StepGraph graph = test::build(request);
  Overlap overlap = decide_overlap(request, graph, "priority");
  overlap.forward_rows = forward_rows;
  overlap.backward_rows = backward_rows;
  overlap.tensor_parallel = overlap.weave = true;
  return overlapped_plan(request, graph, "weft", overlap).plan;
}

// Forwards and backwards of different micro-batches in pieces that take turns.
Plan paired(const PlanRequest& request) {
  const StepGraph graph = test::build(request);
  Overlap overlap = decide_overlap(request, graph, "priority");
  overlap.tensor_parallel = overlap.weave = overlap.pairs = true;
  return overlapped_plan(request, graph, "weft", overlap).plan;
}

// Two nodes of two, transfers in levels, in so many parts.
Plan staged(Layout layout, std::string_view policy, std::int32_t parts) {
  PlanRequest r = test::request(test::small_gpt(2), parse_cluster("dgx-a100:2,gpus=2"), std::move(layout), 2);
  r.options = {.bucket_parameters = parts > 1 ? 1 : 30'000, .bucket_mib = 0.05};
  const StepGraph graph = test::build(r);
  Overlap overlap = decide_overlap(r, graph, policy);
  overlap.substitutions = first_possible(
      graph,
      {Substitution::all_reduce_in_levels, Substitution::reduce_scatter_in_levels, Substitution::all_gather_in_levels});
  overlap.parts.clear();
  for (const Operation& op : graph.operations) overlap.parts.push_back(op.per_micro_batch ? 1 : parts);
  return make_unfolded_plan(r, graph, policy, overlap).plan;
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
  constexpr int kMutationsOfAPlan = test::rounds(55), kRuns = 5;
  std::map<std::string, Tally> tallies;
  std::uint64_t seed = 1;
  for (const Plan& original : plans()) {
    ASSERT_FALSE(verify_plan(original).has_value()) << verify_plan(original)->message;
    ASSERT_EQ(test::find_damage(original, seed, kRuns).value_or("safe"), "safe");
    for (int i = 0; i < kMutationsOfAPlan; ++i) {
      Plan plan = original;
      const std::string kind = Mutator(plan, ++seed).mutate();
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

}  // namespace
}  // namespace weft
