// Chunks share what they keep from forward to backward.
#include "plan/memory/frames.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "plan/memory/use.hpp"
#include "plan/test_oracle.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/passes.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

Layout interleaved(std::int64_t stages, std::int64_t chunks) {
  return {.pp = stages, .vpp = chunks, .schedule = PipelineSchedule::interleaved};
}

// Narayanan et al. 2021: pipeline rank 0 of p has 2 (p - 1) + (v - 1) p + 1 forwards in flight, of a p v-th of the
// model each. Chunks of equal layers: as many frames as that, no more.
TEST(Frames, AreAsManyAsForwardsAreInFlight) {
  for (const auto& [stages, chunks] : std::vector<std::pair<std::int64_t, std::int64_t>>{{2, 2}, {4, 2}, {4, 3}}) {
    const Plan plan =
        test::serial(test::small_gpt(stages * chunks), "local:4", interleaved(stages, chunks), 4 * stages);
    for (std::size_t c = 0; c < plan.classes.size(); ++c) {
      const ClassPlan& rank_class = plan.classes[c];
      ASSERT_EQ(rank_class.frames.size(), static_cast<std::size_t>(chunks));
      std::set<std::int64_t> places;
      for (const Frame& frame : rank_class.frames) {
        for (const Bytes base : frame.base) places.insert(base.value);
      }
      if (c == 0 || c + 1 == plan.classes.size()) continue;  // embedding and head make chunks unequal
      const std::int64_t stage = plan.graph.classes[c].stage;
      EXPECT_EQ(static_cast<std::int64_t>(places.size()), 2 * (stages - 1 - stage) + (chunks - 1) * stages + 1);
    }
  }
}

// Korthikanti et al. 2022, equation 5: interleaving keeps 1 + (p - 1) / (p v) times the activations of 1F1B's first
// stage, which are those of all L layers.
TEST(Frames, KeepTheActivationsThatThePaperCounts) {
  Transformer model = test::small_gpt(24);
  model.vocab = 1;
  const auto activations = [&](const Layout& layout) {
    const Plan plan = test::serial(model, "local:4", layout, 16);
    const MemoryUse use = memory_use(plan)[1];
    for (const MemoryTerm& term : use.terms) {
      if (term.name == "activations") return static_cast<double>(term.bytes.value);
    }
    return 0.0;
  };
  // Stage 1 of 4 holds three micro-batches of six layers in 1F1B; interleaved, 2 * 2 + 2 * 4 + 1 = 13 of two layers.
  EXPECT_NEAR(activations(interleaved(4, 3)) / activations({.pp = 4}), 13.0 * 2 / (3 * 6), 0.08);
}

// Bytes of a class in frames at every issue position, if each value is held from its first writer to its last reader,
// or (`whole_passes`) everything from the begin of its forward to the end of its backward.
std::int64_t most_held(const Plan& plan, std::size_t rank_class, bool whole_passes) {
  std::map<std::pair<OpId, MicroBatch>, std::int64_t> position;
  std::map<std::pair<std::int32_t, MicroBatch>, std::pair<std::int64_t, std::int64_t>> pass;  // by chunk
  std::int64_t now = 0;
  for (const IssueSlot& slot : plan.classes[rank_class].order) {
    for (const OpId id : operations_of(plan.classes[rank_class], slot)) {
      const auto found = pass.try_emplace({plan.graph.op(id).chunk, slot.micro_batch}, now, now).first;
      found->second.second = now;
      position[{id, slot.micro_batch}] = now++;
    }
  }
  std::vector<std::int64_t> held(now, 0);
  for (std::size_t v = 0; v < plan.graph.values.size(); ++v) {
    if (plan.graph.values[v].rank_class.index() != rank_class || plan.placements[v].frame < 0) continue;
    for (const MicroBatch mb : IdRange<MicroBatch>(plan.graph.micro_batches)) {
      std::int64_t first = now, last = 0;
      for (std::size_t i = 0; i < plan.graph.operations.size(); ++i) {
        const Operation& op = plan.graph.operations[i];
        const bool uses = writes_value(op, make_id<ValueId>(v)) || std::ranges::any_of(op.reads, [&](const Read& read) {
                            return read.value == make_id<ValueId>(v);
                          });
        if (!uses) continue;
        const auto [begin, end] = pass.at({op.chunk, mb});
        const std::int64_t at = position.at({make_id<OpId>(i), mb});
        first = std::min(first, whole_passes ? begin : at);
        last = std::max(last, whole_passes ? end : at);
      }
      for (std::int64_t t = first; t <= last; ++t) {
        held[t] += aligned(plan.graph.values[v].bytes()).value;
      }
    }
  }
  return *std::max_element(held.begin(), held.end());
}

// The bytes between the first place in a frame and the end of the last.
std::int64_t extent(const Plan& plan, std::size_t rank_class) {
  std::int64_t lowest = INT64_MAX, highest = 0;
  for (std::size_t v = 0; v < plan.graph.values.size(); ++v) {
    const Placement& place = plan.placements[v];
    if (plan.graph.values[v].rank_class.index() != rank_class || place.frame < 0) continue;
    for (const Bytes base : plan.classes[rank_class].frames[static_cast<std::size_t>(place.frame)].base) {
      lowest = std::min(lowest, (base + place.offset).value);
      highest = std::max(highest, (base + place.offset + aligned(plan.graph.values[v].bytes())).value);
    }
  }
  return highest - lowest;
}

void expect_proven(const WholePlan& made) {
  const auto violation = verify_plan(made, {.memory_limit = {}, .check_memory = false});
  EXPECT_EQ(violation ? violation->message : "safe", "safe");
  EXPECT_EQ(test::find_damage(made.plan(), 1, 2).value_or("safe"), "safe");
}

// Where a forward and a backward are woven into each other, the one fills what the other has freed.
TEST(Frames, AreFreedAtTheLastReaderInWovenPlans) {
  Layout layout = interleaved(2, 2);
  layout.tp = 2;
  const PlanRequest r = test::request(test::small_llama(8), parse_cluster("local:4"), layout, 4);
  const SharedGraph graph = test::build(r);
  Overlap overlap = decide_overlap(r, graph, "ddp");
  overlap.beside.tensor_parallel = overlap.weave.enabled = overlap.weave.pairs = true;
  const WholePlan made = overlapped_plan(r, graph, "weft", overlap);
  const Plan& plan = made.plan();
  expect_proven(made);
  for (std::size_t c = 0; c < plan.classes.size(); ++c) {
    ASSERT_TRUE(has_sections(plan.classes[c]));
    EXPECT_GE(extent(plan, c), most_held(plan, c, false));
    EXPECT_LT(extent(plan, c), most_held(plan, c, true));
  }
}

// What weight gradients have read is free for the next pass: never more than if all that a pass has of its own were
// held from its begin to its end, and where all of it is computed again, little more than what is alive.
TEST(Frames, HoldWhatWeightGradientsReadUntilTheyHaveRead) {
  using enum PipelineSchedule;
  for (const Layout& layout :
       {Layout{.pp = 4, .vpp = 2, .schedule = zbv}, Layout{.pp = 2, .vpp = 2, .schedule = v_half},
        Layout{.pp = 4, .vpp = 2, .schedule = dualpipev}}) {
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      Layout with = layout;
      with.tp = with.etp = 2;
      with.recompute = recompute;
      const PlanRequest r = test::request(test::small_llama(), parse_cluster("dgx-a100:2"), with, 8);
      const SharedGraph graph = test::build(r);
      for (const GapRule gaps : {GapRule::none, GapRule::early}) {
        Overlap overlap = decide_overlap(r, graph, "ddp");
        overlap.beside.tensor_parallel = overlap.weave.enabled = true;
        overlap.order.gaps = gaps;
        const WholePlan made = overlapped_plan(r, graph, "weft", overlap);
        expect_proven(made);
        for (std::size_t c = 0; c < made.plan().classes.size(); ++c) {
          const std::int64_t alive = most_held(made.plan(), c, false), whole = most_held(made.plan(), c, true);
          ASSERT_GT(alive, 0);
          EXPECT_GE(extent(made.plan(), c), alive);
          EXPECT_LE(extent(made.plan(), c), whole);
          if (recompute == Recompute::full && gaps == GapRule::early) {
            EXPECT_LT(static_cast<double>(extent(made.plan(), c)), 1.25 * static_cast<double>(alive));
          }
        }
      }
    }
  }
}

TEST(Frames, AreProvenSafeAndWrongOnesAreNot) {
  Plan plan = test::serial(test::small_gpt(8), "local:4", interleaved(4, 2), 8);
  const VerifyOptions options{.memory_limit = {}, .check_memory = false};
  EXPECT_FALSE(verify_plan(plan, options).has_value());
  EXPECT_FALSE(test::find_damage(plan, 1, 2).has_value());
  std::vector<Bytes>& base = plan.classes[0].frames[0].base;
  const std::vector<Bytes> right = base;
  base[1] = base[0];  // two micro-batches in flight in one place
  EXPECT_TRUE(verify_plan(plan, options).has_value());
  EXPECT_TRUE(test::find_damage(plan, 1, 4).has_value());
  base = right;
  base.pop_back();
  EXPECT_TRUE(verify_plan(plan, options).has_value());
  base = right;
  base[0].value += 1;
  EXPECT_TRUE(verify_plan(plan, options).has_value());
}

}  // namespace
}  // namespace weft
