// Orders by layers: what they are, and that plans in any of them are safe.
#include "planner/schedule/layer_order.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "base/test_effort.hpp"
#include "plan/happens_before.hpp"
#include "plan/test_oracle.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/passes.hpp"
#include "planner/search/decisions.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

// "F0-1 m2": layers 0 and 1 of the forward of micro-batch 2.
std::vector<std::string> in_words(const Plan& plan, const ClassPlan& c) {
  std::vector<std::string> words;
  for (const IssueSlot& slot : c.order) {
    std::set<std::int32_t> layers;
    for (const OpId id : operations_of(c, slot)) {
      if (plan.graph.op(id).layer >= 0) layers.insert(plan.graph.op(id).layer);
    }
    const BlockKind kind = block_of(c, slot).kind;
    if (kind == BlockKind::update) {
      words.emplace_back("update");
    } else {
      words.push_back(fmt::format("{}{}-{} m{}", kind == BlockKind::forward ? "F" : "B", *layers.begin(),
                                  *layers.rbegin(), slot.micro_batch.value));
    }
  }
  return words;
}

Plan ordered(const PlanRequest& request, Overlap overlap, const LayerOrder& by_layers) {
  overlap.order.by_layers = by_layers;
  return overlapped_plan(request, test::build(request), "test", overlap).plan();
}

TEST(LayerOrder, LetsGroupsPassAFewLayersAtATime) {
  const PlanRequest request = test::request(test::small_gpt(5), parse_cluster("local:2"), {}, 3);
  const Plan plan = ordered(request, {}, {.layers = 2, .micro_batches = 2});
  const std::vector<std::string> expected = {
      "F0-1 m0", "F0-1 m1", "F2-3 m0", "F2-3 m1", "F4-4 m0", "B4-4 m0", "F4-4 m1", "B4-4 m1", "B2-3 m0", "B2-3 m1",
      "B0-1 m0", "B0-1 m1", "F0-1 m2", "F2-3 m2", "F4-4 m2", "B4-4 m2", "B2-3 m2", "B0-1 m2", "update"};
  EXPECT_EQ(in_words(plan, plan.classes.front()), expected);
  EXPECT_FALSE(verify_plan(plan));
}

// Two micro-batches take turns where one would wait for a transfer.
TEST(LayerOrder, LetsMicroBatchesGoAbreast) {
  const PlanRequest request = test::request(test::small_gpt(2), parse_cluster("local:2"), {.tp = 2}, 2);
  const Plan plan = ordered(request, {.beside = {.tensor_parallel = true}}, {.layers = 1, .abreast = 2});
  const ClassPlan& c = plan.classes.front();
  for (std::size_t i = 0; i + 1 < c.order.size(); i += 2) {
    EXPECT_EQ(c.order[i].micro_batch.value, 0);
    EXPECT_EQ(c.order[i + 1].micro_batch.value, 1);
    EXPECT_EQ(c.order[i].begin, c.order[i + 1].begin);
    EXPECT_EQ(c.order[i].end, c.order[i + 1].end);
  }
  // Shoeybi et al. 2019: two all-reduces of a layer forward, two backward; here the embedding's and the head's beside.
  int turns = 0;
  for (const IssueSlot& slot : c.order) turns += slot.micro_batch == MicroBatch{0} ? 1 : 0;
  EXPECT_GE(turns, 2 * (2 + 2));
  EXPECT_FALSE(verify_plan(plan));
}

// What is written in one turn and read in a later one has memory of its own for every micro-batch between them, and no
// more: with n layers of equal size and a group of k, a rank needs at most what k micro-batches leave of forward, and
// beside it two micro-batches' gradients at a time.
TEST(LayerOrder, HoldsTheActivationsOfAGroup) {
  const PlanRequest request = test::request(test::small_llama(8), parse_cluster("local:2"), {}, 4);
  std::vector<std::int64_t> needs;
  for (const std::int32_t group : {1, 2, 4}) {
    needs.push_back(ordered(request, {}, {.layers = 1, .micro_batches = group}).classes.front().memory.value);
  }
  const std::int64_t of_pair = needs[1] - needs[0], of_four = needs[2] - needs[1];
  EXPECT_GT(of_pair, 0);
  EXPECT_NEAR(static_cast<double>(of_four), 2.0 * static_cast<double>(of_pair), 0.25 * static_cast<double>(of_four));
}

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  std::int32_t of(std::initializer_list<std::int32_t> list) {
    return *(list.begin() + static_cast<std::ptrdiff_t>(random_() % list.size()));
  }

 private:
  std::mt19937_64 random_;
};

TEST(LayerOrder, IsSafeWithEveryDecision) {
  int planned = 0;
  for (int seed = 1; seed <= test::rounds(60); ++seed) {
    Draw draw(static_cast<std::uint64_t>(seed));
    Layout layout;
    layout.tp = layout.etp = draw.of({1, 2, 4});
    layout.sequence_parallel = layout.tp > 1 && draw.of({0, 1}) == 1;
    layout.cp = draw.of({1, 1, 2});
    layout.zero = draw.of({0, 1});
    layout.clip_grad = draw.of({0, 1});
    layout.recompute = draw.of({0, 1}) == 0 ? Recompute::none : Recompute::full;
    const bool experts = draw.of({0, 0, 1}) == 1;
    if (experts) layout.ep = 2;
    const std::int64_t ranks = layout.tp * layout.cp * layout.ep * draw.of({1, 2});
    const PlanRequest request =
        test::request(experts ? test::small_moe(4) : test::small_llama(5),
                      parse_cluster(fmt::format("local:{},nic=200Mb/s", ranks)), layout, draw.of({2, 3, 4}));
    const SharedGraph graph = test::build(request);
    const DecisionSpace space(request, graph);
    Decisions decisions = space.start();
    for (std::size_t d = 0; d < DecisionSpace::kDimensions; ++d) {
      const auto options = static_cast<std::int32_t>(space.options(d));
      decisions.chosen[d] = static_cast<std::size_t>(draw.of({0, 1, 2, 3, 4, 5}) % options);
    }
    decisions.chosen[DecisionSpace::kPairs] = 0;
    Overlap overlap = space.overlap(decisions);
    overlap.order.by_layers = {draw.of({1, 2, 3}), draw.of({0, 2, 3}), draw.of({1, 2, 3})};
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const WholePlan made = overlapped_plan(request, graph, "test", overlap);
    if (!find_run_order(made.unfolded()).cycle.empty()) continue;
    ++planned;
    const std::optional<Violation> violation = verify_plan(made.plan(), {.check_memory = false});
    ASSERT_FALSE(violation) << violation->message;
    if (made.unfolded().instances().size() > 3000) continue;
    const auto damage = test::find_damage(made.plan(), static_cast<std::uint64_t>(seed), 2);
    ASSERT_FALSE(damage) << *damage;
  }
  EXPECT_GE(planned, test::rounds(60) * 9 / 10);
}

}  // namespace
}  // namespace weft
