// Products whose operands are rounded: which they are, and what travels and is kept in fewer bytes with them.
#include <gtest/gtest.h>

#include <set>

#include "graph/test_graphs.hpp"
#include "graph/verify_graph.hpp"

namespace weft {
namespace {

using test::build;
using test::with_layers;

Layout rounded(ProductFormat products) {
  Layout layout;
  layout.tp = 4;
  layout.sequence_parallel = true;
  layout.zero = 1;
  layout.products = products;
  return layout;
}

std::int64_t bytes_of(const StepGraph& graph, Role role, Phase phase, Collective collective) {
  std::int64_t sum = 0;
  for (const Operation& op : graph.operations) {
    if (op.role != role || op.phase != phase || !op.communication || op.communication->collective != collective)
      continue;
    sum += op.communication->bytes.value;
  }
  return sum;
}

TEST(RoundedProducts, AreTheLinearLayersOfALayer) {
  for (const ProductFormat format : {ProductFormat::fp8, ProductFormat::fp4}) {
    const StepGraph graph = build(with_layers("llama2-7b", 2), "dgx-b200:1", rounded(format));
    verify_graph(graph);
    std::set<Role> roles;
    for (const Operation& op : graph.operations) {
      if (op.key.product == format) roles.insert(op.role);
      if (op.role == Role::head || op.role == Role::attention) {
        EXPECT_EQ(op.key.product, ProductFormat::stored);
      }
    }
    EXPECT_EQ(roles, (std::set{Role::qkv, Role::attention_out, Role::ffn_in, Role::ffn_out}));
  }
}

// Of the six transfers of a half layer, gathers carry a byte an element and sums two.
TEST(RoundedProducts, AreGatheredInOneByteAndSummedInTwo) {
  const StepGraph plain = build(with_layers("llama2-7b", 1), "dgx-h100:1", rounded(ProductFormat::stored));
  const StepGraph graph = build(with_layers("llama2-7b", 1), "dgx-h100:1", rounded(ProductFormat::fp8));
  const auto compare = [&](Role role, Phase phase, Collective kind, std::int64_t times) {
    EXPECT_GT(bytes_of(graph, role, phase, kind), 0) << name_of(role);
    EXPECT_EQ(times * bytes_of(graph, role, phase, kind), bytes_of(plain, role, phase, kind)) << name_of(role);
  };
  for (const Role entry : {Role::attention_gather, Role::ffn_gather}) {
    compare(entry, Phase::forward, Collective::all_gather, 2);
    compare(entry, Phase::weight_grad, Collective::all_gather, 2);
    compare(entry, Phase::input_grad, Collective::reduce_scatter, 1);
  }
  for (const Role exit : {Role::attention_reduce, Role::ffn_reduce}) {
    compare(exit, Phase::forward, Collective::reduce_scatter, 1);
    compare(exit, Phase::input_grad, Collective::all_gather, 2);
  }
  compare(Role::head_gather, Phase::forward, Collective::all_gather, 1);
}

// Weights of these products travel in a byte, those of norms, embedding and head in two.
TEST(RoundedProducts, WeightsAreGatheredInFp8WhereAskedFor) {
  Layout layout = rounded(ProductFormat::fp8);
  layout.tp = 1;
  layout.sequence_parallel = false;
  const Transformer model = with_layers("llama2-7b", 1);
  const StepGraph plain = build(model, "dgx-h100:1", layout);
  layout.fp8_param_gather = true;
  const StepGraph graph = build(model, "dgx-h100:1", layout);
  verify_graph(graph);
  const auto gathered = [](const StepGraph& g) {
    return bytes_of(g, Role::param_gather, Phase::optimizer, Collective::all_gather);
  };
  const std::int64_t h = 4096, ffn = 11008, linear = 4 * h * h + 3 * h * ffn;
  EXPECT_EQ(gathered(plain) - gathered(graph), linear);
}

// What backward reads of a product's input is kept in one byte; attention's core needs its output as it is beside it.
TEST(RoundedProducts, KeepTheirInputsRounded) {
  const auto kept = [](const StepGraph& graph, std::string_view name) {
    for (const Value& value : graph.values) {
      if (value.name == name) return static_cast<double>(value.bytes().value) / static_cast<double>(value.elements());
    }
    ADD_FAILURE() << name;
    return 0.0;
  };
  const StepGraph fp8 = build(with_layers("llama2-7b", 1), "dgx-b200:1", rounded(ProductFormat::fp8));
  EXPECT_EQ(kept(fp8, "layer 0 attention_norm"), 1);
  EXPECT_EQ(kept(fp8, "layer 0 ffn_activated"), 1);
  EXPECT_EQ(kept(fp8, "layer 0 context"), 3);
  EXPECT_EQ(kept(fp8, "layer 0 ffn_hidden"), 2);
  const StepGraph fp4 = build(with_layers("llama2-7b", 1), "dgx-b200:1", rounded(ProductFormat::fp4));
  EXPECT_EQ(kept(fp4, "layer 0 ffn_norm"), 0.5625);  // half a byte, and a scale of one for 16 elements
}

TEST(RoundedProducts, MoveTheirOperandsInFewerBytes) {
  OpKey key;
  key.kind = OpKind::gemm;
  key.dims = {64, 32, 16, 1, 0, 0};
  EXPECT_EQ(memory_traffic(key), 2.0 * (64 * 16 + 16 * 32 + 64 * 32));
  key.product = ProductFormat::fp8;
  EXPECT_EQ(memory_traffic(key), 64 * 16 + 16 * 32 + 2.0 * 64 * 32);
}

}  // namespace
}  // namespace weft
