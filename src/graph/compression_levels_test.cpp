// Gradients as factors of low rank, and encoded between nodes only: how many bytes travel where, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>

#include "graph/factor_sizes.hpp"
#include "graph/test_graphs.hpp"
#include "graph/verify_graph.hpp"

namespace weft {
namespace {

using test::build;
using test::with_layers;

std::int64_t sent_by(const StepGraph& graph, Role role) {
  std::int64_t bytes = 0;
  for (const Operation& op : graph.operations) {
    if (op.role == role) bytes += op.communication->bytes.value;
  }
  return bytes;
}

std::string refusal_of(const Layout& layout, const std::string& cluster = "dgx-a100:2") {
  try {
    verify_graph(build(with_layers("llama2-7b", 1), cluster, layout));
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

Layout factored(std::int64_t rank, int zero) {
  Layout layout{.zero = zero};
  layout.compress = {CompressionFormat::power_sgd, 10'000, rank};
  return layout;
}

Layout between_nodes(CompressionFormat format, int zero) {
  Layout layout{.zero = zero};
  layout.compress = {.format = format, .min_elements = 1, .between_nodes = true};
  return layout;
}

// llama2-7b has a hidden size of 4096, feed-forward layers of 11008, 32000 tokens, and no biases. A matrix of m x n
// sends r (m + n) numbers of four bytes: of a layer qkv 3 * 4096 x 4096, the output of attention 4096 x 4096, gate and
// up 2 * 11008 x 4096, down 4096 x 11008; embedding and head 32000 x 4096. Norms are below the limit.
TEST(FactoredGradients, SendTheSumOfRowsAndColumns) {
  constexpr std::int64_t kHidden = 4096, kInner = 11008, kTokens = 32000, kRank = 4;
  const StepGraph graph = build(with_layers("llama2-7b", 2), "dgx-a100:1", factored(kRank, 0));
  verify_graph(graph);
  const std::int64_t rows = 2 * (3 * kHidden + kHidden + 2 * kInner + kHidden) + 2 * kTokens;
  const std::int64_t columns = 2 * (kHidden + kHidden + kHidden + kInner) + 2 * kHidden;
  EXPECT_EQ(sent_by(graph, Role::grad_exchange), 4 * kRank * rows);
  EXPECT_EQ(sent_by(graph, Role::grad_gather), 4 * kRank * columns);
  EXPECT_EQ(sent_by(graph, Role::grad_reduce), std::int64_t{4} * 5 * kHidden);
  std::int64_t errors = 0, bases = 0;
  for (const Operation& op : graph.operations) {
    if (op.key.kind == OpKind::low_rank && op.role == Role::grad_decode) {
      errors += graph.value(write_of(op, Operand::compression_error)).elements();
      bases += graph.value(write_of(op, Operand::basis)).elements();
    }
  }
  EXPECT_EQ(errors, total_parameters(with_layers("llama2-7b", 2)) - 5 * kHidden);
  EXPECT_EQ(bases, kRank * columns);
  // ZeRO 1 sends the same, and goes on with shards.
  const StepGraph sharded = build(with_layers("llama2-7b", 2), "dgx-a100:1", factored(kRank, 1));
  verify_graph(sharded);
  EXPECT_EQ(sent_by(sharded, Role::grad_exchange), 4 * kRank * rows);
}

// PyTorch's rule: factors must have less than half of the elements. 100 x 100 at rank 24: 4800 < 5000; at 25 they have
// 5000. A bias travels behind the left factors.
TEST(FactoredGradients, LeaveTensorsThatGainNothingAsTheyAre) {
  HeldTensor matrix, bias;
  matrix.whole.shape = {100, 100};
  matrix.rows = {{0, 60}, {60, 100}};
  matrix.columns = {0, 100};
  bias.whole.shape = {100};
  bias.rows = {{0, 100}};
  bias.columns = {0, 1};
  bias.offset = 10'000;
  const FactorSizes some = factor_sizes({matrix, bias}, 24);
  ASSERT_EQ(some.matrices.size(), 1U);
  EXPECT_EQ(some.matrices.front(), (LowRankMatrix{0, 100, 100, 24, 0, 0}));
  EXPECT_EQ(some.left, 2400 + 100);
  EXPECT_EQ(some.right, 2400);
  EXPECT_EQ(some.plain, (std::vector<ElementRange>{{10'000, 10'100}}));
  EXPECT_FALSE(factor_sizes({matrix, bias}, 25).has_factors());
}

TEST(FactoredGradients, FitEveryLayoutWithDataParallelism) {
  for (const Layout& layout : {Layout{.tp = 2}, Layout{.cp = 2}, Layout{.pp = 2}, Layout{.tp = 2, .cp = 2, .pp = 2}}) {
    for (const int zero : {0, 1}) {
      Layout one = layout;
      one.zero = zero;
      one.compress = factored(3, zero).compress;
      verify_graph(build(with_layers("gpt3-175b", 4), "dgx-a100:2", one));
    }
  }
}

TEST(FactoredGradients, AreRefusedWithWordsWhereTheyCannotBe) {
  EXPECT_NE(refusal_of(factored(4, 2)).find("error feedback"), std::string::npos);
  EXPECT_NE(refusal_of(factored(0, 0)).find("power-sgd:0: the rank must be 1"), std::string::npos);
  Layout levels = factored(4, 0);
  levels.compress.between_nodes = true;
  EXPECT_NE(refusal_of(levels).find("leave out @node"), std::string::npos) << refusal_of(levels);
}

class BrokenFactors : public testing::Test {
 protected:
  std::string refusal() const {
    try {
      verify_graph(graph_);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }
  Operation& first(Role role, int part) {
    return *std::ranges::find_if(graph_.operations, [&](const Operation& op) {
      return op.key.kind == OpKind::low_rank && op.role == role && op.part == part;
    });
  }
  StepGraph graph_ = build(with_layers("llama2-7b", 1), "dgx-a100:1", factored(4, 0));
};

TEST_F(BrokenFactors, AnySizeThatIsNotThatOfItsValuesIsRefused) {
  ASSERT_EQ(refusal(), "accepted");
  for (auto [role, part] : {std::pair{Role::grad_encode, 0}, {Role::grad_encode, 1}, {Role::grad_decode, 0}}) {
    for (const std::size_t dim : {0, 2, 3, 4}) {
      ++first(role, part).key.dims[dim];
      EXPECT_NE(refusal().find("key"), std::string::npos) << refusal() << " " << part << " " << dim;
      --first(role, part).key.dims[dim];
    }
  }
  ASSERT_EQ(refusal(), "accepted");
}

TEST_F(BrokenFactors, AStepWithoutItsErrorOrBasisIsRefused) {
  for (const Operand operand : {Operand::basis, Operand::compression_error, Operand::left_factor}) {
    StepGraph whole = graph_;
    std::erase_if(first(operand == Operand::left_factor ? Role::grad_decode : Role::grad_encode, 0).reads,
                  [&](const Read& read) { return read.operand == operand; });
    EXPECT_NE(refusal(), "accepted") << name_of(operand);
    graph_ = std::move(whole);
  }
}

// Two nodes of 8: inside a node every gradient is reduced and gathered as it is, between nodes a rank sends its eighth
// in int8: 260 bytes for 256 elements, and both ranks of a pair gather both encodings.
TEST(GradientsBetweenNodes, AreEncodedOnTheOuterLevelOnly) {
  const Transformer model = with_layers("llama2-7b", 2);
  const std::int64_t m = total_parameters(model);
  const StepGraph graph = build(model, "dgx-a100:2", between_nodes(CompressionFormat::int8, 0));
  verify_graph(graph);
  EXPECT_EQ(sent_by(graph, Role::node_reduce), 4 * m);
  EXPECT_EQ(sent_by(graph, Role::node_gather), 4 * m);
  EXPECT_EQ(sent_by(graph, Role::grad_exchange), 2 * m / 8 / 256 * 260);
  EXPECT_EQ(sent_by(graph, Role::grad_gather), 0);
  for (const Operation& op : graph.operations) {
    const bool inside = op.role == Role::node_reduce || op.role == Role::node_gather;
    if (!inside && op.role != Role::grad_exchange) continue;
    EXPECT_EQ(op.communication->scope, inside ? Scope::inner : Scope::outer);
  }
  // ZeRO 1 keeps the shard: nothing is gathered, and each of a pair sends half of its eighth to the other.
  const StepGraph sharded = build(model, "dgx-a100:2", between_nodes(CompressionFormat::int8, 1));
  verify_graph(sharded);
  EXPECT_EQ(sent_by(sharded, Role::node_gather), 0);
  EXPECT_EQ(sent_by(sharded, Role::grad_exchange), m / 8 / 256 * 260);
}

// Four nodes: shards are exchanged, their sums encoded once more and gathered.
TEST(GradientsBetweenNodes, EncodeSumsWhereThereAreMoreThanTwoNodes) {
  const Transformer model = with_layers("llama2-7b", 2);
  const std::int64_t m = total_parameters(model);
  const StepGraph graph = build(model, "dgx-a100:4", between_nodes(CompressionFormat::int8, 0));
  verify_graph(graph);
  EXPECT_EQ(sent_by(graph, Role::grad_exchange), sent_by(graph, Role::grad_gather));
  // Norms have shards of 128 elements, which take 132 bytes.
  const std::int64_t norms = std::int64_t{5} * 4096;
  EXPECT_EQ(sent_by(graph, Role::grad_exchange), (m - norms) / 8 / 256 * 260 + norms / 8 / 128 * 132);
}

// At ZeRO 2 and 3 the first hop of qgZ carries plain numbers, and the second one, of an eighth of the elements, codes.
TEST(GradientsBetweenNodes, HaveAPlainFirstHopWhereGradientsAreSharded) {
  const Transformer model = with_layers("llama2-7b", 2);
  const std::int64_t m = total_parameters(model);
  for (const int zero : {2, 3}) {
    const StepGraph graph = build(model, "dgx-a100:2", between_nodes(CompressionFormat::int8, zero));
    verify_graph(graph);
    EXPECT_EQ(sent_by(graph, Role::node_reduce), 4 * m);
    EXPECT_EQ(sent_by(graph, Role::grad_exchange), m / 8 / 256 * 260);
  }
}

TEST(GradientsBetweenNodes, AreRefusedWithWordsWhereThereIsOneLevel) {
  for (const char* const cluster : {"dgx-a100:1", "local:4"}) {
    const std::string words = refusal_of(between_nodes(CompressionFormat::int8, 0), cluster);
    EXPECT_NE(words.find("int8@node: needs nodes"), std::string::npos) << words;
  }
}

}  // namespace
}  // namespace weft
