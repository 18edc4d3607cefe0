// The tensors of a model: names, shapes and start.
#include "graph/parameter_tensors.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "graph/test_shapes.hpp"

namespace weft {
namespace {

using test::small_gpt_shape;
using test::small_llama_shape;

TEST(ParameterTensors, NamesEveryTensorOnceWithItsShape) {
  // By hand: 6 + 2 * 2 heads of 8 rows; two halves of 100; 300 tokens.
  std::map<std::string, std::vector<std::int64_t>> named;
  Transformer model = small_llama_shape();
  model.layers = 1;
  for (const ParameterPlace& place : parameter_places(model)) {
    for (const ParameterTensor& tensor : parameter_tensors(model, place.layer, place.role)) {
      EXPECT_TRUE(named.emplace(tensor.name, tensor.shape).second) << tensor.name;
    }
  }
  const std::map<std::string, std::vector<std::int64_t>> expected{{"embedding.weight", {300, 48}},
                                                                  {"layers.0.attention_norm.weight", {48}},
                                                                  {"layers.0.qkv.weight", {80, 48}},
                                                                  {"layers.0.attention_out.weight", {48, 48}},
                                                                  {"layers.0.ffn_norm.weight", {48}},
                                                                  {"layers.0.ffn_in.weight", {200, 48}},
                                                                  {"layers.0.ffn_out.weight", {48, 100}},
                                                                  {"final_norm.weight", {48}},
                                                                  {"head.weight", {300, 48}}};
  EXPECT_EQ(named, expected);
}

TEST(ParameterTensors, BiasesFollowTheirWeights) {
  const auto tensors = parameter_tensors(small_gpt_shape(), 2, Role::ffn_in);
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors[1].name, "layers.2.ffn_in.bias");
  EXPECT_EQ(tensors[1].shape, std::vector<std::int64_t>{100});
  const auto norm = parameter_tensors(small_gpt_shape(), -1, Role::final_norm);
  ASSERT_EQ(norm.size(), 2U);
  EXPECT_EQ(norm[0].name, "final_norm.weight");
  EXPECT_EQ(norm[1].name, "final_norm.bias");
}

TEST(ParameterTensors, ATiedHeadIsTheEmbedding) {
  const auto tensors = parameter_tensors(small_gpt_shape(), -1, Role::head);
  ASSERT_EQ(tensors.size(), 1U);
  EXPECT_EQ(tensors[0].name, "embedding.weight");
}

TEST(ParameterTensors, NamesNormsOfQueriesAndKeysAsHuggingFaceDoes) {
  Transformer model = small_llama_shape();
  model.qk_norm = true;
  const auto tensors = parameter_tensors(model, 1, Role::qk_norm);
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors[0].name, "layers.1.q_norm.weight");
  EXPECT_EQ(tensors[1].name, "layers.1.k_norm.weight");
  for (const ParameterTensor& tensor : tensors) {
    EXPECT_EQ(tensor.shape, std::vector<std::int64_t>{model.head_dim});
    EXPECT_EQ(tensor.start, ParameterTensor::Start::ones);
  }
}

TEST(ParameterTensors, GivesEveryExpertTensorsOfItsOwn) {
  Transformer model = small_gpt_shape();
  model.experts = Experts{.count = 2, .ffn = 30, .shared_ffn = 7, .every = 3};
  std::map<std::string, std::vector<std::int64_t>> named;
  for (const ParameterPlace& place : parameter_places(model)) {
    if (place.layer != 2) continue;
    for (const ParameterTensor& tensor : parameter_tensors(model, 2, place.role)) named[tensor.name] = tensor.shape;
  }
  std::erase_if(named, [](const auto& tensor) {
    return tensor.first.find("norm") != std::string::npos || tensor.first.find("qkv") != std::string::npos ||
           tensor.first.find("attention") != std::string::npos;
  });
  const std::map<std::string, std::vector<std::int64_t>> expected{
      {"layers.2.router.weight", {2, 48}},   {"layers.2.experts.0.in.weight", {30, 48}},
      {"layers.2.experts.0.in.bias", {30}},  {"layers.2.experts.0.out.weight", {48, 30}},
      {"layers.2.experts.0.out.bias", {48}}, {"layers.2.experts.1.in.weight", {30, 48}},
      {"layers.2.experts.1.in.bias", {30}},  {"layers.2.experts.1.out.weight", {48, 30}},
      {"layers.2.experts.1.out.bias", {48}}, {"layers.2.shared_in.weight", {7, 48}},
      {"layers.2.shared_in.bias", {7}},      {"layers.2.shared_out.weight", {48, 7}},
      {"layers.2.shared_out.bias", {48}}};
  EXPECT_EQ(named, expected);
}

TEST(ParameterTensors, ProjectionsIntoTheStreamShrinkWithDepth) {
  // GPT-2: 0.02 / sqrt(2 * 3 layers).
  for (const Role role : {Role::attention_out, Role::ffn_out}) {
    EXPECT_DOUBLE_EQ(parameter_tensors(small_gpt_shape(), 0, role)[0].deviation, 0.02 / std::sqrt(6.0));
  }
  EXPECT_DOUBLE_EQ(parameter_tensors(small_gpt_shape(), 0, Role::qkv)[0].deviation, 0.02);
}

}  // namespace
}  // namespace weft
