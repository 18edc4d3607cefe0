// What ranks hold against what the graph declares and against the whole.
#include "graph/held_tensor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "cluster/presets.hpp"
#include "graph/step_graph.hpp"
#include "graph/test_held_tensors.hpp"
#include "graph/test_shapes.hpp"

namespace weft {
namespace {

using test::elements_of;
using test::small_gpt_shape;
using test::small_llama_shape;
using test::trainable_shapes;

const Layout kOneRank{.seq = 32};

// The graph's parameters by place: what its updates write.
std::map<ParameterPlace, std::int64_t> declared(const Transformer& model, const Layout& layout) {
  std::map<ParameterPlace, std::int64_t> sizes;
  const Cluster cluster(parse_cluster("local:" + std::to_string(layout.devices())));
  const StepGraph graph = build_step_graph(model, cluster, layout);
  for (const Operation& op : graph.operations) {
    if (op.role == Role::update) sizes[{op.layer, op.subject}] = graph.value(write_of(op, Operand::weight)).elements();
  }
  return sizes;
}

TEST(HeldTensors, AreAsLargeAsTheGraphDeclares) {
  for (const std::int64_t tp : {1, 2}) {
    Layout layout = kOneRank;
    layout.tp = tp;
    for (Transformer model : trainable_shapes()) {
      if (model.kv_heads % tp != 0) model.kv_heads = 6;
      for (std::int64_t rank = 0; rank < tp; ++rank) {
        std::map<ParameterPlace, std::int64_t> sizes;
        for (const ParameterPlace& place : parameter_places(model)) {
          sizes[place] = elements_of(held_tensors(model, layout, place.layer, place.role, {.tp = rank}));
        }
        EXPECT_EQ(sizes, declared(model, layout)) << model.name << " on " << tp;
      }
    }
  }
}

Transformer with_experts(Transformer model) {
  model.experts = Experts{.count = 4, .top_k = 2, .ffn = 20, .shared_ffn = 12, .capacity_factor = 1, .every = 2};
  return model;
}

TEST(HeldTensors, OfExpertsAreAsLargeAsTheGraphDeclares) {
  for (const Transformer& model : {with_experts(small_gpt_shape()), with_experts(small_llama_shape())}) {
    for (const Layout& layout : {Layout{.dp = 4, .ep = 4, .global_batch = 4, .seq = 32},
                                 Layout{.tp = 2, .dp = 2, .ep = 2, .etp = 2, .global_batch = 4, .seq = 32}}) {
      for (std::int64_t ep = 0; ep < layout.ep; ++ep) {
        std::map<ParameterPlace, std::int64_t> sizes;
        for (const ParameterPlace& place : parameter_places(model)) {
          const TensorHolder holder{layout.tp - 1, ep, layout.etp - 1};
          sizes[place] = elements_of(held_tensors(model, layout, place.layer, place.role, holder));
        }
        EXPECT_EQ(sizes, declared(model, layout)) << model.name << " with ep " << layout.ep;
      }
    }
  }
}

// By hand: experts 2 and 3 of four; of the second half of their 20 inner sizes the gates, then the values.
TEST(HeldTensors, OfExpertsAreThoseOfTheRank) {
  const Transformer model = with_experts(small_llama_shape());
  const Layout layout{.tp = 2, .dp = 2, .ep = 2, .etp = 2, .seq = 32};
  const auto in = held_tensors(model, layout, 1, Role::expert_in, {.tp = 0, .ep = 1, .etp = 1});
  ASSERT_EQ(in.size(), 2U);
  EXPECT_EQ(in[0].whole.name, "layers.1.experts.2.in.weight");
  EXPECT_EQ(in[1].whole.name, "layers.1.experts.3.in.weight");
  EXPECT_EQ(in[1].rows, (std::vector<ElementRange>{{10, 20}, {30, 40}}));
  const auto out = held_tensors(model, layout, 1, Role::expert_out, {.tp = 0, .ep = 1, .etp = 1});
  ASSERT_EQ(out.size(), 2U);
  EXPECT_EQ(out[0].whole.name, "layers.1.experts.2.out.weight");
  EXPECT_EQ(out[0].columns, (ElementRange{10, 20}));
}

// Every element of the whole is held by one rank that answers for it (copies aside), at the place where the runs say.
TEST(HeldTensors, OfAllRanksTogetherAreTheWholeOnce) {
  for (const Transformer& model : {small_gpt_shape(), small_llama_shape()}) {
    for (const std::int64_t tp : {1, 2}) {
      Layout layout = kOneRank;
      layout.tp = tp;
      for (const ParameterPlace& place : parameter_places(model)) {
        std::map<std::string, std::vector<int>> times, with_copies;
        for (std::int64_t rank = 0; rank < tp; ++rank) {
          for (const HeldTensor& held : held_tensors(model, layout, place.layer, place.role, {.tp = rank})) {
            std::vector<int>& seen = times[held.whole.name];
            std::vector<int>& all = with_copies[held.whole.name];
            seen.resize(held.whole.elements());
            all.resize(seen.size());
            std::int64_t in_part = 0;
            for_each_range(held, {0, held.elements()}, [&](const HeldRange& held_range) {
              EXPECT_EQ(held_range.in_part, in_part);
              in_part += held_range.count;
              for (std::int64_t i = 0; i < held_range.count; ++i) {
                seen[held_range.in_whole + i] += held.copy ? 0 : 1;
                ++all[held_range.in_whole + i];
              }
            });
            EXPECT_EQ(in_part, held.elements() - held.padding * held.columns.size());
          }
        }
        for (const auto& [name, seen] : times) {
          EXPECT_EQ(seen, std::vector<int>(seen.size(), 1)) << name << " on " << tp;
          const int least = *std::min_element(with_copies[name].begin(), with_copies[name].end());
          EXPECT_GE(least, 1) << name;
        }
      }
    }
  }
}

// By hand: 6 query heads and 2 key heads of 8 rows; rank 1 of 2 has queries 24..47, keys 56..63, values 72..79.
TEST(HeldTensors, OfQkvAreHeadsOfQueriesKeysAndValues) {
  const auto held = held_tensors(small_llama_shape(), {.tp = 2, .seq = 32}, 0, Role::qkv, {.tp = 1});
  ASSERT_EQ(held.size(), 1U);
  EXPECT_EQ(held[0].rows, (std::vector<ElementRange>{{24, 48}, {56, 64}, {72, 80}}));
  EXPECT_EQ(held[0].columns, (ElementRange{0, 48}));
  EXPECT_FALSE(held[0].copy);
}

// By hand: queries of 6 heads are rows 0..47, the two key heads 48..63, the value heads 64..79. Of six ranks the first
// three share head 0, the others head 1, and each has one query head.
TEST(HeldTensors, OfMoreRanksThanKeyHeadsAreQueriesAndCopiesOfAHead) {
  const Layout layout{.tp = 6, .seq = 32};
  for (std::int64_t rank = 0; rank < 6; ++rank) {
    const auto queries = held_tensors(small_llama_shape(), layout, 0, Role::qkv, {.tp = rank});
    const auto keys = held_tensors(small_llama_shape(), layout, 0, Role::kv, {.tp = rank});
    ASSERT_EQ(queries.size(), 1U);
    ASSERT_EQ(keys.size(), 1U);
    EXPECT_EQ(queries[0].rows, (std::vector<ElementRange>{{8 * rank, 8 * rank + 8}}));
    EXPECT_FALSE(queries[0].copy);
    const std::int64_t head = rank < 3 ? 0 : 8;
    EXPECT_EQ(keys[0].rows, (std::vector<ElementRange>{{48 + head, 56 + head}, {64 + head, 72 + head}}));
    EXPECT_EQ(keys[0].copy, rank % 3 != 0);
    EXPECT_EQ(keys[0].whole.name, queries[0].whole.name);
  }
}

// By hand: gates 0..99, values 100..199; rank 0 of 2 has the first half of each.
TEST(HeldTensors, OfAGatedProjectionAreGatesAndValues) {
  const auto held = held_tensors(small_llama_shape(), {.tp = 2, .seq = 32}, 0, Role::ffn_in, {});
  EXPECT_EQ(held[0].rows, (std::vector<ElementRange>{{0, 50}, {100, 150}}));
}

// Columns are split; the bias is on every rank, and the first answers for it.
TEST(HeldTensors, OfARowSplitProjectionAreColumns) {
  const auto held = held_tensors(small_gpt_shape(), {.tp = 2, .seq = 32}, 0, Role::ffn_out, {.tp = 1});
  ASSERT_EQ(held.size(), 2U);
  EXPECT_EQ(held[0].columns, (ElementRange{50, 100}));
  EXPECT_EQ(held[1].rows, (std::vector<ElementRange>{{0, 48}}));
  EXPECT_TRUE(held[1].copy);
  EXPECT_FALSE(held[0].copy);
}

// 300 tokens on 4 ranks of 128 rows: 128, 128, 44 and none.
TEST(HeldTensors, OfAVocabularyArePadded) {
  const Layout layout{.tp = 4, .seq = 32};
  std::vector<std::int64_t> padding;
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    padding.push_back(held_tensors(small_gpt_shape(), layout, -1, Role::embedding, {.tp = rank})[0].padding);
  }
  EXPECT_EQ(padding, (std::vector<std::int64_t>{0, 0, 84, 128}));
}

}  // namespace
}  // namespace weft
