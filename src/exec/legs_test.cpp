// Transfers in legs on ranks that are threads, two to a node: the losses are those of whole transfers. Needs kernels.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "exec/test_training.hpp"
#include "graph/substitute.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/overlap.hpp"

namespace weft {
namespace {

using test::kGlobalBatch, test::kSteps;

constexpr Bandwidth kHalfAGigabit{62.5e6};

struct RunInLegs {
  std::string policy;
  int zero = 0;
  std::int64_t nodes = 2;
  std::vector<Substitution> wanted;
  std::int32_t parts = 1;
  std::int64_t zero_shards = 0;
  bool switches = false;  // two nodes below each
  std::int64_t per_node = 2;
  Nesting nesting = {};  // of pairs in nodes, where it is not empty
};

struct Trained {
  std::vector<double> losses;
  int legs = 0;  // operations of the plan
};

Trained train(const RunInLegs& c) {
  Layout layout;
  layout.zero = c.zero;
  layout.zero_shards = c.zero_shards;
  layout.clip_grad = c.zero == 1 ? 1 : 0;
  layout.precision = layout.grad_dtype = ElementType::fp32;
  layout.dropout = false;
  layout.seq = 8;
  const std::int64_t ranks = c.nodes * c.per_node;
  ClusterSpec cluster = test::cluster_in_nodes(ranks, c.per_node);
  if (c.switches) cluster = test::below_switches(cluster, 2, kHalfAGigabit);
  if (!c.nesting.empty()) cluster = test::with_parts(cluster, 2);
  PlanRequest request = test::request(test::tiny_gpt(), cluster, layout, kGlobalBatch / ranks);
  request.options.bucket_mib = 0.01;
  request.options.bucket_parameters = c.parts > 1 ? 1 : 2000;
  const SharedGraph original = test::build(request);
  Overlap overlap = decide_overlap(request, original, c.policy);
  overlap.partition.substitutions = first_possible(original, c.wanted, c.nesting);
  if (c.parts > 1) {
    overlap.partition.parts.clear();
    for (const Operation& op : original->operations)
      overlap.partition.parts.push_back(op.per_micro_batch ? 1 : c.parts);
  }
  const WholePlan made = make_whole_plan(request, original, c.policy, overlap);
  const std::optional<Violation> violation = verify_plan(made);
  EXPECT_FALSE(violation.has_value()) << violation->message;
  TrainSettings settings;
  settings.steps = kSteps;
  const TrainJob job{made, settings, Corpus::generate(3, 4096), 1, true};
  Trained result;
  for (const Operation& op : made.plan().graph.operations) result.legs += op.rule != Substitution::none ? 1 : 0;
  const Cluster paced(request.cluster);
  local_ranks::on_ranks({.ranks = paced.device_count(), .cluster = &paced}, {}, [&](Communicator& communicator) {
    const TrainResult own = train_rank(job, communicator, *make_kernels());
    if (communicator.rank() == 0) result.losses = own.losses;
  });
  return result;
}

const std::vector<Substitution> kInLevels{Substitution::all_reduce_in_levels, Substitution::reduce_scatter_in_levels,
                                          Substitution::all_gather_in_levels};
const std::vector<Substitution> kInHalves{Substitution::all_reduce_in_halves};

TEST(TransfersInLegs, TrainWhatWholeOnesTrain) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  for (const std::int64_t nodes : {2, 3}) {
    const Trained whole = train({.policy = "serial", .zero = 0, .nodes = nodes, .wanted = {}});
    ASSERT_EQ(std::ssize(whole.losses), kSteps);
    ASSERT_EQ(whole.legs, 0);
    for (const RunInLegs& c : std::vector<RunInLegs>{
             {"serial", 0, nodes, kInHalves},
             {"ddp", 0, nodes, kInHalves, 3},
             {"ddp", 0, nodes, kInLevels},
             {"priority", 0, nodes, kInLevels},
             {"megatron-param", 0, nodes, kInLevels, 3},
             {"megatron-param", 1, nodes, kInLevels},
             {"megatron-param", 1, nodes, kInLevels, 2},
             {"priority", 1, nodes, kInLevels},
             {"serial", 2, nodes, kInLevels},
             {"fsdp", 2, nodes, kInLevels},
             {"fsdp", 3, nodes, kInLevels},
         }) {
      SCOPED_TRACE(fmt::format("{} nodes, {} zero {}, {} in {} parts", nodes, c.policy, c.zero,
                               name_of(c.wanted.front()), c.parts));
      const Trained legs = train(c);
      EXPECT_GT(legs.legs, 0);
      // Clipped gradients (ZeRO-1 here) are another training.
      const Trained expected =
          c.zero == 1 ? train({.policy = "serial", .zero = 1, .nodes = nodes, .wanted = {}}) : whole;
      ASSERT_EQ(legs.losses.size(), expected.losses.size());
      for (std::size_t step = 0; step < legs.losses.size(); ++step) {
        EXPECT_NEAR(legs.losses[step] / expected.losses[step], 1, 1e-6) << "step " << step;
      }
    }
  }
}

// Twelve ranks on six nodes, shards in sets of four: a set has a level inside its two nodes and one between them.
TEST(TransfersInLegs, OfShardGroupsTrainWhatWholeOnesTrain) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  for (const RunInLegs& c : std::vector<RunInLegs>{{"megatron-param", 1, 6, kInLevels, 1, 4},
                                                   {"priority", 1, 6, kInLevels, 2, 4},
                                                   {"fsdp", 2, 6, kInLevels, 1, 4},
                                                   {"fsdp", 3, 6, kInLevels, 1, 4}}) {
    SCOPED_TRACE(fmt::format("{} zero {} in {} parts", c.policy, c.zero, c.parts));
    const Trained legs = train(c), whole = train({.policy = "serial", .zero = c.zero, .nodes = 6, .wanted = {}});
    EXPECT_GT(legs.legs, 0);
    ASSERT_EQ(legs.losses.size(), whole.losses.size());
    for (std::size_t step = 0; step < legs.losses.size(); ++step) {
      EXPECT_NEAR(legs.losses[step] / whole.losses[step], 1, 1e-6) << "step " << step;
    }
  }
}

// Eight ranks, two to a node, two nodes below a switch: the losses are those of whole transfers.
TEST(TransfersInLegs, OfThreeLevelsTrainWhatWholeOnesTrain) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const std::vector<Substitution> three{Substitution::all_reduce_in_three_levels,
                                        Substitution::reduce_scatter_in_three_levels,
                                        Substitution::all_gather_in_three_levels};
  for (RunInLegs c : std::vector<RunInLegs>{{"ddp", 0, 4, three},
                                            {"megatron-param", 0, 4, three, 3},
                                            {"megatron-param", 1, 4, three},
                                            {"priority", 1, 4, three, 2},
                                            {"serial", 2, 4, three},
                                            {"fsdp", 2, 4, three},
                                            {"fsdp", 3, 4, three}}) {
    SCOPED_TRACE(fmt::format("{} zero {} in {} parts", c.policy, c.zero, c.parts));
    c.switches = true;
    const Trained legs = train(c);
    const Trained whole =
        train({.policy = "serial", .zero = c.zero == 1 ? 1 : 0, .nodes = 4, .wanted = {}, .switches = true});
    EXPECT_GT(legs.legs, 0);
    ASSERT_EQ(legs.losses.size(), whole.losses.size());
    for (std::size_t step = 0; step < legs.losses.size(); ++step) {
      EXPECT_NEAR(legs.losses[step] / whole.losses[step], 1, 1e-6) << "step " << step;
    }
  }
}

// Twelve ranks in two nodes of three pairs: levels meet at the pairs, at the nodes, and at both.
TEST(TransfersInLegs, OfPairsTrainWhatWholeOnesTrain) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const std::vector<Substitution> three{Substitution::all_reduce_in_three_levels,
                                        Substitution::reduce_scatter_in_three_levels,
                                        Substitution::all_gather_in_three_levels};
  for (const Nesting& nesting : std::vector<Nesting>{{0}, {1}, {0, 1}}) {
    for (RunInLegs c : std::vector<RunInLegs>{{"ddp", 0, 2, nesting.size() > 1 ? three : kInLevels},
                                              {"megatron-param", 1, 2, nesting.size() > 1 ? three : kInLevels, 2},
                                              {"fsdp", 3, 2, nesting.size() > 1 ? three : kInLevels}}) {
      SCOPED_TRACE(fmt::format("{} zero {}, levels meet at [{}]", c.policy, c.zero, fmt::join(nesting, ", ")));
      c.per_node = 6;
      c.nesting = nesting;
      const Trained legs = train(c);
      const Trained whole = train({.policy = "serial",
                                   .zero = c.zero == 1 ? 1 : 0,
                                   .nodes = 2,
                                   .wanted = {},
                                   .per_node = 6,
                                   .nesting = nesting});
      EXPECT_GT(legs.legs, 0);
      ASSERT_EQ(legs.losses.size(), whole.losses.size());
      for (std::size_t step = 0; step < legs.losses.size(); ++step) {
        EXPECT_NEAR(legs.losses[step] / whole.losses[step], 1, 1e-6) << "step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace weft
