#include "planner/partition/units.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "planner/test_plans.hpp"

namespace weft {
namespace {

// Experts in every second layer: their parameters travel in a group of their own.
TEST(OneBucketPerLayer, HoldsEachLayersParametersOfEachGroupOnce) {
  const StepGraph graph =
      test::build(test::request(test::small_moe(4), parse_cluster("local:8"), {.ep = 2, .zero = 1, .clip_grad = 1}));
  const StepGraph merged = merge_operations(graph, one_bucket_per_layer(graph));
  std::map<std::tuple<Role, GroupKind, std::int32_t>, int> buckets;  // role, group, layer
  int updates = 0;
  for (const Operation& op : merged.operations) {
    if (op.role == Role::update) ++updates;
    if (op.role == Role::grad_reduce || op.role == Role::param_gather)
      ++buckets[{op.role, op.communication->group, op.layer}];
  }
  EXPECT_EQ(updates, 1);
  for (const Role role : {Role::grad_reduce, Role::param_gather}) {
    EXPECT_EQ((buckets[{role, GroupKind::dp, -1}]), 2);  // embedding; head and last norm
    for (const std::int32_t layer : {0, 1, 2, 3}) {
      EXPECT_EQ((buckets[{role, GroupKind::dp, layer}]), 1) << layer;
      EXPECT_EQ((buckets[{role, GroupKind::edp, layer}]), layer % 2) << layer;
    }
  }
}

// Every member of a set is of one layer; the embedding and the head are never in one.
TEST(OneBucketPerLayer, NeverJoinsTwoLayers) {
  for (const auto& [name, base] : test::layouts()) {
    for (int zero = 0; zero <= 3; ++zero) {
      Layout layout = base;
      layout.zero = zero;
      SCOPED_TRACE(name);
      const StepGraph graph = test::build(test::request(test::small_moe(), parse_cluster("dgx-a100:2"), layout));
      std::set<OpId> seen;
      for (const MergeSet& set : one_bucket_per_layer(graph)) {
        const auto unit = [&](OpId id) {
          const Operation& op = graph.op(id);
          const bool head = op.subject == Role::head || op.subject == Role::final_norm;
          return std::tuple(op.chunk, op.layer, op.layer < 0 && head);
        };
        for (const OpId id : set.members) {
          EXPECT_TRUE(seen.insert(id).second);
          if (graph.op(id).is_transfer()) {
            EXPECT_EQ(unit(id), unit(set.members.front())) << describe(graph.op(id));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft
