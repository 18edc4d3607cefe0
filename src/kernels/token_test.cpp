// Where tokens come in and go out: embeddings and the loss over a whole vocabulary.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/kernels.hpp"
#include "kernels/test_tensors.hpp"

namespace weft {
namespace {

constexpr double kTolerance = 2e-6;

const std::vector<std::int64_t> kTokens = {3, 0, 3, 4, 1, 3};  // 2 stands nowhere
const std::vector<std::int64_t> kPlaces = {2, 5, 4};           // of the three rows of a sequence
at::Tensor index_of(const std::vector<std::int64_t>& tokens) {
  return at::tensor(tokens);
}

TEST(Embedding, TakesTheRowsOfTokensAndOfTheirPlaces) {
  const at::Tensor table = random_tensor({5, 7}, 1), places = random_tensor({6, 7}, 2);
  const SlicedTensor plain(6, 7), placed(6, 7), of_places(places);
  kernels().embedding(kTokens, SlicedTensor(table).matrix(), 0, {}, plain.matrix());
  kernels().embedding(kTokens, SlicedTensor(table).matrix(), 0, {of_places.matrix(), kPlaces}, placed.matrix());
  const at::Tensor of_tokens = table.index_select(0, index_of(kTokens));
  EXPECT_TRUE(plain.values().equal(of_tokens));
  EXPECT_TRUE(placed.values().equal(of_tokens + places.index_select(0, at::tensor({2, 5, 4, 2, 5, 4}))));
  EXPECT_TRUE(plain.surroundings_intact() && placed.surroundings_intact());
}

TEST(Embedding, WeightGradient) {
  const at::Tensor dy = random_tensor({6, 7}, 3), before = random_tensor({5, 7}, 4);
  const at::Tensor exact = at::zeros({5, 7}).index_add(0, index_of(kTokens), dy);
  const SlicedTensor dtable(5, 7), added(before);
  kernels().embedding_weight_grad(kTokens, SlicedTensor(dy).matrix(), dtable.matrix(), 0, Into::overwrite);
  kernels().embedding_weight_grad(kTokens, SlicedTensor(dy).matrix(), added.matrix(), 0, Into::add);
  EXPECT_LE(relative_error(dtable.values(), exact), kTolerance);
  EXPECT_EQ(dtable.values()[2].abs().max().item<double>(), 0);
  EXPECT_LE(relative_error(added.values(), exact + before), kTolerance);
  EXPECT_TRUE(dtable.surroundings_intact());
}

TEST(Embedding, WeightGradientOfPositions) {
  const at::Tensor dy = random_tensor({6, 7}, 3), before = random_tensor({6, 7}, 4);
  const at::Tensor exact = at::zeros({6, 7}).index_add(0, at::tensor({2, 5, 4, 2, 5, 4}), dy);
  const SlicedTensor places(6, 7), added(before);
  kernels().positions_weight_grad(SlicedTensor(dy).matrix(), {places.matrix(), kPlaces}, Into::overwrite);
  kernels().positions_weight_grad(SlicedTensor(dy).matrix(), {added.matrix(), kPlaces}, Into::add);
  EXPECT_LE(relative_error(places.values(), exact), kTolerance);
  EXPECT_LE(relative_error(added.values(), exact + before), kTolerance);
}

// The rows 0..1, 2..3 and 4 of the table; the last part has a row that no token is.
TEST(Embedding, PartsOfTheVocabularySumUpToTheWhole) {
  const at::Tensor table = at::cat({random_tensor({5, 7}, 1), at::full({1, 7}, 99.0)}),
                   places = random_tensor({6, 7}, 2);
  const at::Tensor dy = random_tensor({6, 7}, 3), before = random_tensor({6, 7}, 4);
  const at::Tensor exact_gradient = before.index_add(0, index_of(kTokens), dy);
  const SlicedTensor of_table(table), of_places(places), of_dy(dy);
  at::Tensor sum = at::zeros({6, 7}), placed_sum = at::zeros({6, 7});
  for (std::int64_t first = 0; first < 6; first += 2) {
    const Matrix rows = of_table.matrix().row_slice(first, first + 2);
    const SlicedTensor plain(6, 7), placed(6, 7), gradient(before.narrow(0, first, 2));
    kernels().embedding(kTokens, rows, first, {}, plain.matrix());
    kernels().embedding(kTokens, rows, first, {of_places.matrix(), kPlaces}, placed.matrix());
    kernels().embedding_weight_grad(kTokens, of_dy.matrix(), gradient.matrix(), first, Into::add);
    sum += plain.values();
    placed_sum += placed.values();
    EXPECT_LE(relative_error(gradient.values(), exact_gradient.narrow(0, first, 2)), kTolerance);
    EXPECT_TRUE(plain.surroundings_intact() && placed.surroundings_intact() && gradient.surroundings_intact());
  }
  const at::Tensor of_tokens = table.index_select(0, index_of(kTokens));
  EXPECT_TRUE(sum.equal(of_tokens));  // a row and two zeros
  EXPECT_LE(relative_error(placed_sum, of_tokens + 3 * places.index_select(0, at::tensor({2, 5, 4, 2, 5, 4}))),
            kTolerance);
}

struct LossCase {
  std::int64_t vocab, columns;
};
class CrossEntropy : public testing::TestWithParam<LossCase> {};

TEST_P(CrossEntropy, LossAndGradientOverTheVocabularyWithoutItsPadding) {
  const auto [vocab, columns] = GetParam();
  const at::Tensor logits = 4 * random_tensor({6, columns}, 1);
  const std::vector<std::int64_t> targets = {0, vocab - 1, vocab / 2, 0, vocab - 1, 0};
  const SlicedTensor probabilities(6, columns), d_logits(6, columns);
  const double loss = loss_of(SlicedTensor(logits).matrix(), targets, vocab, probabilities.matrix());
  kernels().cross_entropy_input_grad(probabilities.matrix(), targets, 0, 0.25, d_logits.matrix());

  const Oracle oracle = ask_oracle(
      [&](const auto& in) {
        return -at::log_softmax(in[0].narrow(1, 0, vocab), 1).gather(1, index_of(targets).view({-1, 1})).sum();
      },
      {logits}, at::full({}, 0.25));
  EXPECT_NEAR(loss, oracle.output.item<double>(), 1e-5 * (1 + std::abs(loss)));
  EXPECT_LE(relative_error(probabilities.values().narrow(1, 0, vocab),
                           at::softmax(logits.narrow(1, 0, vocab).to(at::kDouble), 1)),
            kTolerance);
  EXPECT_LE(relative_error(d_logits.values(), oracle.gradients[0]), kTolerance);
  if (columns > vocab) {
    EXPECT_EQ(probabilities.values().narrow(1, vocab, columns - vocab).abs().max().item<double>(), 0);
    EXPECT_EQ(d_logits.values().narrow(1, vocab, columns - vocab).abs().max().item<double>(), 0);
  }
  EXPECT_TRUE(probabilities.surroundings_intact() && d_logits.surroundings_intact());
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, CrossEntropy,
                         testing::Values(LossCase{1, 1}, LossCase{3, 8}, LossCase{17, 17}, LossCase{250, 256}));

TEST(CrossEntropy, WorksInPlace) {
  const at::Tensor logits = random_tensor({6, 9}, 1);
  const SlicedTensor apart(6, 9), in_place(logits);
  const double loss = loss_of(SlicedTensor(logits).matrix(), kTokens, 7, apart.matrix());
  EXPECT_EQ(loss_of(in_place.matrix(), kTokens, 7, in_place.matrix()), loss);
  EXPECT_TRUE(in_place.values().equal(apart.values()));
}

TEST(CrossEntropy, NotANumberReachesTheLoss) {
  at::Tensor logits = random_tensor({6, 40}, 1);
  logits[4][20] = std::nan("");
  const SlicedTensor probabilities(6, 40);
  EXPECT_TRUE(std::isnan(loss_of(SlicedTensor(logits).matrix(), kTokens, 40, probabilities.matrix())));
}

}  // namespace
}  // namespace weft
