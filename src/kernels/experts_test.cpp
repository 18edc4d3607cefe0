// Rows to slots and back, and the products of many experts, against libtorch's autograd.
#include <gtest/gtest.h>

#include "kernels/test_gates.hpp"

namespace weft {
namespace {

constexpr double kTolerance = 2e-6;
constexpr std::int64_t kTokens = 23, kHidden = 12;

struct Routed {
  explicit Routed(const GateShape& of) : shape(of) {
    const at::Tensor scores = skewed_scores(kTokens, shape.experts, 0.3, 11);
    const GateOutput out(shape, kTokens);
    kernels().gate(shape, SlicedTensor(scores).matrix(), out.routing.matrix(), out.load(), Into::overwrite);
    values = out.routing.values();
  }
  at::Tensor slots() const { return values.narrow(1, 0, shape.top_k).to(at::kLong); }
  at::Tensor weights() const { return values.narrow(1, shape.top_k, shape.top_k).contiguous(); }
  // [slots, tokens]: 1 where the token has the slot; times the weight of the choice where it is given.
  at::Tensor permutation(const at::Tensor& weight) const {
    at::Tensor p = at::zeros({shape.slots(), kTokens}, at::kDouble);
    for (std::int64_t j = 0; j < shape.top_k; ++j) {
      const at::Tensor one = at::zeros({shape.slots(), kTokens}, at::kDouble);
      for (std::int64_t t = 0; t < kTokens; ++t) {
        const auto slot = slots()[t][j].item<std::int64_t>();
        if (slot >= 0) one[slot][t] = 1;
      }
      p = p + one * weight.select(1, j).view({1, kTokens});
    }
    return p;
  }
  std::int64_t dropped() const { return slots().lt(0).sum().item<std::int64_t>(); }

  GateShape shape;
  at::Tensor values;
};

class ExpertRows : public testing::TestWithParam<GateShape> {
 protected:
  Routed routed{GetParam()};
  std::int64_t count = GetParam().slots();
  at::Tensor ones = at::ones({kTokens, GetParam().top_k}, at::kDouble);
};

TEST_P(ExpertRows, DispatchMovesRowsAndTheirGradientsBack) {
  EXPECT_GT(routed.dropped(), 0);
  const at::Tensor x = random_tensor({kTokens, kHidden}, 1), d = random_tensor({count, kHidden}, 2);
  const Oracle oracle = ask_oracle([&](const auto& in) { return routed.permutation(ones).matmul(in[0]); }, {x}, d);
  const SlicedTensor slots(count, kHidden), kept(count, kHidden), dx(kTokens, kHidden), routing(routed.values);
  kernels().dispatch_rows(SlicedTensor(x).matrix(), routing.matrix(), slots.matrix(), EmptySlots::clear);
  EXPECT_LE(relative_error(slots.values(), oracle.output), kTolerance);
  kernels().dispatch_rows_input_grad(SlicedTensor(d).matrix(), routing.matrix(), dx.matrix());
  EXPECT_LE(relative_error(dx.values(), oracle.gradients[0]), kTolerance);
  EXPECT_TRUE(slots.surroundings_intact() && dx.surroundings_intact());

  const at::Tensor before = kept.values(), is_empty = routed.permutation(ones).sum(1, true).eq(0);
  EXPECT_TRUE(is_empty.any().item<bool>());
  kernels().dispatch_rows(SlicedTensor(x).matrix(), routing.matrix(), kept.matrix(), EmptySlots::keep);
  EXPECT_TRUE(kept.values().equal(at::where(is_empty, before, slots.values())));
}

TEST_P(ExpertRows, CombineWeighsRowsAndHasGradientsOfBoth) {
  const at::Tensor rows = random_tensor({count, kHidden}, 3), dy = random_tensor({kTokens, kHidden}, 4);
  const Oracle oracle = ask_oracle([&](const auto& in) { return routed.permutation(in[1]).t().matmul(in[0]); },
                                   {rows, routed.weights()}, dy);
  const SlicedTensor slots(rows), y(kTokens, kHidden), d_slots(count, kHidden), routing(routed.values);
  const SlicedTensor d_weights(kTokens, GetParam().top_k);
  kernels().combine_rows(slots.matrix(), routing.matrix(), y.matrix());
  EXPECT_LE(relative_error(y.values(), oracle.output), kTolerance);
  kernels().combine_rows_input_grad(SlicedTensor(dy).matrix(), slots.matrix(), routing.matrix(), d_slots.matrix(),
                                    d_weights.matrix(), EmptySlots::clear);
  EXPECT_LE(relative_error(d_slots.values(), oracle.gradients[0]), kTolerance);
  EXPECT_LE(relative_error(d_weights.values(), oracle.gradients[1]), kTolerance);
  EXPECT_TRUE(y.surroundings_intact() && d_slots.surroundings_intact() && d_weights.surroundings_intact());
}

const GateShape kShapes[] = {{.experts = 4, .top_k = 1, .capacity = 6},
                             {.experts = 8, .top_k = 2, .capacity = 6, .renormalise = true},
                             {.experts = 5, .top_k = 3, .capacity = 13, .order = SlotOrder::choice}};
INSTANTIATE_TEST_SUITE_P(Shapes, ExpertRows, testing::ValuesIn(kShapes));

// Two sources, three experts, blocks of four rows, of which each product takes some.
class ExpertProducts : public testing::TestWithParam<bool> {
 protected:
  static constexpr std::int64_t kSources = 2, kExperts = 3, kCapacity = 4, kOut = 7;
  const std::vector<ElementRange> some{{0, 4}, {1, 3}, {0, 0}, {2, 4}, {3, 4}, {0, 0}};
  CapacityBlocks blocks{kSources, kExperts, kCapacity};
  at::Tensor mask = at::ones({kSources * kExperts * kCapacity, 1});
  at::Tensor x = random_tensor({blocks.rows(), kHidden}, 1), dy = random_tensor({blocks.rows(), kOut}, 2);
  at::Tensor w = random_tensor({kExperts, kOut, kHidden}, 3), bias = random_tensor({kExperts, kOut}, 4);
  Oracle oracle;

  void SetUp() override {
    if (GetParam()) {
      blocks.used = some;
      mask.fill_(0);
      for (std::size_t b = 0; b < some.size(); ++b) {
        mask.narrow(0, static_cast<std::int64_t>(b) * kCapacity + some[b].begin, some[b].size()).fill_(1);
      }
    }
    oracle = ask_oracle(
        [&](const auto& in) {
          const at::Tensor rows = in[0].view({kSources, kExperts, kCapacity, kHidden});
          const at::Tensor out = rows.matmul(in[1].transpose(1, 2)) + in[2].view({1, kExperts, 1, kOut});
          return out.reshape({blocks.rows(), kOut}) * mask;
        },
        {x, w, bias}, dy);
  }
  static std::vector<Matrix> matrices(const at::Tensor& of) {
    std::vector<Matrix> all;
    for (std::int64_t e = 0; e < kExperts; ++e) all.push_back(Matrix::dense(of[e].data_ptr<float>(), kOut, kHidden));
    return all;
  }
  static std::vector<Vector> vectors(const at::Tensor& of) {
    std::vector<Vector> all;
    for (std::int64_t e = 0; e < kExperts; ++e) all.push_back({of[e].data_ptr<float>(), kOut});
    return all;
  }
};

TEST_P(ExpertProducts, ForwardOfUsedRowsAlone) {
  const at::Tensor before = random_tensor({blocks.rows(), kOut}, 5);
  const SlicedTensor y(before), without(before);
  kernels().expert_linear(blocks, SlicedTensor(x).matrix(), matrices(w), vectors(bias), y.matrix());
  EXPECT_LE(relative_error(y.values(), oracle.output + before * (1 - mask)), kTolerance);
  kernels().expert_linear(blocks, SlicedTensor(x).matrix(), matrices(w), {}, without.matrix());
  const at::Tensor biases = bias.view({1, kExperts, 1, kOut}).expand({kSources, kExperts, kCapacity, kOut});
  const at::Tensor exact = oracle.output - biases.reshape({blocks.rows(), kOut}) * mask + before * (1 - mask);
  EXPECT_LE(relative_error(without.values(), exact), kTolerance);
  EXPECT_TRUE(y.surroundings_intact());
}

TEST_P(ExpertProducts, InputGradientOfUsedRowsAlone) {
  const at::Tensor before = random_tensor({blocks.rows(), kHidden}, 6);
  const SlicedTensor dx(before);
  kernels().expert_linear_input_grad(blocks, SlicedTensor(dy).matrix(), matrices(w), dx.matrix());
  EXPECT_LE(relative_error(dx.values(), oracle.gradients[0] + before * (1 - mask)), kTolerance);
  EXPECT_TRUE(dx.surroundings_intact());
}

TEST_P(ExpertProducts, WeightGradientOfEveryExpert) {
  const at::Tensor before = random_tensor({kExperts, kOut, kHidden}, 7), d_bias = at::full({kExperts, kOut}, 9.0);
  const at::Tensor dw = before.clone(), added = before.clone(), bias_added = at::full({kExperts, kOut}, 9.0);
  kernels().expert_linear_weight_grad(blocks, SlicedTensor(x).matrix(), SlicedTensor(dy).matrix(), matrices(dw),
                                      vectors(d_bias), Into::overwrite);
  EXPECT_LE(relative_error(dw, oracle.gradients[1]), kTolerance);
  EXPECT_LE(relative_error(d_bias, oracle.gradients[2]), kTolerance);
  kernels().expert_linear_weight_grad(blocks, SlicedTensor(x).matrix(), SlicedTensor(dy).matrix(), matrices(added),
                                      vectors(bias_added), Into::add);
  EXPECT_LE(relative_error(added, oracle.gradients[1] + before), kTolerance);
  EXPECT_LE(relative_error(bias_added, oracle.gradients[2] + 9), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(AllRowsOrSome, ExpertProducts, testing::Bool());

}  // namespace
}  // namespace weft
