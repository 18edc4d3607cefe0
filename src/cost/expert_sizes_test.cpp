#include "cost/expert_sizes.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "cluster/presets.hpp"
#include "cost/cost_model.hpp"
#include "graph/operation_part.hpp"
#include "model/presets.hpp"

namespace weft {
namespace {

// 8 ranks share 16 experts; 1024 tokens each, capacity 1.25 x 64 = 80, so 1280 slots of which balanced loads fill 1024.
constexpr double kFilled = 1024.0 / 1280;

StepGraph graph_of(const Cluster& cluster, ExpertExchange exchange) {
  Transformer model = model_preset("gpt2-s-moe");
  model.experts->count = 16;
  Layout layout{.dp = 8, .ep = 8, .expert_exchange = exchange, .micro_batch = 2, .global_batch = 16, .seq = 512};
  return build_step_graph(model, cluster, layout);
}

class ExpertSizesTest : public testing::TestWithParam<ExpertExchange> {
 protected:
  const Operation& find(Role role, Phase phase) const {
    for (const Operation& op : graph_.operations) {
      if (op.role == role && op.phase == phase && !(op.phase == Phase::weight_grad && op.is_transfer())) return op;
    }
    ADD_FAILURE() << "no such operation";
    return graph_.operations.front();
  }
  Operation half(Role role, Phase phase) const {
    Operation op = find(role, phase);
    const auto id = make_id<OpId>(&find(role, phase) - graph_.operations.data());
    op.origins = {{id, kTokenAxis, 0, 1, 2}};
    return op;
  }

  Cluster cluster_{parse_cluster("dgx-a100:1")};
  StepGraph graph_ = graph_of(cluster_, GetParam());
};

TEST_P(ExpertSizesTest, WithoutAMeasurementAreWhatChanceBringsTheWorstRank) {
  const ExpertSizes sizes(graph_, std::nullopt);
  const bool uneven = GetParam() == ExpertExchange::uneven;
  const double worst = 1 + std::sqrt(2 * std::log(8.0) / 1024);
  for (const Role role : {Role::expert_dispatch, Role::expert_in, Role::expert_out, Role::expert_combine}) {
    EXPECT_EQ(sizes.are_data(find(role, Phase::forward)), uneven);
    EXPECT_DOUBLE_EQ(sizes.factor(find(role, Phase::forward), false), uneven ? kFilled * worst : 1.0);
    EXPECT_TRUE(sizes.are_data(half(role, Phase::forward)));
    EXPECT_DOUBLE_EQ(sizes.factor(half(role, Phase::forward), false), 1 + std::sqrt(2 * std::log(8.0) / 512));
  }
  EXPECT_DOUBLE_EQ(sizes.factor(find(Role::dispatch, Phase::forward), false), 1);
  EXPECT_DOUBLE_EQ(sizes.factor(find(Role::ffn_in, Phase::forward), false), 1);
  EXPECT_DOUBLE_EQ(sizes.factor(find(Role::expert_in, Phase::weight_grad), false), uneven ? kFilled * worst : 1.0);
}

TEST_P(ExpertSizesTest, AreWhatTheGatesOfARunDid) {
  const bool uneven = GetParam() == ExpertExchange::uneven;
  const ExpertLoad load{.computed = 0.9, .exchanged = 0.7, .filled = uneven ? kFilled : 1};
  const ExpertSizes sizes(graph_, load);
  EXPECT_DOUBLE_EQ(sizes.factor(half(Role::expert_dispatch, Phase::forward), false), 0.7);
  EXPECT_DOUBLE_EQ(sizes.factor(half(Role::expert_in, Phase::forward), true), 0.9);
  // Whole operations were measured on the rows of balanced loads where the exchange is uneven, else on all slots.
  EXPECT_DOUBLE_EQ(sizes.factor(find(Role::expert_in, Phase::forward), true), uneven ? 0.9 : 1.0);
  EXPECT_DOUBLE_EQ(sizes.factor(find(Role::expert_combine, Phase::forward), false), uneven ? kFilled * 0.7 : 1.0);
}

TEST_P(ExpertSizesTest, OfWeightGradientsFollowTheCutsOfTheirLayer) {
  StepGraph cut = graph_;
  const Operation part = half(Role::expert_in, Phase::input_grad);
  for (Operation& op : cut.operations) {
    if (op.role == part.role && op.phase == part.phase && op.layer == part.layer) op.origins = part.origins;
  }
  const ExpertSizes sizes(cut, ExpertLoad{.computed = 0.9});
  const bool uneven = GetParam() == ExpertExchange::uneven;
  for (const Operation& op : cut.operations) {
    if (op.role != Role::expert_out || op.phase != Phase::weight_grad || op.is_transfer()) continue;
    EXPECT_EQ(sizes.are_data(op), uneven || op.layer == part.layer);
    EXPECT_DOUBLE_EQ(sizes.factor(op, true), sizes.are_data(op) ? kFilled * 0.9 : 1.0);
  }
}

// The bound may not count more than any plan needs: of each whole, all parts by tokens together.
TEST_P(ExpertSizesTest, AreNeverLessThanTheBoundCounts) {
  for (const auto& load : {std::optional<ExpertLoad>{}, std::optional{ExpertLoad{.computed = 0.8, .exchanged = 0.6}},
                           std::optional{ExpertLoad{.computed = 1.1, .exchanged = 1.2}}}) {
    const ExpertSizes sizes(graph_, load);
    for (const Operation& op : graph_.operations) {
      if (!works_on_slots(op) || sizes.are_data(op) || op.role == Role::dispatch || op.role == Role::combine) continue;
      Operation part = half(op.role, op.phase);
      EXPECT_LE(sizes.least_load(op), sizes.factor(part, true)) << describe(op);
      EXPECT_LE(kFilled * sizes.least_load(op), sizes.factor(op, true)) << describe(op);
    }
  }
}

// 512 tokens in slices of 128 and 384, 40 slots for each of 16 experts: a slice may need them all, and fills 128 and
// 384 of 640 if loads are balanced.
TEST(ExpertSizesOfSlices, AreThoseOfTheirOwnTokens) {
  Transformer model = model_preset("gpt2-s-moe");
  model.experts->count = 16;
  const Layout layout{.dp = 4,
                      .pp = 2,
                      .ep = 4,
                      .expert_exchange = ExpertExchange::uneven,
                      .global_batch = 16,
                      .seq = 512,
                      .slice_tokens = {128, 384}};
  const StepGraph graph = build_step_graph(model, Cluster(parse_cluster("dgx-a100:1")), layout);
  const ExpertSizes sizes(graph, std::nullopt);
  int seen = 0;
  for (const Operation& op : graph.operations) {
    if (op.role != Role::expert_in || op.phase != Phase::forward) continue;
    ++seen;
    const double tokens = op.turn == 0 ? 128 : 384;
    EXPECT_EQ(graph.value(write_of(op, Operand::output)).shape.front(), 640);
    EXPECT_DOUBLE_EQ(sizes.factor(op, false), tokens / 640 * (1 + std::sqrt(2 * std::log(4.0) / tokens)));
  }
  EXPECT_GT(seen, 0);
}

INSTANTIATE_TEST_SUITE_P(Exchanges, ExpertSizesTest, testing::Values(ExpertExchange::padded, ExpertExchange::uneven));

}  // namespace
}  // namespace weft
