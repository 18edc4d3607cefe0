#include "calibrate/library_times.hpp"

#include <gtest/gtest.h>

#include "cluster/presets.hpp"
#include "graph/step_graph.hpp"
#include "model/presets.hpp"

namespace weft {
namespace {

// Groups of two are tensor parallel and data parallel: one of them is timed, the same on all ranks, for each
// collective. All four meet for the norm.
TEST(GroupsToTime, AreTheSameOnAllRanks) {
  Layout layout;
  layout.tp = layout.dp = layout.global_batch = 2;
  layout.seq = 2048;
  layout.zero = 1;
  layout.clip_grad = 1;
  const StepGraph graph = build_step_graph(model_preset("megatron-1.7b"), Cluster(parse_cluster("local:4")), layout);
  const auto groups = groups_to_time(graph);
  EXPECT_EQ(groups.at({Collective::all_reduce, 2}), GroupKind::tp);
  EXPECT_EQ(groups.at({Collective::reduce_scatter, 2}), GroupKind::tp);
  EXPECT_EQ(groups.at({Collective::all_gather, 2}), GroupKind::tp);
  EXPECT_EQ(groups.at({Collective::all_reduce, 4}), GroupKind::norm);
  EXPECT_FALSE(groups.contains({Collective::all_to_all, 2}));
}

}  // namespace
}  // namespace weft
