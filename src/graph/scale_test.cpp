// The graph of a large job is as small as that of a small one.
#include <gtest/gtest.h>

#include <chrono>

#include "graph/test_graphs.hpp"
#include "graph/verify_graph.hpp"

namespace weft {
namespace {

TEST(Scale, SixteenThousandGpusNeedNoLargerGraphThanTwoReplicas) {
  // Llama 3 405B: tp 8, pp 16; dp 128 on 16,384 GPUs (Llama 3, table 4), dp 2 on 256.
  const Transformer model = model_preset("llama3-405b");
  const Layout layout{.tp = 8, .pp = 16, .seq = 8192, .zero = 1, .sequence_parallel = true, .clip_grad = 1};
  const auto start = std::chrono::steady_clock::now();
  const StepGraph large = test::build(model, "dgx-h100:2048", layout, 16);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  RecordProperty("build_seconds", fmt::format("{:.3f}", elapsed.count()));
  const StepGraph small = test::build(model, "dgx-h100:32", layout, 16);
  EXPECT_EQ(large.classes.size(), 16U);
  EXPECT_EQ(large.operations.size(), small.operations.size());
  EXPECT_EQ(large.values.size(), small.values.size());
  EXPECT_EQ(large.links.size(), small.links.size());
  EXPECT_EQ(large.classes[0].ranks, 8 * 128);
  EXPECT_NO_THROW(verify_graph(large));
}

}  // namespace
}  // namespace weft
