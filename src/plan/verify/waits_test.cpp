// Waits carry the proof of plans that overlap sharded traffic: without one, or with one that waits for too little, the
// verifier says what breaks, and a run with random timings agrees.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/test_effort.hpp"
#include "plan/test_oracle.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

class WithoutAWait : public ::testing::Test {
 protected:
  Plan plan_ = test::fsdp(test::small_llama(6), "local:2", {.zero = 3}, 3);

  void drop(std::string_view operation) {
    const OpId id = test::find_op(plan_.graph, "stage 0", operation);
    ASSERT_EQ(std::erase_if(plan_.waits, [&](const Wait& wait) { return wait.operation == id; }), 1u) << operation;
  }
  void expect_hazard(std::initializer_list<std::string_view> words) {
    const std::optional<Violation> found = verify_plan(plan_);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(name_of(found->rule), name_of(Rule::hazard)) << found->message;
    for (const std::string_view word : words) {
      EXPECT_NE(found->message.find(word), std::string::npos) << "no '" << word << "' in: " << found->message;
    }
    EXPECT_TRUE(test::find_damage(plan_, 1, 200).has_value());
  }
};

TEST_F(WithoutAWait, AGatherOverwritesParametersInUse) {
  drop("layer 3 param_gather forward");
  expect_hazard({"layer 3 param_gather forward, micro-batch 0] writes 'layer 3 ", "may still be using"});
}

TEST_F(WithoutAWait, AGradientOverwritesOneThatIsBeingReduced) {
  drop("layer 2 ffn_out weight_grad");
  expect_hazard({"layer 2 ffn_out weight_grad, micro-batch 0] writes 'layer 2 ffn_out.grad.whole'",
                 "layer 4 grad_reduce weight_grad, micro-batch 0] may still be using"});
}

TEST_F(WithoutAWait, TheFirstGradientsOverwriteTheLastOfThePreviousMicroBatch) {
  drop("layer 5 ffn_out weight_grad");
  expect_hazard({"layer 5 ", " weight_grad, micro-batch 1] writes 'layer 5 ", "micro-batch 0] may still be using"});
}

TEST_F(WithoutAWait, NothingIsLostWhereTheQueueSaysTheSame) {
  drop("layer 0 param_gather forward");  // follows the blocking gather of the embedding in its queue
  EXPECT_FALSE(verify_plan(plan_).has_value());
  EXPECT_FALSE(test::find_damage(plan_, 1, 20).has_value());
}

TEST_F(WithoutAWait, AWaitForWhatComesLaterIsADeadlock) {
  const OpId gather = test::find_op(plan_.graph, "stage 0", "layer 3 param_gather forward");
  plan_.waits.push_back({gather, test::find_op(plan_.graph, "stage 0", "layer 3 qkv forward"), 0});
  const std::optional<Violation> found = verify_plan(plan_);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->rule, Rule::deadlock);
  EXPECT_NE(found->message.find("it is told to wait for it"), std::string::npos) << found->message;
  EXPECT_TRUE(test::find_damage(plan_, 1, 1).has_value());
}

struct Mutated {
  Plan plan;
  std::string kind;
};

Mutated mutated(Plan plan, std::mt19937_64& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const std::size_t i = below(plan.waits.size());
  Wait& wait = plan.waits[i];
  switch (below(4)) {
    case 0:
      plan.waits.erase(plan.waits.begin() + static_cast<std::ptrdiff_t>(i));
      return {std::move(plan), "drop"};
    case 1:
      wait.executions = 1 - wait.executions;
      return {std::move(plan), "shift"};
    case 2:
      wait.until = plan.waits[below(plan.waits.size())].until;
      break;
    default:
      // An operation near the one it waits for.
      wait.until.value += static_cast<std::int32_t>(below(31)) - 15;
      break;
  }
  const bool fits = wait.until.valid() && wait.until.index() < plan.graph.operations.size() &&
                    plan.graph.op(wait.until).rank_class == plan.graph.op(wait.operation).rank_class &&
                    plan.graph.op(wait.until).per_micro_batch == plan.graph.op(wait.operation).per_micro_batch;
  if (!fits) wait.until = plan.waits[i == 0 ? 1 : i - 1].until;
  return {std::move(plan), "retarget"};
}

TEST(Waits, OfEveryMutationThatARunBreaksAreRejected) {
  using enum PipelineSchedule;
  const std::vector<Plan> plans{
      test::fsdp(test::small_llama(6), "local:2", {.zero = 3}, 3),
      test::fsdp(test::small_llama(5), "local:2", {.zero = 3}, 2, 2),
      test::fsdp(test::small_gpt(6), "local:4", {.pp = 2, .zero = 3, .clip_grad = 1, .schedule = gpipe}, 3),
      test::fsdp(test::small_moe(4), "local:4", {.ep = 2, .zero = 3}, 2),
      test::fsdp(test::small_gpt(4), "local:2", {.zero = 2, .recompute = Recompute::full}, 3),
      test::fsdp(test::small_gpt(8), "local:4", {.pp = 2, .vpp = 2, .zero = 3, .schedule = interleaved}, 2, 0),
  };
  constexpr int kRuns = 6;
  const int mutations_of_a_plan = test::rounds(40);
  struct KindOutcomes {
    int mutations = 0, rejected = 0, broken = 0;
  };
  std::map<std::string, KindOutcomes> tallies;
  std::mt19937_64 random(5);
  for (const Plan& original : plans) {
    ASSERT_FALSE(verify_plan(original).has_value()) << verify_plan(original)->message;
    ASSERT_EQ(test::find_damage(original, 3, kRuns).value_or("safe"), "safe");
    for (int i = 0; i < mutations_of_a_plan; ++i) {
      const auto [plan, kind] = mutated(original, random);
      const std::optional<Violation> violation = verify_plan(plan);
      const std::optional<std::string> damage = test::find_damage(plan, random(), kRuns);
      EXPECT_TRUE(violation || !damage) << kind << " is accepted, but " << *damage;
      KindOutcomes& tally = tallies[kind];
      ++tally.mutations;
      tally.rejected += violation ? 1 : 0;
      tally.broken += damage ? 1 : 0;
    }
  }
  for (const auto& [kind, tally] : tallies) {
    fmt::print("{:10} {:4} mutations, {:4} rejected, {:4} shown broken\n", kind, tally.mutations, tally.rejected,
               tally.broken);
    // The oracle sees most of what is wrong, and some waits can go: queues say the same, or units differ in size.
    EXPECT_GE(tally.rejected, tally.mutations / 3) << kind;
    EXPECT_GE(tally.broken, tally.rejected / 2) << kind;
  }
}

}  // namespace
}  // namespace weft
