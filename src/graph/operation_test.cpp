#include "graph/operation.hpp"

#include <gtest/gtest.h>

#include <set>

#include "graph/test_graphs.hpp"
#include "model/counts.hpp"

namespace weft {
namespace {

using test::build;
using test::with_layers;

TEST(Names, OfRolesAreThereAndDistinct) {
  std::set<std::string_view> names;
  for (int r = 0; r < kRoles; ++r) names.insert(name_of(static_cast<Role>(r)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kRoles));
  EXPECT_FALSE(names.contains(""));
  EXPECT_EQ(name_of(Role::embedding), "embedding");
  EXPECT_EQ(name_of(Role::update), "update");
}

TEST(ExecutedFlops, AFlashKernelSkipsTheMaskedHalfAndRecomputesScores) {
  OpKey key;
  key.kind = OpKind::attention;
  key.dims = {1, 2, 64, 64, 16, 16};
  const double forward = 2.0 * 2 * 64 * 64 * 32;
  EXPECT_DOUBLE_EQ(model_flops(key).value, forward);
  EXPECT_DOUBLE_EQ(executed_flops(key).value, forward);  // unfused: the whole matrix
  key.causal_half = true;
  EXPECT_DOUBLE_EQ(executed_flops(key).value, forward / 2);
  key.phase = Phase::input_grad;  // five products instead of two, on half the matrix
  EXPECT_DOUBLE_EQ(model_flops(key).value, 2 * forward);
  EXPECT_DOUBLE_EQ(executed_flops(key).value, 2.5 * forward / 2);
}

TEST(MemoryTraffic, OfARecomputationIsThatOfForward) {
  for (const OpKind kind : {OpKind::gemm, OpKind::attention, OpKind::norm, OpKind::elementwise}) {
    OpKey forward;
    forward.kind = kind;
    forward.dims = {8, 16, 32, 4, 2, 2};
    OpKey again = forward;
    again.phase = Phase::recompute;
    EXPECT_DOUBLE_EQ(memory_traffic(again), memory_traffic(forward)) << name_of(kind);
  }
}

TEST(MemoryTraffic, OfAnUpdateReadsGradientsAndRewritesState) {
  // bf16: gradient 4 read, state 12 read and written, weight 2 written. fp32: state 8, weight 4 read and written.
  const Transformer model = with_layers("llama2-7b", 1);
  for (const auto& [precision, bytes] :
       {std::pair{ElementType::bf16, 4 + 24 + 2}, std::pair{ElementType::fp32, 4 + 16 + 8}}) {
    double traffic = 0;
    const StepGraph graph = build(model, "local:1", {.precision = precision});
    for (const Operation& op : graph.operations) {
      if (op.role == Role::update) traffic += memory_traffic(op.key);
    }
    EXPECT_DOUBLE_EQ(traffic, static_cast<double>(bytes * total_parameters(model)));
  }
}

}  // namespace
}  // namespace weft
