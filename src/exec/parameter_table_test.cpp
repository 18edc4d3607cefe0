// The table against what the graph declares, and the numbers that training starts from.
#include "exec/parameter_table.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "cluster/presets.hpp"
#include "exec/test_folder.hpp"
#include "model/presets.hpp"

namespace weft {
namespace {

using test::error_of;

Transformer small_gpt() {
  return {.name = "gpt",
          .layers = 3,
          .hidden = 48,
          .heads = 6,
          .kv_heads = 6,
          .head_dim = 8,
          .ffn = 100,
          .vocab = 300,
          .max_seq = 40,
          .latent = {},
          .experts = {}};
}

Transformer small_llama() {
  Transformer model = small_gpt();
  model.name = "llama";
  model.kv_heads = 2;
  model.norm = NormKind::rms_norm;
  model.activation = Activation::swiglu;
  model.positions = Positions::rotary;
  model.tied_embeddings = false;
  model.linear_bias = false;
  return model;
}

// Both shapes with every switch on and off, and a head size that is not hidden / heads.
std::vector<Transformer> shapes() {
  std::vector<Transformer> models;
  for (const Transformer& start : {small_gpt(), small_llama()}) {
    for (int bits = 0; bits < 32; ++bits) {
      Transformer model = start;
      model.linear_bias = (bits & 1) != 0;
      model.qkv_bias = (bits & 2) != 0;
      model.tied_embeddings = (bits & 4) != 0;
      model.activation = (bits & 8) != 0 ? Activation::swiglu : Activation::gelu;
      if ((bits & 16) != 0) model.head_dim = 10, model.kv_heads = 3;
      models.push_back(model);
    }
  }
  return models;
}

std::int64_t elements_of(const std::vector<ParameterTensor>& tensors) {
  std::int64_t sum = 0;
  for (const ParameterTensor& tensor : tensors) {
    EXPECT_EQ(tensor.offset, sum) << tensor.name;  // without gaps
    sum += tensor.elements();
  }
  return sum;
}

const Layout kOneRank{.seq = 32};

// The graph's parameters by place: what its updates write.
std::map<ParameterPlace, std::int64_t> declared(const Transformer& model) {
  std::map<ParameterPlace, std::int64_t> sizes;
  const StepGraph graph = build_step_graph(model, Cluster(parse_cluster("local:1")), kOneRank);
  for (const Operation& op : graph.operations) {
    if (op.role == Role::update) sizes[{op.layer, op.subject}] = graph.value(op.writes[0]).elements();
  }
  return sizes;
}

TEST(ParameterTable, HoldsWhatTheGraphDeclares) {
  for (const Transformer& model : shapes()) {
    std::map<ParameterPlace, std::int64_t> sizes;
    for (const ParameterPlace& place : parameter_places(model)) {
      sizes[place] = elements_of(parameter_tensors(model, kOneRank, place.layer, place.role));
    }
    EXPECT_EQ(sizes, declared(model)) << model.name;
  }
}

TEST(ParameterTable, NamesEveryTensorOnceWithItsShape) {
  // By hand: 6 + 2 * 2 heads of 8 rows; two halves of 100; 300 tokens padded to 3 * 128.
  std::map<std::string, std::vector<std::int64_t>> named;
  Transformer model = small_llama();
  model.layers = 1;
  for (const ParameterPlace& place : parameter_places(model)) {
    for (const ParameterTensor& tensor : parameter_tensors(model, kOneRank, place.layer, place.role)) {
      EXPECT_TRUE(named.emplace(tensor.name, tensor.shape).second) << tensor.name;
    }
  }
  const std::map<std::string, std::vector<std::int64_t>> expected{{"embedding.weight", {384, 48}},
                                                                  {"layers.0.attention_norm.weight", {48}},
                                                                  {"layers.0.qkv.weight", {80, 48}},
                                                                  {"layers.0.attention_out.weight", {48, 48}},
                                                                  {"layers.0.ffn_norm.weight", {48}},
                                                                  {"layers.0.ffn_in.weight", {200, 48}},
                                                                  {"layers.0.ffn_out.weight", {48, 100}},
                                                                  {"final_norm.weight", {48}},
                                                                  {"head.weight", {384, 48}}};
  EXPECT_EQ(named, expected);
}

TEST(ParameterTable, BiasesFollowTheirWeights) {
  const auto tensors = parameter_tensors(small_gpt(), kOneRank, 2, Role::ffn_in);
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors[1].name, "layers.2.ffn_in.bias");
  EXPECT_EQ(tensors[1].offset, 100 * 48);
  EXPECT_EQ(tensors[1].shape, std::vector<std::int64_t>{100});
  const auto norm = parameter_tensors(small_gpt(), kOneRank, -1, Role::final_norm);
  ASSERT_EQ(norm.size(), 2U);
  EXPECT_EQ(norm[0].name, "final_norm.weight");
  EXPECT_EQ(norm[1].name, "final_norm.bias");
}

TEST(ParameterTable, ATiedHeadIsTheEmbedding) {
  const auto tensors = parameter_tensors(small_gpt(), kOneRank, -1, Role::head);
  ASSERT_EQ(tensors.size(), 1U);
  EXPECT_EQ(tensors[0].name, "embedding.weight");
}

TEST(ParameterTable, SaysWhatCannotBeTrainedYet) {
  const auto refusal = [](const Transformer& model) {
    return error_of([&] { parameter_tensors(model, {.seq = 32}, -1, Role::embedding); });
  };
  EXPECT_EQ(refusal(model_preset("mixtral-8x7b")), "model 'mixtral-8x7b': experts: weft run cannot train it yet");
  Transformer model = small_llama();
  model.qk_norm = true;
  EXPECT_EQ(refusal(model), "model 'llama': qk_norm (norms of queries and keys): weft run cannot train it yet");
  model = small_llama();
  model.latent = LatentAttention{};
  EXPECT_EQ(refusal(model), "model 'llama': latent attention: weft run cannot train it yet");
  model = small_llama();
  model.head_dim = 7;
  EXPECT_EQ(refusal(model), "model 'llama': head_dim: value 7 is odd; rotary positions pair the halves of a head");
}

std::vector<float> start_of(const std::vector<ParameterTensor>& tensors, std::uint64_t seed) {
  std::vector<float> whole(static_cast<std::size_t>(elements_of(tensors)));
  initial_weights(tensors, seed, 0, whole);
  return whole;
}

TEST(InitialWeights, AShardIsThatPartOfTheWhole) {
  const auto tensors = parameter_tensors(small_gpt(), kOneRank, 1, Role::qkv);
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

TEST(InitialWeights, AreNormalWithTheDeviationAskedFor) {
  // Over n draws the mean lies within 5 / sqrt(n) deviations, the variance within 5 * sqrt(2 / n) of 1, and 68.27 %
  // (+- 5 * sqrt(0.217 / n)) within one deviation.
  const ParameterTensor tensor{.name = "x", .shape = {200'000}, .deviation = 0.5};
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
  const ParameterTensor a{.name = "a", .shape = {64}, .deviation = 1}, b{.name = "b", .shape = {64}, .deviation = 1};
  EXPECT_EQ(start_of({a}, 1), start_of({a}, 1));
  EXPECT_NE(start_of({a}, 1), start_of({a}, 2));
  EXPECT_NE(start_of({a}, 1), start_of({b}, 1));
}

TEST(InitialWeights, OfANormAreOnesAndOfBiasesZeros) {
  const std::vector<float> norm = start_of(parameter_tensors(small_gpt(), kOneRank, 0, Role::attention_norm), 1);
  for (std::size_t i = 0; i < norm.size(); ++i) EXPECT_EQ(norm[i], i < 48 ? 1.0F : 0.0F);
  const std::vector<float> out = start_of(parameter_tensors(small_gpt(), kOneRank, 0, Role::ffn_out), 1);
  for (std::size_t i = 48 * 100; i < out.size(); ++i) EXPECT_EQ(out[i], 0.0F);
}

TEST(InitialWeights, OfPaddedTokensAreZeros) {
  const std::vector<float> table = start_of(parameter_tensors(small_gpt(), kOneRank, -1, Role::embedding), 1);
  ASSERT_EQ(table.size(), 384U * 48);
  EXPECT_NE(std::accumulate(table.begin() + 299 * 48, table.begin() + 300 * 48, 0.0F), 0.0F);
  for (std::size_t i = 300 * 48; i < table.size(); ++i) ASSERT_EQ(table[i], 0.0F);
}

TEST(InitialWeights, OfProjectionsIntoTheStreamShrinkWithDepth) {
  // GPT-2: 0.02 / sqrt(2 * 3 layers).
  for (const Role role : {Role::attention_out, Role::ffn_out}) {
    EXPECT_DOUBLE_EQ(parameter_tensors(small_gpt(), kOneRank, 0, role)[0].deviation, 0.02 / std::sqrt(6.0));
  }
  EXPECT_DOUBLE_EQ(parameter_tensors(small_gpt(), kOneRank, 0, Role::qkv)[0].deviation, 0.02);
}

}  // namespace
}  // namespace weft
