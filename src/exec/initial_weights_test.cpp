// The numbers that training starts from.
#include "exec/initial_weights.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/test_folder.hpp"
#include "graph/test_held_tensors.hpp"
#include "graph/test_shapes.hpp"
#include "model/presets.hpp"

namespace weft {
namespace {

using test::elements_of;
using test::error_of;
using test::small_gpt_shape;
using test::small_llama_shape;

const Layout kOneRank{.seq = 32};

HeldTensor whole_vector(std::string name, std::int64_t size, double deviation) {
  return {.whole = {.name = std::move(name), .shape = {size}, .deviation = deviation},
          .rows = {{0, size}},
          .columns = {0, 1}};
}

std::vector<float> start_of(const std::vector<HeldTensor>& tensors, std::uint64_t seed) {
  std::vector<float> whole(elements_of(tensors));
  initial_weights(tensors, seed, 0, whole);
  return whole;
}

TEST(InitialWeights, AShardIsThatPartOfTheWhole) {
  const auto tensors = held_tensors(small_gpt_shape(), kOneRank, 1, Role::qkv, {});
  const std::vector<float> whole = start_of(tensors, 3);
  for (const std::size_t shards : {1U, 2U, 5U, 7U}) {
    const std::size_t size = (whole.size() + shards - 1) / shards;
    for (std::size_t s = 0; s < shards; ++s) {
      std::vector<float> shard(size, -1.0F);
      initial_weights(tensors, 3, static_cast<std::int64_t>(s * size), shard);
      for (std::size_t i = 0; i < size; ++i) {
        const std::size_t place = s * size + i;
        ASSERT_EQ(shard[i], place < whole.size() ? whole[place] : 0.0F) << shards << " " << place;
      }
    }
  }
}

TEST(InitialWeights, RepeatBehindAsManyDistinctOnesAsAreAskedFor) {
  const HeldTensor tensor = whole_vector("x", 11, 1);
  const std::vector<float> all = start_of({tensor}, 7);
  std::vector<float> few(11);
  initial_weights({tensor}, 7, 0, few, 4);
  for (std::size_t i = 0; i < few.size(); ++i) EXPECT_EQ(few[i], all[i % 4]) << i;
}

TEST(InitialWeights, AreNormalWithTheDeviationAskedFor) {
  // Over n draws the mean lies within 5 / sqrt(n) deviations, the variance within 5 * sqrt(2 / n) of 1, and 68.27 %
  // (+- 5 * sqrt(0.217 / n)) within one deviation.
  const HeldTensor tensor = whole_vector("x", 200'000, 0.5);
  const std::vector<float> numbers = start_of({tensor}, 11);
  double sum = 0, squares = 0, within = 0, neighbours = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const double z = static_cast<double>(numbers[i]) / 0.5;
    sum += z;
    squares += z * z;
    within += std::abs(z) < 1 ? 1 : 0;
    if (i > 0) neighbours += z * static_cast<double>(numbers[i - 1]) / 0.5;
  }
  const auto n = static_cast<double>(numbers.size());
  EXPECT_NEAR(sum / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2 / n));
  EXPECT_NEAR(neighbours / n, 0, 5 / std::sqrt(n));
  // Sums of twelve uniform numbers: 68.27 % becomes 67.9 % (Irwin and Hall's kurtosis is 2.9).
  EXPECT_NEAR(within / n, 0.6827, 0.004 + 5 * std::sqrt(0.217 / n));
}

TEST(InitialWeights, DependOnSeedAndName) {
  const HeldTensor a = whole_vector("a", 64, 1), b = whole_vector("b", 64, 1);
  EXPECT_EQ(start_of({a}, 1), start_of({a}, 1));
  EXPECT_NE(start_of({a}, 1), start_of({a}, 2));
  EXPECT_NE(start_of({a}, 1), start_of({b}, 1));
}

TEST(InitialWeights, OfANormAreOnesAndOfBiasesZeros) {
  const std::vector<float> norm = start_of(held_tensors(small_gpt_shape(), kOneRank, 0, Role::attention_norm, {}), 1);
  for (std::size_t i = 0; i < norm.size(); ++i) EXPECT_EQ(norm[i], i < 48 ? 1.0F : 0.0F);
  const std::vector<float> out = start_of(held_tensors(small_gpt_shape(), kOneRank, 0, Role::ffn_out, {}), 1);
  for (std::size_t i = 48 * 100; i < out.size(); ++i) EXPECT_EQ(out[i], 0.0F);
}

TEST(InitialWeights, OfPaddedTokensAreZeros) {
  const std::vector<float> table = start_of(held_tensors(small_gpt_shape(), kOneRank, -1, Role::embedding, {}), 1);
  ASSERT_EQ(table.size(), 384U * 48);
  EXPECT_NE(std::accumulate(table.begin() + 299 * 48, table.begin() + 300 * 48, 0.0F), 0.0F);
  for (std::size_t i = 300 * 48; i < table.size(); ++i) ASSERT_EQ(table[i], 0.0F);
}

// A rank's numbers are those of the whole at the places that it holds.
TEST(InitialWeights, OfARankAreThoseOfTheWhole) {
  for (const Role role : {Role::qkv, Role::attention_out, Role::ffn_in, Role::ffn_out}) {
    const std::vector<float> whole = start_of(held_tensors(small_gpt_shape(), kOneRank, 1, role, {}), 5);
    const auto tensors = held_tensors(small_gpt_shape(), {.tp = 2, .seq = 32}, 1, role, {.tp = 1});
    const std::vector<float> part = start_of(tensors, 5);
    std::int64_t whole_offset = 0;
    for (const HeldTensor& held : tensors) {
      for_each_range(held, {0, held.elements()}, [&](const HeldRange& held_range) {
        for (std::int64_t i = 0; i < held_range.count; ++i) {
          ASSERT_EQ(part[held.offset + held_range.in_part + i], whole[whole_offset + held_range.in_whole + i]);
        }
      });
      whole_offset += held.whole.elements();
    }
  }
}

TEST(TrainableTensors, SaysWhatCannotBeTrainedYet) {
  const auto refusal = [](const Transformer& model) { return error_of([&] { require_trainable_tensors(model); }); };
  Transformer model = model_preset("mixtral-8x7b");
  EXPECT_EQ(refusal(model), "");
  model.experts->gate_bias = true;
  EXPECT_EQ(refusal(model), "model 'mixtral-8x7b': a correction of the router's scores: weft run cannot train it yet");
  model = small_llama_shape();
  model.latent =
      LatentAttention{.q_rank = 0, .kv_rank = 4, .nope_head_dim = 5, .rope_head_dim = 3, .value_head_dim = 6};
  EXPECT_EQ(refusal(model),
            "model 'llama': latent.rope_head_dim: value 3 is odd; rotary positions pair the halves of a head");
  model.latent->rope_head_dim = 2;
  EXPECT_EQ(refusal(model), "");
  model = small_llama_shape();
  model.head_dim = 7;
  EXPECT_EQ(refusal(model), "model 'llama': head_dim: value 7 is odd; rotary positions pair the halves of a head");
}

}  // namespace
}  // namespace weft
