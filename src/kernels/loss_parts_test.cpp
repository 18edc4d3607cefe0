// The loss over a vocabulary spread over ranks, against log_softmax of the whole in double precision.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "kernels/kernels.hpp"
#include "kernels/test_tensors.hpp"

namespace weft {
namespace {

constexpr double kTolerance = 2e-6;
constexpr std::int64_t kRows = 7;
constexpr float kLowest = std::numeric_limits<float>::lowest();

struct Shard {
  std::int64_t count = 0, columns = 0;  // the rest of the columns is padding
};
struct Spread {
  std::vector<Shard> shards;
  float size = 4;  // of the logits

  std::int64_t vocab() const {
    std::int64_t sum = 0;
    for (const Shard& shard : shards) sum += shard.count;
    return sum;
  }
};

// What one rank holds. Padding is larger than any logit, so that it shows where it counts.
struct RankLogits {
  RankLogits(const at::Tensor& all, std::int64_t first, Shard shard)
      : part{first, shard.count},
        logits(at::cat({all.narrow(1, first, shard.count), at::full({kRows, shard.columns - shard.count}, 1e6F)}, 1)),
        probabilities(kRows, shard.columns),
        d_logits(kRows, shard.columns) {}

  LossPart of_part() const { return {vector_of(largest), vector_of(sum), vector_of(target)}; }
  at::Tensor padding(const SlicedTensor& x) const {
    return x.values().narrow(1, part.count, x.matrix().columns - part.count);
  }

  VocabularyPart part;
  SlicedTensor logits, probabilities, d_logits;
  at::Tensor largest = at::full({kRows}, -55.0), sum = at::full({kRows}, -55.0), target = at::full({kRows}, -55.0);
};

std::vector<RankLogits> ranks_of(const Spread& spread, const at::Tensor& all) {
  std::vector<RankLogits> ranks;
  std::int64_t first = 0;
  for (const Shard& shard : spread.shards) {
    ranks.emplace_back(all, first, shard);
    first += shard.count;
  }
  return ranks;
}

std::vector<LossPart> exchanged(const std::vector<RankLogits>& ranks, Tokens targets) {
  std::vector<LossPart> parts;
  for (const RankLogits& rank : ranks) {
    kernels().cross_entropy_part(rank.logits.matrix(), targets, rank.part, rank.of_part());
    parts.push_back(rank.of_part());
  }
  return parts;
}

// The first and the last token of the vocabulary, and tokens in between.
std::vector<std::int64_t> targets_in(std::int64_t vocab) {
  std::vector<std::int64_t> targets;
  for (std::int64_t r = 0; r < kRows; ++r) targets.push_back(r * (vocab - 1) / (kRows - 1));
  return targets;
}

class LossParts : public testing::TestWithParam<Spread> {
 protected:
  const Spread& spread = GetParam();
  std::int64_t vocab = spread.vocab();
  at::Tensor all = spread.size * random_tensor({kRows, vocab}, 1);
  std::vector<std::int64_t> targets = targets_in(vocab);
  std::vector<RankLogits> ranks = ranks_of(spread, all);
};

TEST_P(LossParts, HaveTheLargestTheSumAndTheTargetOfTheirColumns) {
  exchanged(ranks, targets);
  for (const RankLogits& rank : ranks) {
    const at::Tensor exact = all.narrow(1, rank.part.first, rank.part.count).to(at::kDouble);
    for (std::int64_t r = 0; r < kRows; ++r) {
      const std::int64_t target = targets[r] - rank.part.first;
      const bool is_here = target >= 0 && target < rank.part.count;
      EXPECT_EQ(rank.target[r].item<double>(), is_here ? exact[r][target].item<double>() : 0);
      if (rank.part.count == 0) {
        EXPECT_EQ(rank.largest[r].item<float>(), kLowest);
        EXPECT_EQ(rank.sum[r].item<float>(), 0);
        continue;
      }
      EXPECT_EQ(rank.largest[r].item<double>(), exact[r].max().item<double>());
      const double sum = (exact[r] - exact[r].max()).exp().sum().item<double>();
      EXPECT_NEAR(rank.sum[r].item<double>(), sum, kTolerance * sum);
    }
  }
}

TEST_P(LossParts, TogetherAreTheLossAndGradientOfTheWhole) {
  const std::vector<LossPart> parts = exchanged(ranks, targets);
  const Oracle oracle = ask_oracle(
      [&](const auto& in) { return -at::log_softmax(in[0], 1).gather(1, at::tensor(targets).view({-1, 1})).sum(); },
      {all}, at::full({}, 0.25));
  const at::Tensor exact = at::softmax(all.to(at::kDouble), 1);
  std::vector<at::Tensor> probabilities, gradients;
  for (const RankLogits& rank : ranks) {
    const double loss = loss_of_parts(rank.logits.matrix(), rank.part, parts, rank.probabilities.matrix());
    EXPECT_NEAR(loss, oracle.output.item<double>(), kTolerance * (1 + std::abs(loss)));
    // Padding that does not lie behind the vocabulary's end is no column of the gradient.
    const Matrix d = rank.d_logits.matrix().column_slice(0, rank.part.count);
    kernels().cross_entropy_input_grad(rank.probabilities.matrix().column_slice(0, rank.part.count), targets,
                                       rank.part.first, 0.25, d);
    probabilities.push_back(rank.probabilities.values().narrow(1, 0, rank.part.count));
    gradients.push_back(rank.d_logits.values().narrow(1, 0, rank.part.count));
    EXPECT_TRUE(rank.padding(rank.probabilities).eq(0).all().item<bool>());
    EXPECT_TRUE(rank.probabilities.surroundings_intact() && rank.d_logits.surroundings_intact());
  }
  EXPECT_LE(relative_error(at::cat(probabilities, 1), exact), kTolerance);
  EXPECT_LE(relative_error(at::cat(gradients, 1), oracle.gradients[0]), kTolerance);
}

TEST_P(LossParts, GiveEveryRankTheSameBitsAndWorkInPlace) {
  const std::vector<LossPart> parts = exchanged(ranks, targets);
  std::vector<std::uint64_t> bits;
  for (const RankLogits& rank : ranks) {
    for (const Matrix& out : {rank.probabilities.matrix(), rank.logits.matrix()})
      bits.push_back(std::bit_cast<std::uint64_t>(loss_of_parts(rank.logits.matrix(), rank.part, parts, out)));
    EXPECT_TRUE(rank.logits.values().equal(rank.probabilities.values()));
  }
  EXPECT_EQ(bits, std::vector<std::uint64_t>(bits.size(), bits.front()));
}

const Spread kSpreads[] = {
    {{{1, 1}}},
    {{{17, 17}}},
    {{{250, 256}}},
    {{{16, 16}, {16, 16}}},
    {{{40, 40}, {33, 40}}},                    // padding behind the end
    {{{5, 8}, {1, 3}, {21, 21}}},              // and anywhere
    {{{64, 64}, {64, 64}, {2, 64}, {0, 64}}},  // the last rank has padding alone
    {{{0, 4}, {9, 9}, {0, 0}, {3, 8}}},        // so have others, or nothing
    {{{20, 20}, {20, 20}}, 1e4F},              // exp underflows but for the largest
    {{{20, 24}, {20, 24}, {7, 24}, {0, 24}}, 1e4F},
    {{{20, 24}, {0, 24}, {20, 24}}, 1e-4F},
};
INSTANTIATE_TEST_SUITE_P(Spreads, LossParts, testing::ValuesIn(kSpreads));

// Rank 0 has logits of 1e4, rank 1 of -1e4, and the other way round: the loss of a token is log 3 where its target is
// among the three large ones, else 2e4 more.
TEST(LossPartsFarApart, NeitherOverflowNorVanish) {
  const at::Tensor high = at::full({kRows, 3}, 1e4F);
  for (const bool swapped : {false, true}) {
    const at::Tensor all = swapped ? at::cat({-high, high}, 1) : at::cat({high, -high}, 1);
    const std::vector<RankLogits> ranks = ranks_of({{{3, 3}, {3, 5}, {0, 2}}}, all);
    const std::vector<std::int64_t> targets = {0, 1, 2, 3, 4, 5, 0};
    const int unlikely = swapped ? 4 : 3;
    const std::vector<LossPart> parts = exchanged(ranks, targets);
    for (const RankLogits& rank : ranks) {
      const double loss = loss_of_parts(rank.logits.matrix(), rank.part, parts, rank.probabilities.matrix());
      EXPECT_NEAR(loss, kRows * std::log(3.0) + unlikely * 2e4, 1e-6);
    }
    const auto sum = [&](std::size_t rank) { return ranks[rank].probabilities.values().sum().item<double>(); };
    EXPECT_NEAR(sum(swapped ? 1 : 0), kRows, 1e-5);
    EXPECT_EQ(sum(swapped ? 0 : 1), 0);
  }
}

TEST(LossPartsNotFinite, OneNotANumberReachesTheLossOfEveryRank) {
  for (const std::int64_t column : {0, 5, 20, 39}) {
    at::Tensor all = random_tensor({kRows, 40}, 1);
    all[4][column] = std::nan("");
    const std::vector<RankLogits> ranks = ranks_of({{{20, 20}, {20, 24}, {0, 24}}}, all);
    const std::vector<LossPart> parts = exchanged(ranks, targets_in(40));
    for (const RankLogits& rank : ranks) {
      EXPECT_TRUE(std::isnan(loss_of_parts(rank.logits.matrix(), rank.part, parts, rank.probabilities.matrix())));
    }
  }
}

// softmax(-inf, -inf, x, x) = 0, 0, 1/2, 1/2
TEST(LossPartsNotFinite, APartOfMinusInfinityIsAsIfItWereNotThere) {
  const at::Tensor half = at::full({kRows, 2}, 3.0);
  const at::Tensor all = at::cat({at::full({kRows, 2}, -std::numeric_limits<float>::infinity()), half}, 1);
  const std::vector<RankLogits> ranks = ranks_of({{{2, 2}, {2, 2}}}, all);
  const std::vector<LossPart> parts = exchanged(ranks, std::vector<std::int64_t>(kRows, 3));
  for (const RankLogits& rank : ranks) {
    const double loss = loss_of_parts(rank.logits.matrix(), rank.part, parts, rank.probabilities.matrix());
    EXPECT_NEAR(loss, kRows * std::log(2.0), 1e-5);
  }
  EXPECT_TRUE(ranks[0].probabilities.values().eq(0).all().item<bool>());
  EXPECT_TRUE(ranks[1].probabilities.values().eq(0.5).all().item<bool>());
}

// Two ranks of four columns; tokens 6 and 7 are padding behind the end, which is a column of the gradient: zero.
TEST(LossPartsGradient, OneHotIsOnlyWhereTheTargetIs) {
  const std::vector<std::int64_t> targets = {0, 3, 4, 5};
  const at::Tensor exact = 0.5 * at::cat({at::full({4, 6}, 0.125), at::zeros({4, 2})}, 1) -
                           0.5 * at::zeros({4, 8}).scatter(1, at::tensor(targets).view({4, 1}), 1);
  const SlicedTensor left(at::full({4, 4}, 0.125)), right(at::cat({at::full({4, 2}, 0.125), at::zeros({4, 2})}, 1));
  kernels().cross_entropy_input_grad(left.matrix(), targets, 0, 0.5, left.matrix());
  kernels().cross_entropy_input_grad(right.matrix(), targets, 4, 0.5, right.matrix());
  EXPECT_TRUE(left.values().equal(exact.narrow(1, 0, 4)));
  EXPECT_TRUE(right.values().equal(exact.narrow(1, 4, 4)));
  EXPECT_TRUE(left.surroundings_intact() && right.surroundings_intact());
}

}  // namespace
}  // namespace weft
