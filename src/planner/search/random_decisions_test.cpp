// Whatever the search may decide, for layouts of every kind: a plan that can run is one that the verifier proves, and
// no run with random timings breaks it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "base/test_effort.hpp"
#include "plan/happens_before.hpp"
#include "plan/test_oracle.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/passes.hpp"
#include "planner/search/decisions.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
  template <class T>
  T one_of(std::initializer_list<T> list) {
    return *(list.begin() + below(list.size()));
  }

 private:
  std::mt19937_64 random_;
};

PlanRequest random_request(Draw& draw) {
  using enum PipelineSchedule;
  Layout layout;
  layout.tp = layout.etp = draw.one_of<std::int64_t>({1, 2, 2, 4});
  layout.sequence_parallel = layout.tp > 1 && draw.below(3) > 0;
  layout.cp = draw.one_of<std::int64_t>({1, 1, 2});
  layout.pp = draw.one_of<std::int64_t>({1, 2, 4});
  layout.zero = draw.one_of({0, 1, 2, 3});
  layout.micro_batch = draw.one_of<std::int64_t>({1, 2});
  layout.recompute = draw.one_of({Recompute::none, Recompute::none, Recompute::selective, Recompute::full});
  layout.clip_grad = draw.one_of({0.0, 1.0});
  if (layout.pp > 1) {
    layout.vpp = draw.one_of<std::int64_t>({1, 1, 2});
    layout.schedule = layout.vpp > 1 ? draw.one_of({interleaved, zbv, searched_waves, searched_loops})
                                     : draw.one_of({gpipe, one_f_one_b, zb_h1, searched, searched});
  }
  const bool experts = draw.below(4) == 0;
  if (experts) layout.ep = draw.one_of<std::int64_t>({1, 2});
  const Transformer model = experts              ? test::small_moe(8)
                            : draw.below(2) == 0 ? test::small_gpt(8)
                                                 : test::small_llama(8);
  const std::int64_t ranks = layout.tp * layout.cp * layout.pp * draw.one_of<std::int64_t>({1, 2}) * layout.ep;
  const std::int64_t micro_batches = layout.pp * draw.one_of<std::int64_t>({1, 2});
  PlanRequest request =
      test::request(model, parse_cluster(fmt::format("local:{},nic=200Mb/s", ranks)), layout, micro_batches);
  request.options = {.bucket_parameters = 30'000, .bucket_mib = 0.05, .part_mib = 0.02};
  return request;
}

TEST(RandomDecisions, MakePlansThatAreSafeWhereTheyCanRun) {
  constexpr int kDecisions = 4;
  const int layouts = test::rounds(40);
  int planned = 0, stuck = 0;
  for (int seed = 1; seed <= layouts; ++seed) {
    Draw draw(static_cast<std::uint64_t>(seed));
    const PlanRequest request = random_request(draw);
    const SharedGraph graph = test::build(request);
    const DecisionSpace space(request, graph);
    for (int i = 0; i < kDecisions; ++i) {
      Decisions decisions = space.start();
      for (std::size_t d = 0; i > 0 && d < DecisionSpace::kDimensions; ++d) {
        decisions.chosen[d] = draw.below(space.options(d));
      }
      const WholePlan made = overlapped_plan(request, graph, "weft", space.overlap(decisions));
      if (!find_run_order(made.unfolded()).cycle.empty()) {
        ++stuck;
        continue;
      }
      ++planned;
      SCOPED_TRACE(fmt::format("seed {}, decision {}", seed, i));
      const std::optional<Violation> violation = verify_plan(made.plan(), {.check_memory = false});
      ASSERT_FALSE(violation) << violation->message;
      if (i == 1 && made.unfolded().instances().size() < 3000) {
        const auto damage = test::find_damage(made.plan(), static_cast<std::uint64_t>(seed), 2);
        ASSERT_FALSE(damage) << *damage;
      }
    }
  }
  fmt::print("{} plans, {} that cannot run\n", planned, stuck);
  EXPECT_GE(planned, layouts * kDecisions * 2 / 3);
}

// Weight gradients before those who read the weights, with the updates in the order of compute.
TEST(RandomDecisions, MakeSafePlansWithFreeWeightGradients) {
  int planned = 0;
  for (int seed = 1; seed <= test::rounds(60); ++seed) {
    Draw draw(static_cast<std::uint64_t>(seed));
    const PlanRequest request = random_request(draw);
    if (request.layout.pp > 1 || request.layout.zero > 1) continue;
    const SharedGraph graph = test::build(request);
    const DecisionSpace space(request, graph);
    Overlap overlap = space.overlap(space.start());
    overlap.weave = {.enabled = true, .free_weight_grads = true};
    overlap.order.urgent_first = false;
    const WholePlan made = overlapped_plan(request, graph, "weft", overlap);
    if (!find_run_order(made.unfolded()).cycle.empty()) continue;
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const std::optional<Violation> violation = verify_plan(made.plan(), {.check_memory = false});
    ASSERT_FALSE(violation) << violation->message;
    ++planned;
  }
  EXPECT_GE(planned, test::rounds(6));
}

}  // namespace
}  // namespace weft
