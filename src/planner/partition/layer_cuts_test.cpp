#include "planner/partition/layer_cuts.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "graph/operation_part.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

class Passes : public ::testing::Test {
 protected:
  // One MoE layer; slow links, so that cuts are worth it.
  PlanRequest request_ =
      test::request(test::small_moe(2), parse_cluster("local:4,nic=2Gb/s"), {.ep = 4, .micro_batch = 8});
  StepGraph graph_ = test::build(request_);
  Cluster cluster_{request_.cluster};
  CostModel cost_{graph_, cluster_, request_.profile};

  PassChain chain(bool forward) const { return {graph_, cost_, make_id<ClassId>(0), 0, forward}; }
};

// Two resources, one part behind the other: written as a table of when each part of each operation ends.
double by_table(const PassChain& chain, std::size_t first, std::size_t last, const ChainCut& cut) {
  std::vector<double> part_free(cut.parts, 0);
  double compute = 0, exchange = 0;
  std::size_t i = first;
  while (i < last) {
    std::size_t end = i;
    while (end < last && chain.is_exchange(end) == chain.is_exchange(i)) ++end;
    double& lane = chain.is_exchange(i) ? exchange : compute;
    for (double& free : part_free) {
      for (std::size_t j = i; j < end; ++j) {
        const double start = std::max(lane, free);
        lane = free = start + chain.ns(j, cut);
      }
    }
    i = end;
  }
  double all = 0;
  for (const double free : part_free) all = std::max(all, free);
  return all;
}

TEST_F(Passes, HoldOperationsInOrderWithoutWeightGradients) {
  for (const bool forward : {true, false}) {
    const PassChain pass = chain(forward);
    int exchanges = 0;
    for (std::size_t i = 0; i < pass.size(); ++i) {
      const Operation& op = graph_.op(pass.operation(i));
      EXPECT_EQ(op.phase, forward ? Phase::forward : Phase::input_grad);
      exchanges += pass.is_exchange(i) ? 1 : 0;
      EXPECT_TRUE(i == 0 || pass.operation(i - 1) < pass.operation(i));
      EXPECT_DOUBLE_EQ(pass.ns(i, {}), static_cast<double>(cost_.alone(op).value));
    }
    EXPECT_EQ(exchanges, 2);
  }
}

// No two stretches, cut in whatever way, take less; one behind the other, with everything else whole.
TEST_F(Passes, AreCutSuchThatNoPairOfStretchesIsFaster) {
  for (const bool forward : {true, false}) {
    const PassChain pass = chain(forward);
    const PassCuts found = best_pass_cuts(pass);
    std::vector<double> whole(pass.size() + 1, 0);
    for (std::size_t i = 0; i < pass.size(); ++i) whole[i + 1] = whole[i] + pass.ns(i, {});
    struct Stretch {
      std::size_t first, last;
      double saved;
    };
    std::vector<Stretch> stretches{{0, 0, 0}};
    for (const ChainCut& cut : chain_cuts()) {
      for (std::size_t first = 0; first < pass.size(); ++first) {
        for (std::size_t last = first + 1; last <= pass.size() && pass.allows(last - 1, cut); ++last) {
          const bool alike = cut.axis == kCapacityAxis || (!pass.inside_experts(first) && !pass.inside_experts(last));
          if (!alike) continue;
          stretches.push_back({first, last, whole[last] - whole[first] - by_table(pass, first, last, cut)});
        }
      }
    }
    double least = whole.back();
    for (const Stretch& a : stretches) {
      for (const Stretch& b : stretches) {
        if (a.last <= b.first) least = std::min(least, whole.back() - a.saved - b.saved);
      }
    }
    EXPECT_LT(found.ns, whole.back());
    EXPECT_LE(found.ns, least * (1 + 1e-12));
  }
}

// The time that comes with the cuts is that of the cuts.
TEST_F(Passes, TakeWhatTheirStretchesTake) {
  const PassChain pass = chain(true);
  const PassCuts found = best_pass_cuts(pass);
  double sum = 0;
  bool dense = false;
  for (std::size_t i = 0; i < pass.size();) {
    std::size_t end = i + 1;
    const ChainCut cut = found.cuts[i];
    while (cut.parts > 1 && end < pass.size() && found.cuts[end] == cut) ++end;
    dense = dense || (cut.parts > 1 && graph_.op(pass.operation(i)).role == Role::ffn_norm);
    sum += by_table(pass, i, end, cut);
    i = end;
  }
  EXPECT_NEAR(found.ns, sum, 1e-9 * sum);
}

TEST_F(Passes, AGateThatNeedsAllTokensKeepsDenseLayersOut) {
  request_.model.experts->gate_order = GateOrder::probs;
  graph_ = test::build(request_);
  const LayerCuts cuts = best_layer_cuts(graph_, cost_, true).cuts;
  for (std::size_t i = 0; i < cuts.parts.size(); ++i) {
    if (cuts.parts[i] == 1) continue;
    EXPECT_EQ(cuts.axes[i], kCapacityAxis) << describe(graph_.operations[i]);
    EXPECT_TRUE(works_on_slots(graph_.operations[i])) << describe(graph_.operations[i]);
  }
}

TEST_F(Passes, ExpertsAloneAreCutByCapacity) {
  const LayerCuts cuts = expert_cuts(graph_, 4, true);
  std::vector<Role> roles;
  for (std::size_t i = 0; i < cuts.parts.size(); ++i) {
    if (cuts.parts[i] == 1) continue;
    EXPECT_EQ(cuts.parts[i], 4);
    EXPECT_EQ(cuts.axes[i], kCapacityAxis);
    roles.push_back(graph_.operations[i].role);
  }
  EXPECT_EQ(roles, (std::vector<Role>{Role::expert_dispatch, Role::expert_in, Role::expert_act, Role::expert_out,
                                      Role::expert_combine}));
}

}  // namespace
}  // namespace weft
