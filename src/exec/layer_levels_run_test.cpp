// Traffic of layers in two levels on ranks that are threads, some to a node: tokens for experts, rows and sums of
// tensor parallelism, keys of context parallelism. The losses are those of one rank. Needs kernels.
#include <gtest/gtest.h>

#include "exec/test_training.hpp"
#include "graph/operation_part.hpp"
#include "graph/substitute.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/passes.hpp"

namespace weft {
namespace {

using test::kSteps;

constexpr std::int64_t kSamples = 16;  // of a step

Transformer small_model() {
  Transformer m = test::small_gpt(2);
  m.hidden = 16;
  m.heads = m.kv_heads = 4;
  m.head_dim = 4;
  m.ffn = 24;
  m.vocab = 256;
  m.max_seq = 16;
  return m;
}

// Tokens are dropped, and parts of tokens know of which.
Transformer experts_model() {
  Transformer m = small_model();
  m.experts = Experts{.count = 8,
                      .top_k = 2,
                      .ffn = 12,
                      .capacity_factor = 1,
                      .every = 2,
                      .gate_order = GateOrder::position,
                      .aux_loss_coeff = 0.02};
  return m;
}

struct LevelCase {
  std::string name;
  Layout layout;
  std::int64_t ranks = 4, per_node = 2;
  std::int32_t parts = 1, backward_parts = 1;
  std::int32_t axis = kTokenAxis;  // of experts
};

// All operations of layers that may be cut so.
LayerCuts cuts_of(const StepGraph& graph, const LevelCase& c) {
  LayerCuts cuts = no_cuts(graph);
  for (std::size_t i = 0; i < graph.operations.size(); ++i) {
    const Operation& op = graph.operations[i];
    const std::int32_t parts = op.phase == Phase::input_grad ? c.backward_parts : c.parts;
    if (!op.per_micro_batch || !may_be_cut_into(graph, op, parts, c.axis)) continue;
    cuts.parts[i] = parts;
    cuts.axes[i] = c.axis;
  }
  return cuts;
}

std::vector<double> losses_of(const WholePlan& made) {
  TrainSettings settings;
  settings.steps = kSteps;
  const TrainJob job{made, settings, Corpus::generate(3, 4096), 1, true};
  std::vector<double> losses;
  const Cluster paced(made.plan().cluster);
  local_ranks::on_ranks({.ranks = paced.device_count(), .cluster = &paced}, {}, [&](Communicator& communicator) {
    const TrainResult own = train_rank(job, communicator, *make_kernels());
    if (communicator.rank() == 0) losses = own.losses;
  });
  return losses;
}

PlanRequest request_of(const Transformer& model, const LevelCase& c) {
  Layout layout = c.layout;
  layout.precision = layout.grad_dtype = ElementType::fp32;
  layout.dropout = false;
  layout.seq = 8;
  layout.micro_batch = model.experts ? 1 : 2;  // every gate sees the tokens of one sample in every layout
  if (layout.etp == 1) layout.etp = layout.tp;
  const std::int64_t replicas = c.ranks / (layout.tp * layout.cp * layout.pp);
  return test::request(model, test::cluster_in_nodes(c.ranks, c.per_node), layout,
                       kSamples / (layout.micro_batch * replicas));
}

// In levels, with everything beside compute that may run there.
std::vector<double> losses_in_levels(const Transformer& model, const LevelCase& c) {
  const PlanRequest request = request_of(model, c);
  const SharedGraph original = test::build(request);
  Overlap overlap = decide_overlap(request, original, "priority");
  overlap.partition.substitutions = layer_traffic_in_levels(original);
  if (c.parts > 1 || c.backward_parts > 1) overlap.partition.layers = cuts_of(original, c);
  overlap.beside.tensor_parallel = overlap.beside.expert_parallel = true;
  overlap.order.parts_in_turn = true;
  const WholePlan made = overlapped_plan(request, original, "weft", overlap);
  const std::optional<Violation> violation = verify_plan(made);
  EXPECT_FALSE(violation.has_value()) << violation->message;
  int legs = 0, parts = 0;
  for (const Operation& op : made.plan().graph.operations) {
    legs += op.rule != Substitution::none ? 1 : 0;
    parts += op.rule != Substitution::none && is_part(op) ? 1 : 0;
  }
  EXPECT_GT(legs, 0);
  EXPECT_EQ(parts > 0, c.parts > 1 || c.backward_parts > 1);
  return losses_of(made);
}

void expect_losses_of_one_rank(const Transformer& model, const std::vector<LevelCase>& cases) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const PlanRequest alone = request_of(model, {"one rank", {}, 1, 1});
  const std::vector<double> expected = losses_of(make_whole_plan(alone, test::build(alone), "serial"));
  ASSERT_LT(expected.back(), expected.front());
  for (const LevelCase& c : cases) {
    SCOPED_TRACE(fmt::format("{}, {} ranks, {} a node, in {} and {} parts along axis {}", c.name, c.ranks, c.per_node,
                             c.parts, c.backward_parts, c.axis));
    const std::vector<double> losses = losses_in_levels(model, c);
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t step = 0; step < losses.size(); ++step) {
      EXPECT_NEAR(losses[step] / expected[step], 1, 1e-5) << "step " << step;
    }
  }
}

TEST(LayerTrafficInLevels, OfExpertsTrainsWhatOneRankTrains) {
  const Layout ep4{.ep = 4}, uneven{.ep = 4, .expert_exchange = ExpertExchange::uneven};
  expect_losses_of_one_rank(experts_model(),
                            {{"padded", ep4},
                             {"padded", {.ep = 8}, 8, 4},
                             {"padded, four nodes", {.ep = 8}, 8, 2},
                             {"by capacity", ep4, 4, 2, 2, 2, kCapacityAxis},
                             {"by tokens", ep4, 4, 2, 2, 4},
                             {"by tokens, backward whole", ep4, 4, 2, 4, 1},
                             {"by tokens, more nodes", {.ep = 8}, 8, 2, 2, 2},
                             {"uneven", uneven},
                             {"uneven, all computed again",
                              {.ep = 4, .expert_exchange = ExpertExchange::uneven, .recompute = Recompute::full}},
                             {"by tokens, zero 2", {.ep = 4, .zero = 2}, 4, 2, 2, 2}});
}

TEST(LayerTrafficInLevels, OfTensorParallelismTrainsWhatOneRankTrains) {
  expect_losses_of_one_rank(
      small_model(),
      {{"sums", {.tp = 4}},
       {"sums", {.tp = 4}, 4, 2, 2, 4},
       {"rows", {.tp = 4, .sequence_parallel = true}},
       {"rows", {.tp = 4, .sequence_parallel = true}, 4, 2, 2, 4},
       {"rows, computed again", {.tp = 4, .sequence_parallel = true, .recompute = Recompute::full}, 4, 2, 4, 2}});
}

TEST(LayerTrafficInLevels, OfContextParallelismTrainsWhatOneRankTrains) {
  expect_losses_of_one_rank(small_model(), {{"keys", {.cp = 4}}, {"keys, zero 3", {.cp = 4, .zero = 3}}});
}

}  // namespace
}  // namespace weft
