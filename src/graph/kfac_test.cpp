// What K-FAC adds to the graph of a step, counted by hand.
#include "graph/kfac.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/error.hpp"
#include "graph/step_graph.hpp"
#include "graph/test_graphs.hpp"
#include "graph/verify_graph.hpp"

namespace weft {
namespace {

StepGraph with_kfac(Layout layout, std::int64_t ranks, std::int64_t interval = 1) {
  layout.kfac_interval = interval;
  layout.dp = ranks / layout.pp;
  layout.seq = 64;
  layout.global_batch = 4 * layout.dp;
  const Transformer model = test::with_layers("gpt2", 4);
  const Cluster cluster(parse_cluster("local:" + std::to_string(ranks)));
  validate(layout, model, ranks);
  return build_step_graph(model, cluster, layout);
}

std::map<Role, int> count_roles(const StepGraph& graph) {
  std::map<Role, int> counts;
  for (const Operation& op : graph.operations) ++counts[op.role];
  return counts;
}

TEST(KfacGraph, HasTwoFactorsForEachOfFourLinearLayers) {
  const StepGraph graph = with_kfac({}, 1);
  verify_graph(graph);
  std::map<Role, int> counts = count_roles(graph);
  EXPECT_EQ(counts[Role::curvature], 4 * 4 * 2);
  EXPECT_EQ(counts[Role::inversion], 4 * 4 * 2);
  EXPECT_EQ(counts[Role::precondition], 4 * 4);
  EXPECT_EQ(counts[Role::curvature_reduce], 0);
}

TEST(KfacGraph, DataParallelRanksSumEveryFactorOnce) {
  const StepGraph graph = with_kfac({.pp = 2}, 4);
  verify_graph(graph);
  EXPECT_EQ(count_roles(graph)[Role::curvature_reduce], 4 * 4 * 2);
  for (const Operation& op : graph.operations) {
    if (op.role != Role::curvature_reduce) continue;
    const Value& factor = graph.value(read_of(op, Operand::payload));
    ASSERT_EQ(factor.shape.size(), 2u);
    EXPECT_EQ(factor.shape[0], factor.shape[1]);
    EXPECT_EQ(op.communication->bytes.value, 4 * factor.shape[0] * factor.shape[0]);
  }
}

// Preconditioning reads what the step before left, so that inversions have a step's time.
TEST(KfacGraph, PreconditionsByTheInversesOfTheStepBefore) {
  for (const Operation& op : with_kfac({}, 1).operations) {
    if (op.role != Role::precondition) continue;
    for (const Read& read : op.reads) EXPECT_EQ(read.distance, read.operand == Operand::gradient ? 0 : 1);
  }
}

TEST(KfacGraph, LayersTakeTurnsThatCoverAnInterval) {
  for (const std::int64_t interval : {1, 2, 3, 5}) {
    std::map<std::int64_t, int> of_turn;
    for (std::int64_t layer = 0; layer < 15; ++layer) {
      for (const Role role : {Role::qkv, Role::attention_out, Role::ffn_in, Role::ffn_out}) {
        ++of_turn[kfac_turn(layer, role, interval)];
      }
    }
    ASSERT_EQ(std::ssize(of_turn), interval);
    for (const auto& [turn, layers] : of_turn) {
      EXPECT_TRUE(turn >= 0 && turn < interval);
      EXPECT_NEAR(layers, 60.0 / static_cast<double>(interval), 2);
    }
  }
}

TEST(KfacGraph, RefusesLayoutsWhoseRanksShareFactors) {
  const auto refusal = [](Layout layout, std::int64_t ranks) -> std::string {
    try {
      layout.kfac_interval = 1;
      layout.dp = ranks / layout.tp;
      layout.seq = 64;
      layout.global_batch = ranks;
      Transformer model = test::with_layers("gpt2", 4);
      if (layout.tp > 1) model.kv_heads = 1;  // of which tensor-parallel ranks have copies
      validate(layout, model, ranks);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refusal({.tp = 2}, 2).find("--optimizer kfac: --tp 2 is more than"), std::string::npos);
  EXPECT_NE(refusal({.zero = 3}, 2).find("--optimizer kfac: is not for --zero 3"), std::string::npos);
  EXPECT_NE(refusal({.zero = 1, .zero_shards = 2}, 4).find("--optimizer kfac: is not for --zero-shards 2"),
            std::string::npos);
  EXPECT_EQ(refusal({.zero = 2}, 2), "");
}

// Inverses act on the whole gradient of a layer, so what ZeRO has scattered is gathered; what AdamW trains is not.
TEST(KfacGraph, ZeroGathersTheGradientsOfLinearLayersAlone) {
  for (const int zero : {0, 1, 2}) {
    Layout layout;
    layout.zero = zero;
    layout.dp = 2;
    const StepGraph graph = with_kfac(layout, 2);
    verify_graph(graph);
    int gathers = 0;
    for (const Operation& op : graph.operations) {
      if (op.role == Role::precondition) {
        EXPECT_EQ(graph.value(read_of(op, Operand::gradient)).elements(),
                  graph.value(write_of(op, Operand::direction)).elements());
      }
      if (!gathers_gradient(op)) continue;
      ++gathers;
      EXPECT_TRUE(has_curvature(op.subject));
      EXPECT_EQ(graph.value(read_of(op, Operand::payload)).elements(),
                (graph.value(write_of(op, Operand::payload)).elements() + 1) / 2);
    }
    // Four products of four layers.
    EXPECT_EQ(gathers, zero == 0 ? 0 : 4 * 4 * std::ssize(graph.classes)) << "zero " << zero;
  }
}

// The verifier finds what is wrong with a factor.
TEST(KfacGraph, WrongSizesAndOperandsAreRejected) {
  const auto rejected = [](Role role, auto change) {
    StepGraph graph = with_kfac({}, 1);
    for (Operation& op : graph.operations) {
      if (op.role != role) continue;
      change(op);
      break;
    }
    EXPECT_THROW(verify_graph(graph), Error) << name_of(role);
  };
  rejected(Role::curvature, [](Operation& op) { op.key.dims[0] += 1; });
  rejected(Role::curvature, [](Operation& op) { op.key.dims[2] = 0; });
  rejected(Role::curvature, [](Operation& op) { op.reads.clear(); });
  rejected(Role::inversion, [](Operation& op) { op.key.dims[0] += 1; });
  rejected(Role::inversion, [](Operation& op) { op.key.dims[1] = 0; });
  rejected(Role::inversion, [](Operation& op) { op.writes.pop_back(); });
  rejected(Role::precondition, [](Operation& op) {
    std::swap(op.key.dims[0], op.key.dims[1]);
    op.key.dims[0] += 1;
  });
  rejected(Role::precondition, [](Operation& op) { op.reads.pop_back(); });
}

}  // namespace
}  // namespace weft
