// Chunks share what they keep from forward to backward.
#include "plan/memory/frames.hpp"

#include <gtest/gtest.h>

#include <set>

#include "plan/memory/use.hpp"
#include "plan/test_oracle.hpp"
#include "plan/verify/verify_plan.hpp"
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
