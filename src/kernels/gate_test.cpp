// Gates against brute force and libtorch's autograd.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/test_gates.hpp"

namespace weft {
namespace {

constexpr double kTolerance = 2e-6;

struct Case {
  GateShape shape;
  std::int64_t tokens = 1;
  double skew = 0;
};

class Gate : public testing::TestWithParam<Case> {
 protected:
  const GateShape& shape = GetParam().shape;
  std::int64_t tokens = GetParam().tokens;
  at::Tensor scores = skewed_scores(tokens, shape.experts, GetParam().skew, 3);
  TestGate expected = brute_force_gate(shape, scores);
  GateOutput out{shape, tokens};
  void SetUp() override {
    kernels().gate(shape, SlicedTensor(scores).matrix(), out.routing.matrix(), out.load(), Into::overwrite);
  }
  at::Tensor chosen() const {
    std::vector<std::int64_t> experts;
    for (const TestChoice& choice : expected.choices) experts.push_back(choice.expert);
    return at::tensor(experts).view({tokens, shape.top_k});
  }
  at::Tensor weights_of(const at::Tensor& exact_scores) const {
    const at::Tensor w = at::softmax(exact_scores, 1).gather(1, chosen());
    return shape.renormalise ? w / w.sum(1, true) : w;
  }
  // The sum over experts of share of choices times mean probability, times experts.
  at::Tensor balance_of(const at::Tensor& exact_scores) const {
    const at::Tensor share = at::tensor(expected.counts).to(at::kDouble) / static_cast<double>(tokens * shape.top_k);
    return static_cast<double>(shape.experts) * (share * at::softmax(exact_scores, 1).mean(0)).sum();
  }
};

TEST_P(Gate, GivesTheSlotsOfTheDefinition) {
  const at::Tensor slots = at::tensor(expected.slots).view({tokens, shape.top_k});
  EXPECT_TRUE(out.routing.values().narrow(1, 0, shape.top_k).to(at::kLong).equal(slots));
  EXPECT_TRUE(out.choices.to(at::kLong).equal(at::tensor(expected.counts)));
  EXPECT_TRUE(out.routing.surroundings_intact());
}

TEST_P(Gate, WeighsWithTheSoftmax) {
  const at::Tensor exact = scores.to(at::kDouble);
  EXPECT_LE(relative_error(out.routing.values().narrow(1, shape.top_k, shape.top_k), weights_of(exact)), kTolerance);
  EXPECT_LE(relative_error(out.probabilities, at::softmax(exact, 1).sum(0)), kTolerance);
}

// Weights of dropped choices were never used, so nothing comes back for them; through the renormalisation their
// probabilities still have a gradient.
TEST_P(Gate, GradientOfWeightsAndBalanceLoss) {
  const at::Tensor kept = out.routing.values().narrow(1, 0, shape.top_k).ge(0);
  const at::Tensor d_weights = random_tensor({tokens, shape.top_k}, 7) * kept;
  const Oracle oracle = ask_oracle(
      [&](const auto& in) { return (weights_of(in[0]) * d_weights.to(at::kDouble)).sum() + 0.3 * balance_of(in[0]); },
      {scores}, at::ones({}));
  const SlicedTensor d_scores(tokens, shape.experts);
  kernels().gate_input_grad(shape, {0.3, tokens}, SlicedTensor(d_weights).matrix(), SlicedTensor(scores).matrix(),
                            out.routing.matrix(), out.load(), d_scores.matrix());
  EXPECT_LE((d_scores.values() - oracle.gradients[0]).abs().max().item<double>(), kTolerance);
  EXPECT_TRUE(d_scores.surroundings_intact());
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const SlotOrder order : {SlotOrder::token, SlotOrder::choice, SlotOrder::priority}) {
    for (const double skew : {0.0, 0.7}) {
      all.push_back({{.experts = 4, .top_k = 1, .capacity = 5, .order = order}, 17, skew});
      all.push_back({{.experts = 8, .top_k = 2, .capacity = 12, .order = order, .renormalise = true}, 40, skew});
      all.push_back({{.experts = 8, .top_k = 2, .capacity = 7, .order = order}, 33, skew});
      all.push_back({{.experts = 16, .top_k = 6, .capacity = 3, .order = order, .renormalise = true}, 20, skew});
      all.push_back({{.experts = 3, .top_k = 3, .capacity = 100, .order = order, .renormalise = true}, 9, skew});
      all.push_back({{.experts = 1, .top_k = 1, .capacity = 2, .order = order}, 5, skew});
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Cases, Gate, testing::ValuesIn(cases()));

TEST(GateTies, TheFirstOfEqualExpertsAndTokensComesFirst) {
  const at::Tensor scores = at::zeros({3, 4});
  for (const SlotOrder order : {SlotOrder::token, SlotOrder::choice, SlotOrder::priority}) {
    const GateShape shape{.experts = 4, .top_k = 2, .capacity = 2, .order = order};
    const GateOutput out(shape, 3);
    kernels().gate(shape, SlicedTensor(scores).matrix(), out.routing.matrix(), out.load(), Into::overwrite);
    const at::Tensor slots = at::tensor({0, 2, 1, 3, -1, -2}).view({3, 2});
    EXPECT_TRUE(out.routing.values().narrow(1, 0, 2).to(at::kLong).equal(slots));
  }
}

// A score that is no number must not lead a kernel out of its buffers; the weights tell of it.
TEST(GateNotFinite, NotANumberGivesSlotsAndNoWeights) {
  for (const SlotOrder order : {SlotOrder::token, SlotOrder::choice, SlotOrder::priority}) {
    const GateShape shape{.experts = 4, .top_k = 3, .capacity = 8, .order = order};
    at::Tensor scores = random_tensor({8, 4}, 1);
    scores[5].fill_(std::numeric_limits<float>::quiet_NaN());
    scores[2][1] = std::numeric_limits<float>::quiet_NaN();
    const GateOutput out(shape, 8);
    kernels().gate(shape, SlicedTensor(scores).matrix(), out.routing.matrix(), out.load(), Into::overwrite);
    const at::Tensor slots = out.routing.values().narrow(1, 0, 3);
    EXPECT_TRUE(slots.ge(0).all().item<bool>() && slots.lt(32).all().item<bool>());
    EXPECT_EQ(std::get<0>(at::_unique(slots)).numel(), 24);
    EXPECT_TRUE(at::isnan(out.routing.values()[5].narrow(0, 3, 3)).all().item<bool>());
  }
}

TEST(SlotOrders, CapacityIsPassedOnWhereSlotsAreGivenAsTokensCome) {
  EXPECT_TRUE(passes_capacity_on({.experts = 4, .top_k = 2, .order = SlotOrder::token}));
  EXPECT_TRUE(passes_capacity_on({.experts = 4, .top_k = 1, .order = SlotOrder::choice}));
  EXPECT_FALSE(passes_capacity_on({.experts = 4, .top_k = 2, .order = SlotOrder::choice}));
  EXPECT_FALSE(passes_capacity_on({.experts = 4, .top_k = 1, .order = SlotOrder::priority}));
}

}  // namespace
}  // namespace weft
