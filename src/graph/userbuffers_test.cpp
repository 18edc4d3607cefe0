#include "graph/userbuffers.hpp"

#include <gtest/gtest.h>

#include <map>

#include "graph/test_graphs.hpp"

namespace weft {
namespace {

std::vector<std::int32_t> blocks_of(const UserbufferTable& table) {
  std::vector<std::int32_t> blocks;
  for (const UserbufferUse& use : table.uses) blocks.push_back(use.thread_blocks);
  return blocks;
}

// initialize_ub of Transformer Engine: num_sm is 1 for ring_exchange and 16 otherwise.
TEST(Userbuffers, DefaultsAreThoseOfTransformerEngine) {
  EXPECT_EQ(blocks_of(default_userbuffers()), (std::vector<std::int32_t>{1, 16, 1, 16, 16, 1, 16, 1, 16, 16}));
  EXPECT_EQ(mover_of(default_userbuffers().of(LinearPass::fc1_fprop)), (Mover{1, true}));
  EXPECT_EQ(mover_of(default_userbuffers().of(LinearPass::fc2_fprop)), (Mover{16, false}));
}

// Of the table's twelve recipes, three as Megatron-Bridge has them.
TEST(Userbuffers, RecipesAreThoseOfTheNearestModel) {
  const auto of = [](const char* device, ProductFormat products, std::int64_t hidden) {
    return blocks_of(recipe_userbuffers(device, products, hidden));
  };
  using Blocks = std::vector<std::int32_t>;
  // qkv, proj, fc1, fc2 in forward; the same for dgrad; qkv, fc1 for wgrad.
  EXPECT_EQ(of("h100", ProductFormat::fp8, 16384), (Blocks{1, 1, 1, 1, 2, 1, 2, 1, 24, 2}));
  EXPECT_EQ(of("gb200", ProductFormat::fp4, 16384), (Blocks{1, 1, 1, 1, 8, 1, 2, 1, 32, 8}));
  EXPECT_EQ(of("h200", ProductFormat::stored, 12000), (Blocks{1, 24, 1, 1, 4, 1, 2, 1, 4, 4}));
  EXPECT_EQ(of("h200", ProductFormat::stored, 4096), of("h100", ProductFormat::stored, 8192));
  EXPECT_EQ(recipe_userbuffers("a100-80", ProductFormat::stored, 12288), default_userbuffers());
  const UserbufferTable fp8 = recipe_userbuffers("h100", ProductFormat::fp8, 12288);
  EXPECT_EQ(fp8.of(LinearPass::proj_fprop).method, UserbufferMethod::ring_exchange);
}

// A layer with sequence parallelism communicates ten times: each product once. Gathers are for qkv and fc1 in forward,
// again for their weight gradients, and for proj and fc2 in backward; the others reduce.
TEST(Userbuffers, EveryTransferOfALayerHasItsProduct) {
  const Layout layout{.tp = 4, .seq = 1024, .sequence_parallel = true};
  const Cluster cluster(parse_cluster("dgx-h100:1"));
  const StepGraph graph = build_step_graph(model_preset("gpt2"), cluster, test::filled(layout, 8));
  std::map<LinearPass, Collective> found;
  for (const Operation& op : graph.operations) {
    if (op.layer != 1 || !op.communication || op.communication->group != GroupKind::tp || !op.per_micro_batch) continue;
    const std::optional<LinearPass> pass = linear_pass(op);
    ASSERT_TRUE(pass.has_value()) << describe(op);
    EXPECT_TRUE(found.emplace(*pass, op.communication->collective).second) << describe(op);
  }
  EXPECT_EQ(found.size(), kLinearPasses);
  for (const auto& [pass, collective] : found) {
    const bool reduces = pass == LinearPass::proj_fprop || pass == LinearPass::fc2_fprop ||
                         pass == LinearPass::qkv_wgrad || pass == LinearPass::fc1_wgrad;
    EXPECT_EQ(collective, reduces ? Collective::reduce_scatter : Collective::all_gather) << name_of(pass);
  }
}

}  // namespace
}  // namespace weft
