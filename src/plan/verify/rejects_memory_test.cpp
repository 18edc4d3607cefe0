// Each way to break a plan's memory is rejected as a hazard or as too large, in words that name values and operations.
#include <gtest/gtest.h>

#include "plan/memory/place.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

class RejectsMemory : public ::testing::Test {
 protected:
  // Three stages, 1F1B, four micro-batches: three, two and one of them in flight.
  Plan plan_ = test::serial(test::small_gpt(3), "local:3", {.pp = 3});

  Placement& place(std::string_view stage, std::string_view name) {
    return plan_.placements[test::find_value(plan_.graph, stage, name).index()];
  }
  void expect(Rule rule, std::initializer_list<std::string_view> words, const VerifyOptions& options = {}) const {
    const std::optional<Violation> found = verify_plan(plan_, options);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(name_of(found->rule), name_of(rule)) << found->message;
    for (const std::string_view word : words) {
      EXPECT_NE(found->message.find(word), std::string::npos) << "no '" << word << "' in: " << found->message;
    }
  }
};

TEST_F(RejectsMemory, OneCopyTooFewOfAnActivation) {
  Placement& hidden = place("stage 1", "layer 1 ffn_hidden");
  ASSERT_EQ(hidden.copies, 2);
  hidden.copies = 1;
  expect(Rule::hazard,
         {"[stage 1: layer 1 ffn_act input_grad, micro-batch 0] reads 'layer 1 ffn_hidden' of micro-batch 0, "
          "but its memory holds 'layer 1 ffn_hidden' of micro-batch 1"});
}

// The value lives on the sender until the receiver has it, which the sender learns from a gradient only.
TEST_F(RejectsMemory, WritingOverWhatIsBeingSentWithoutWaiting) {
  Placement& output = place("stage 0", "layer 0 output");
  ASSERT_EQ(output.copies, 2);
  ASSERT_TRUE(output.waits);
  EXPECT_FALSE(verify_plan(plan_).has_value());
  output.waits = false;  // two copies are enough only for a writer that waits
  expect(Rule::hazard,
         {"[stage 0: layer 0 ffn_residual forward, micro-batch 2] writes 'layer 0 output' of micro-batch 2 "
          "over 'layer 0 output' of micro-batch 0, which [stage 0: stage_output forward, micro-batch 0] "
          "may still be using"});
}

TEST_F(RejectsMemory, AnActivationOverAWeight) {
  place("stage 1", "layer 1 qkv").offset = place("stage 1", "layer 1 ffn_in.weight").offset;
  expect(Rule::hazard, {"stage 1: layer 1 ", "reads 'layer 1 ffn_in.weight', but its memory holds 'layer 1 qkv'"});
}

// Free at that moment, but the sum over micro-batches is lost.
TEST_F(RejectsMemory, AScratchValueOverAHalfSummedGradient) {
  place("stage 1", "layer 1 ffn_out").offset = place("stage 1", "layer 1 ffn_in.grad").offset;
  expect(Rule::hazard,
         {"[stage 1: layer 1 ffn_in weight_grad, micro-batch 1] reads 'layer 1 ffn_in.grad', but its memory "
          "holds 'layer 1 ffn_out'"});
}

TEST_F(RejectsMemory, AResultOverTheOperand) {
  // The branch's output over its input, which nothing reads afterwards: a product cannot work in place.
  plan_ = test::serial(test::small_gpt(3), "local:3", {.pp = 3, .recompute = Recompute::full});
  ASSERT_FALSE(verify_plan(plan_).has_value());
  place("stage 1", "layer 1 ffn_out").offset = place("stage 1", "layer 1 ffn_activated").offset;
  expect(Rule::hazard, {"[stage 1: layer 1 ffn_out forward, micro-batch 0] writes 'layer 1 ffn_out'",
                        "over "
                        "'layer 1 ffn_activated'",
                        "it uses itself"});
}

TEST_F(RejectsMemory, AReductionThatOnlyHalfOverlapsItsInput) {
  plan_ = test::serial(test::small_gpt(2), "local:2", {});
  ASSERT_FALSE(verify_plan(plan_).has_value());
  place("stage 0", "layer 0 ffn_in.grad.reduced").offset.value += kAlignment;
  expect(Rule::hazard, {"'layer 0 ffn_in.grad.reduced'", "apart from 'layer 0 ffn_in.grad'", "works in place"});
}

TEST_F(RejectsMemory, TwoParametersOnTheSameBytes) {
  place("stage 0", "layer 0 ffn_in.state").offset = place("stage 0", "layer 0 ffn_out.state").offset;
  expect(Rule::hazard, {"stage 0: update optimizer", "state'"});
}

TEST_F(RejectsMemory, AnOffsetOutsideTheMemory) {
  Placement& output = place("stage 2", "layer 2 output");
  const Placement original = output;
  output.offset.value = plan_.classes[2].memory.value;
  expect(Rule::hazard, {"'layer 2 output' lies at byte", "outside the", "that stage 2 has"});
  output.offset.value = -kAlignment;
  expect(Rule::hazard, {"'layer 2 output' lies at byte -256"});
  output.offset.value = INT64_MAX / kAlignment * kAlignment;
  expect(Rule::hazard, {"'layer 2 output'", "outside the"});
  output = original;
  plan_.classes[2].memory.value /= 2;
  expect(Rule::hazard, {"outside the", "that stage 2 has"});
}

TEST_F(RejectsMemory, AnOffsetOffTheAlignmentAndNoCopies) {
  Placement& output = place("stage 1", "layer 1 output");
  output.offset.value += 4;
  expect(Rule::hazard, {"stage 1: 'layer 1 output' lies at byte", "multiples of 256"});
  output.offset.value -= 4;
  output.copies = 0;
  expect(Rule::hazard, {"stage 1: 'layer 1 output' lies at byte", "in 0 copies"});
}

TEST_F(RejectsMemory, MoreThanTheDeviceHas) {
  plan_ = test::serial(test::small_gpt(3), "dgx-a100:1,gpus=3,memory=1MB", {.pp = 3});
  // The head's fp32 probabilities, the embedding and its state are most of it.
  expect(Rule::memory, {"memory: stage 0 needs", "a100-80 has 976.56 KiB", "optimizer state", "gradients", "weights"});
  EXPECT_FALSE(verify_plan(plan_, {.memory_limit = {}, .check_memory = false}).has_value());
  EXPECT_FALSE(verify_plan(plan_, {.memory_limit = Bytes{1 << 30}, .check_memory = true}).has_value());
}

TEST_F(RejectsMemory, OneByteLessThanItNeeds) {
  Bytes most;
  for (const ClassPlan& c : plan_.classes) most = std::max(most, c.memory);
  EXPECT_FALSE(verify_plan(plan_, {.memory_limit = most, .check_memory = true}).has_value());
  expect(Rule::memory, {"memory: stage"}, {.memory_limit = most - Bytes{1}, .check_memory = true});
}

}  // namespace
}  // namespace weft
