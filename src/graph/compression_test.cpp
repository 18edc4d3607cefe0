// Compressed gradients in the graph: what is encoded, how many bytes travel, and what the verifier refuses.
#include <gtest/gtest.h>

#include <algorithm>

#include "graph/test_graphs.hpp"
#include "graph/verify_graph.hpp"

namespace weft {
namespace {

using test::build;
using test::with_layers;

std::vector<Operation> of_role(const StepGraph& graph, Role role) {
  std::vector<Operation> found;
  std::ranges::copy_if(graph.operations, std::back_inserter(found),
                       [&](const Operation& op) { return op.role == role; });
  return found;
}

std::int64_t bytes_of(const StepGraph& graph, Role role) {
  std::int64_t bytes = 0;
  for (const Operation& op : of_role(graph, role)) bytes += op.communication->bytes.value;
  return bytes;
}

Layout compressed(CompressionFormat format, int zero, std::int64_t min_elements = 1) {
  return {.zero = zero, .compress = {format, min_elements}};
}

// llama2-7b's tensors divide by 8 shards of whole blocks of 256, so int8 takes 260 bytes for 256 elements. An
// all-to-all and a gather of M elements each move (n - 1) / n of that from every rank, where rings of fp32 move twice 4
// M.
TEST(GraphCompression, SendsAByteForEveryElementAndAScaleForEveryBlock) {
  Transformer model = with_layers("llama2-7b", 2);
  const std::int64_t in_norms = (2 * model.layers + 1) * model.hidden;  // 4096 / 8 = 512 elements a shard
  const std::int64_t encoded = total_parameters(model) / 256 * 260;
  const StepGraph whole = build(model, "dgx-a100:1", compressed(CompressionFormat::int8, 0));
  verify_graph(whole);
  EXPECT_EQ(bytes_of(whole, Role::grad_exchange), encoded);
  EXPECT_EQ(bytes_of(whole, Role::grad_gather), encoded);
  EXPECT_TRUE(of_role(whole, Role::grad_reduce).empty());

  // At ZeRO 1 sums stay where they are; norms are below the limit.
  const StepGraph sharded = build(model, "dgx-a100:1", compressed(CompressionFormat::int8, 1, 5000));
  verify_graph(sharded);
  EXPECT_EQ(bytes_of(sharded, Role::grad_exchange), (total_parameters(model) - in_norms) / 256 * 260);
  EXPECT_EQ(bytes_of(sharded, Role::grad_gather), 0);
  EXPECT_EQ(bytes_of(sharded, Role::grad_reduce), 4 * in_norms);
  EXPECT_TRUE(of_role(sharded, Role::grad_decode).empty());
}

// An all-gather of n = 2 whole encodings of M elements moves (n - 1) / n of n M elements: as much as the two transfers
// of shards, 2 (n - 1) / n M. Norms of 4096 elements are whole blocks.
TEST(GraphCompression, TwoRanksSendTheirSummandsOnceAndEncodeOnce) {
  const Transformer model = with_layers("llama2-7b", 2);
  const StepGraph graph = build(model, "local:2", compressed(CompressionFormat::int8, 0));
  verify_graph(graph);
  EXPECT_EQ(bytes_of(graph, Role::grad_exchange), 2 * total_parameters(model) / 256 * 260);
  EXPECT_EQ(bytes_of(graph, Role::grad_gather), 0);
  EXPECT_TRUE(of_role(graph, Role::grad_decode).empty());
  EXPECT_EQ(of_role(graph, Role::grad_encode).size(), of_role(graph, Role::update).size());
  for (const Operation& op : of_role(graph, Role::grad_exchange)) {
    EXPECT_EQ(op.communication->collective, Collective::all_gather);
  }
}

TEST(GraphCompression, KeepsAnErrorForEveryElementAndForEverySum) {
  const Transformer model = with_layers("llama2-7b", 2);
  for (const int zero : {0, 1}) {
    const StepGraph graph = build(model, "dgx-a100:1", compressed(CompressionFormat::onebit, zero));
    std::int64_t errors = 0;
    for (const Operation& op : of_role(graph, Role::grad_encode)) {
      const ValueId error = read_of(op, Operand::compression_error);
      EXPECT_EQ(error, write_of(op, Operand::compression_error));
      EXPECT_EQ(graph.value(error).dtype, ElementType::fp32);
      errors += graph.value(error).elements();
      EXPECT_EQ(std::ranges::count_if(op.reads, [](const Read& read) { return read.distance == 1; }), 1);
    }
    const std::int64_t sums = zero == 0 ? total_parameters(model) / 8 : 0;
    EXPECT_EQ(errors, total_parameters(model) + sums);
  }
}

TEST(GraphCompression, LeavesTheGraphAsItIsWhereNothingIsLargeEnough) {
  const Transformer model = with_layers("llama2-7b", 2);
  for (const int zero : {0, 1}) {
    const StepGraph plain = build(model, "dgx-a100:1", {.zero = zero});
    const StepGraph none = build(model, "dgx-a100:1", compressed(CompressionFormat::int8, zero, 1'000'000'000));
    EXPECT_TRUE(
        std::equal(plain.operations.begin(), plain.operations.end(), none.operations.begin(), none.operations.end()));
  }
}

TEST(GraphCompression, HasARuleForEveryLayoutWithDataParallelism) {
  for (const Layout& layout : {Layout{.tp = 2}, Layout{.cp = 2}, Layout{.pp = 2}, Layout{.tp = 2, .cp = 2, .pp = 2}}) {
    for (int format = 1; format < kCompressionFormats; ++format) {
      Layout one = layout;
      one.zero = format % 2;
      one.clip_grad = format % 3;
      one.compress = {static_cast<CompressionFormat>(format), 1000};
      verify_graph(build(with_layers("gpt3-175b", 4), "dgx-a100:2", one));
    }
  }
}

class BrokenCompression : public testing::Test {
 protected:
  std::string refusal() const {
    try {
      verify_graph(graph_);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }
  Operation& first(Role role) {
    return *std::ranges::find_if(graph_.operations, [&](const Operation& op) { return op.role == role; });
  }
  StepGraph graph_ = build(with_layers("llama2-7b", 1), "dgx-a100:1", compressed(CompressionFormat::int8, 0));
};

TEST_F(BrokenCompression, AnEncodingOfTheWrongSizeIsRefused) {
  first(Role::grad_encode).key.dims[1] = static_cast<std::int64_t>(CompressionFormat::int4);
  EXPECT_NE(refusal().find("bytes written"), std::string::npos) << refusal();
}

TEST_F(BrokenCompression, AFormatThatDoesNotExistIsRefused) {
  first(Role::grad_merge).key.dims[1] = kCompressionFormats;
  EXPECT_NE(refusal().find("compression format"), std::string::npos) << refusal();
}

TEST_F(BrokenCompression, AMergeWithoutOneSummandIsRefused) {
  --first(Role::grad_merge).key.dims[3];
  EXPECT_NE(refusal().find("bytes read"), std::string::npos) << refusal();
}

TEST_F(BrokenCompression, AnEncodingWithoutItsErrorIsRefused) {
  std::erase_if(first(Role::grad_encode).reads, [](const Read& read) { return read.distance == 1; });
  EXPECT_NE(refusal().find("compression_error"), std::string::npos) << refusal();
}

}  // namespace
}  // namespace weft
