// What ZeRO++ adds: how many bytes travel between nodes, alone and together, and what lies in memory.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "graph/test_graphs.hpp"
#include "graph/verify_graph.hpp"

namespace weft {
namespace {

using test::build;
using test::with_layers;

// Two nodes of eight; 16-bit weights and gradients, as in the paper. Every tensor divides into 16 shards of whole
// blocks of 256 elements.
Layout on_two_nodes(CompressionFormat gradients, CompressionFormat weights, std::int64_t secondary) {
  Layout layout{.zero = 3, .zero_secondary = secondary};
  layout.precision = layout.grad_dtype = ElementType::fp16;
  layout.compress = {gradients, 1};
  layout.compress_weights = weights;
  return layout;
}

// Bytes that all devices of a node together send to the other node, counted from what each collective must move: a ring
// over both nodes crosses between them once in each direction with all but the receiver's own share; in an all-to-all
// every member of a node sends its messages to the members of the other one.
double bytes_between_nodes(const StepGraph& graph) {
  const RankClass& c = graph.classes.front();
  double bytes = 0;
  for (const Operation& op : graph.operations) {
    if (!op.communication || !op.per_micro_batch) continue;
    const ClassGroup& group =
        c.group(op.communication->group).scoped(op.communication->scope, op.communication->levels);
    const auto whole = static_cast<double>(op.communication->bytes.value), n = static_cast<double>(group.view.size);
    const bool inside = group.view.within.front() == group.view.size;
    if (inside) continue;
    if (op.communication->collective == Collective::all_to_all) {
      const double in_node = static_cast<double>(group.view.within.front());
      bytes += 8 * whole * (n - in_node) / n;
    } else {
      bytes += whole * (n - 1) / n;
    }
  }
  return bytes;
}

double volume(CompressionFormat gradients, CompressionFormat weights, std::int64_t secondary) {
  const StepGraph graph = build(with_layers("llama2-7b", 4), "dgx-a100:2", on_two_nodes(gradients, weights, secondary));
  verify_graph(graph);
  return bytes_between_nodes(graph);
}

// M is a byte count of all weights in 16 bits. The embedding is gathered by forward only, and the head once for both
// passes, so gathers of backward are those of the layers. A scale of 4 bytes for every 256 elements comes on top.
TEST(ZeroPlusPlus, SendsAQuarterOfTheBytesBetweenNodes) {
  const Transformer model = with_layers("llama2-7b", 4);
  const auto m = 2 * static_cast<double>(total_parameters(model));
  const double layers = 2 * 4 *
                        static_cast<double>(total_parameters(with_layers("llama2-7b", 4)) -
                                            total_parameters(with_layers("llama2-7b", 3)));
  constexpr double kRing = 15.0 / 16, kHalf = 260.0 / 512, kQuarter = 132.0 / 512;
  using enum CompressionFormat;
  EXPECT_DOUBLE_EQ(volume(none, none, 0), kRing * (m + layers + m));
  EXPECT_DOUBLE_EQ(volume(none, none, 8), kRing * (m + m));
  EXPECT_DOUBLE_EQ(volume(none, int8, 0), kRing * (kHalf * m + kHalf * layers + m));
  EXPECT_DOUBLE_EQ(volume(none, int8, 8), kRing * (kHalf * m + m));
  // Between two nodes: every node sends the other half of the shards, each once.
  EXPECT_DOUBLE_EQ(volume(int4, none, 0), kRing * (m + layers) + kQuarter * m / 2);
  EXPECT_DOUBLE_EQ(volume(int4, int8, 8), kRing * kHalf * m + kQuarter * m / 2);
  // The paper's 3 M -> 0.75 M, for many nodes and without scales.
  EXPECT_NEAR(kHalf + kQuarter, 0.75, 0.02);
}

std::int64_t count_of(const StepGraph& graph, Role role, Phase phase) {
  return std::ranges::count_if(graph.operations,
                               [&](const Operation& op) { return op.role == role && op.phase == phase; });
}

TEST(ZeroPlusPlus, ExchangesGradientsInOneHopWhereThereIsOneLevel) {
  const Transformer model = with_layers("llama2-7b", 2);
  for (const int zero : {2, 3}) {
    Layout layout = on_two_nodes(CompressionFormat::int4, CompressionFormat::none, 0);
    layout.zero = zero;
    const StepGraph one = build(model, "dgx-a100:1", layout), two = build(model, "dgx-a100:2", layout);
    verify_graph(one);
    verify_graph(two);
    EXPECT_EQ(count_of(one, Role::grad_reduce, Phase::weight_grad), 0);
    EXPECT_EQ(count_of(two, Role::grad_exchange, Phase::weight_grad),
              2 * count_of(one, Role::grad_exchange, Phase::weight_grad));
    for (const Operation& op : one.operations) {
      if (op.role == Role::grad_exchange) {
        EXPECT_EQ(op.communication->scope, Scope::whole);
      }
    }
  }
}

// Backward gathers encoded shards again unless a secondary group keeps what forward decoded. Shards are encoded once a
// step, whatever the number of micro-batches.
TEST(ZeroPlusPlus, DecodesWhatItGathersEncoded) {
  const Transformer model = with_layers("llama2-7b", 3);
  using enum CompressionFormat;
  const StepGraph plain = build(model, "dgx-a100:2", on_two_nodes(none, int8, 0));
  const StepGraph kept = build(model, "dgx-a100:2", on_two_nodes(none, int8, 8));
  verify_graph(plain);
  const std::int64_t parameters = count_of(plain, Role::update, Phase::optimizer);
  EXPECT_EQ(count_of(plain, Role::param_encode, Phase::optimizer), parameters);
  EXPECT_EQ(count_of(plain, Role::param_decode, Phase::forward), parameters);
  EXPECT_GT(count_of(plain, Role::param_decode, Phase::input_grad), 0);
  EXPECT_EQ(count_of(kept, Role::param_decode, Phase::forward), parameters);
  EXPECT_EQ(count_of(kept, Role::param_decode, Phase::input_grad), 0);
}

// Beside ZeRO 3's own state there is a byte for every element of a shard and a scale for every block.
TEST(ZeroPlusPlus, KeepsEncodedShardsBesideTheOthers) {
  const Transformer model = with_layers("llama2-7b", 4);
  const StepGraph graph = build(model, "dgx-a100:2", on_two_nodes(CompressionFormat::none, CompressionFormat::int8, 0));
  std::int64_t bytes = 0;
  for (const Operation& op : graph.operations) {
    if (op.role == Role::param_encode) bytes += graph.value(write_of(op, Operand::encoded)).bytes().value;
  }
  EXPECT_EQ(bytes, total_parameters(model) / 16 / 256 * 260);
}

// ZeRO 1 and 2 gather once a step: M bytes of 16-bit weights become half of that and scales. What is gathered is
// decoded into the weights that forward reads. Weights of 32 bits are updated from a shard that nothing rounds; those
// of 16 bits have a master copy anyway.
TEST(ZeroPlusPlus, GathersWhatUpdatesLeaveEncoded) {
  const Transformer model = with_layers("llama2-7b", 2);
  for (const int zero : {1, 2}) {
    for (const ElementType precision : {ElementType::bf16, ElementType::fp32}) {
      SCOPED_TRACE(fmt::format("zero {}, {}", zero, name_of(precision)));
      Layout layout = on_two_nodes(CompressionFormat::none, CompressionFormat::int8, 0);
      layout.zero = zero;
      layout.precision = precision;
      layout.grad_dtype = ElementType::fp32;
      const StepGraph graph = build(model, "dgx-a100:2", layout);
      verify_graph(graph);
      const std::int64_t parameters = count_of(graph, Role::update, Phase::optimizer);
      EXPECT_EQ(count_of(graph, Role::param_encode, Phase::optimizer), parameters);
      EXPECT_EQ(count_of(graph, Role::param_decode, Phase::optimizer), parameters);
      std::int64_t gathered = 0;
      for (const Operation& op : graph.operations) {
        if (op.role == Role::param_gather) gathered += op.communication->bytes.value;
        if (op.role != Role::update) continue;
        const ValueId read = find_read(op, Operand::weight);
        EXPECT_EQ(read.valid(), precision == ElementType::fp32);
        if (read.valid()) {
          EXPECT_EQ(read, write_of(op, Operand::weight));
        }
      }
      EXPECT_EQ(gathered, total_parameters(model) / 256 * 260);
    }
  }
}

TEST(ZeroPlusPlus, IsRefusedWhereItDoesNotWork) {
  const Transformer model = with_layers("llama2-7b", 2);
  const auto refusal = [&](const Layout& layout) -> std::string {
    try {
      validate(test::filled(layout, 16), model, 16);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  using enum CompressionFormat;
  Layout layout = on_two_nodes(none, int8, 0);
  layout.zero = 0;
  EXPECT_NE(refusal(layout).find("--compress weights=int8: needs --zero 1, 2 or 3"), std::string::npos);
  EXPECT_NE(refusal(on_two_nodes(none, top_k, 0)).find("--compress weights=top-k"), std::string::npos);
  EXPECT_NE(refusal(on_two_nodes(onebit, none, 0)).find("must be bf16, fp16, int8"), std::string::npos);
  EXPECT_NE(refusal(on_two_nodes(none, none, 16)).find("--zero-secondary 16: must be a divisor of the 16"),
            std::string::npos);
  EXPECT_NE(refusal(on_two_nodes(none, none, 3)).find("--zero-secondary 3: "), std::string::npos);
  layout = {.zero = 2, .zero_secondary = 8};
  EXPECT_NE(refusal(layout).find("--zero-secondary 8: needs --zero 3, not 2"), std::string::npos);
}

}  // namespace
}  // namespace weft
