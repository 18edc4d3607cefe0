// Traffic of layers in two and three levels on ranks that are threads, some to a node, some nodes below a switch:
// tokens for experts, rows and sums of tensor parallelism, keys of context parallelism. The losses are those of one
// rank. Needs kernels.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "exec/test_training.hpp"
#include "graph/operation_part.hpp"
#include "graph/substitute.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/passes.hpp"

namespace weft {
namespace {

using test::kSteps;

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

// For twelve ranks, so that no two levels need have equally many members.
Transformer twelfths_model() {
  Transformer m = small_model();
  m.hidden = m.ffn = 24;
  m.heads = m.kv_heads = 12;
  m.head_dim = 2;
  m.vocab = 264;
  m.max_seq = 48;
  return m;
}

struct LevelCase {
  std::string name;
  Layout layout;
  std::int64_t ranks = 4, per_node = 2;
  std::int32_t parts = 1, backward_parts = 1;
  std::int32_t axis = kTokenAxis;  // of experts
  std::int64_t per_switch = 0;     // nodes; 0: no switches, and two levels
  std::int64_t samples = 16;       // of a step
  std::int64_t part = 0;           // ranks of a part of a node; 0: nodes have no parts
  Nesting nesting = {};            // empty: the groups' own levels
  bool has_three_levels() const { return nesting.empty() ? per_switch > 0 : nesting.size() > 1; }
};

LevelCase below_switches(LevelCase c, std::int64_t nodes_each) {
  c.per_switch = nodes_each;
  return c;
}

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
  layout.seq = model.max_seq / 2;
  layout.micro_batch = model.experts ? 1 : 2;  // every gate sees the tokens of one sample in every layout
  if (layout.etp == 1) layout.etp = layout.tp;
  const std::int64_t replicas = c.ranks / (layout.tp * layout.cp * layout.pp);
  ClusterSpec cluster = test::cluster_in_nodes(c.ranks, c.per_node);
  if (c.per_switch > 0) cluster = test::below_switches(cluster, c.per_switch, {62.5e6});
  if (c.part > 0) cluster = test::with_parts(cluster, c.part);
  return test::request(model, cluster, layout, c.samples / (layout.micro_batch * replicas));
}

// In levels, with everything beside compute that may run there.
std::vector<double> losses_in_levels(const Transformer& model, const LevelCase& c) {
  const PlanRequest request = request_of(model, c);
  const SharedGraph original = test::build(request);
  Overlap overlap = decide_overlap(request, original, "priority");
  overlap.partition.substitutions = layer_traffic_in_levels(original, c.nesting);
  if (c.parts > 1 || c.backward_parts > 1) overlap.partition.layers = cuts_of(original, c);
  overlap.beside.tensor_parallel = overlap.beside.expert_parallel = true;
  overlap.order.parts_in_turn = true;
  const WholePlan made = overlapped_plan(request, original, "weft", overlap);
  const std::optional<Violation> violation = verify_plan(made);
  EXPECT_FALSE(violation.has_value()) << violation->message;
  int legs = 0, parts = 0;
  for (const Operation& op : made.plan().graph.operations) {
    if (op.rule == Substitution::none) continue;
    EXPECT_EQ(has_three_levels(rule_of(op.rule)), c.has_three_levels()) << describe(op);
    ++legs;
    parts += is_part(op) ? 1 : 0;
  }
  EXPECT_GT(legs, 0);
  EXPECT_EQ(parts > 0, c.parts > 1 || c.backward_parts > 1);
  return losses_of(made);
}

void expect_losses_of_one_rank(const Transformer& model, const std::vector<LevelCase>& cases) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  LevelCase one_rank{"one rank", {}, 1, 1};
  one_rank.samples = cases.front().samples;
  const PlanRequest alone = request_of(model, one_rank);
  const std::vector<double> expected = losses_of(make_whole_plan(alone, test::build(alone), "serial"));
  ASSERT_LT(expected.back(), expected.front());
  for (const LevelCase& c : cases) {
    SCOPED_TRACE(
        fmt::format("{}, {} ranks, {} a part, {} a node, {} nodes a switch, levels meet at [{}], in {} and {} "
                    "parts along axis {}",
                    c.name, c.ranks, c.part, c.per_node, c.per_switch, fmt::join(c.nesting, ", "), c.parts,
                    c.backward_parts, c.axis));
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

// Eight ranks: two to a node, two nodes to a switch, two switches.
TEST(LayerTrafficInThreeLevels, OfExpertsTrainsWhatOneRankTrains) {
  const Layout ep8{.ep = 8};
  std::vector<LevelCase> cases;
  for (const LevelCase& c :
       std::vector<LevelCase>{{"padded", ep8, 8},
                              {"by capacity", ep8, 8, 2, 2, 2, kCapacityAxis},
                              {"by tokens", ep8, 8, 2, 2, 4},
                              {"by tokens, backward whole", ep8, 8, 2, 4, 1},
                              {"uneven", {.ep = 8, .expert_exchange = ExpertExchange::uneven}, 8},
                              {"uneven, all computed again",
                               {.ep = 8, .expert_exchange = ExpertExchange::uneven, .recompute = Recompute::full},
                               8}}) {
    cases.push_back(below_switches(c, 2));
  }
  expect_losses_of_one_rank(experts_model(), cases);
}

TEST(LayerTrafficInThreeLevels, OfExpertsOverLevelsOfDifferentSizesTrainsWhatOneRankTrains) {
  Transformer model = experts_model();
  model.experts->count = 24;
  std::vector<LevelCase> cases;
  for (const ExpertExchange exchange : {ExpertExchange::padded, ExpertExchange::uneven}) {
    for (const auto& [per_node, per_switch] : {std::pair(2, 3), {3, 2}, {2, 2}}) {
      LevelCase c{"experts", {.ep = 12, .expert_exchange = exchange}, 12, per_node};
      c.per_switch = per_switch;
      c.samples = 24;
      cases.push_back(c);
    }
  }
  expect_losses_of_one_rank(model, cases);
}

TEST(LayerTrafficInThreeLevels, OfTensorAndContextParallelismTrainsWhatOneRankTrains) {
  std::vector<LevelCase> cases;
  for (const auto& [per_node, per_switch] : {std::pair(2, 3), {3, 2}}) {
    for (const LevelCase& c :
         std::vector<LevelCase>{{"sums", {.tp = 12}, 12, per_node, 2, 4},
                                {"rows", {.tp = 12, .sequence_parallel = true}, 12, per_node, 1, 2},
                                {"keys", {.cp = 12}, 12, per_node}}) {
      cases.push_back(below_switches(c, per_switch));
    }
  }
  cases.push_back(below_switches(
      {"rows, computed again", {.tp = 12, .sequence_parallel = true, .recompute = Recompute::full}, 12, 2, 4, 2}, 3));
  cases.push_back(below_switches({"keys, zero 3", {.cp = 12, .zero = 3}, 12}, 3));
  expect_losses_of_one_rank(twelfths_model(), cases);
}

// Pairs or threes of devices in nodes: in two levels between them and everything else, in two at the nodes, and in
// three. The groups of the last cases lie in one node.
TEST(LayerTrafficInParts, OfTensorAndContextParallelismTrainsWhatOneRankTrains) {
  std::vector<LevelCase> cases;
  const auto add = [&](LevelCase c, std::int64_t part, const Nesting& nesting) {
    c.part = part;
    c.nesting = nesting;
    cases.push_back(std::move(c));
  };
  const LevelCase rows{"rows", {.tp = 12, .sequence_parallel = true}, 12, 6, 1, 2};
  add({"sums", {.tp = 12}, 12, 6, 2, 2}, 2, {0, 1});
  add({"sums", {.tp = 12}, 12, 6}, 3, {0});
  add(rows, 3, {0, 1});
  add(rows, 2, {1});
  add({"keys", {.cp = 12}, 12, 6}, 3, {0, 1});
  add({"sums", {.tp = 4}, 4, 4}, 2, {});
  add({"keys", {.cp = 4}, 4, 4}, 2, {});
  expect_losses_of_one_rank(twelfths_model(), cases);
}

TEST(LayerTrafficInParts, OfExpertsTrainsWhatOneRankTrains) {
  std::vector<LevelCase> cases;
  for (const ExpertExchange exchange : {ExpertExchange::padded, ExpertExchange::uneven}) {
    for (const Nesting& nesting : std::vector<Nesting>{{0}, {1}, {0, 1}}) {
      LevelCase c{"experts", {.ep = 8, .expert_exchange = exchange}, 8, 4};
      c.part = 2;
      c.nesting = nesting;
      cases.push_back(c);
    }
  }
  expect_losses_of_one_rank(experts_model(), cases);
}

// Pairs, nodes of two pairs, two nodes below each of two switches: every two borders.
TEST(LayerTrafficInParts, OfExpertsBelowSwitchesTrainsWhatOneRankTrains) {
  Transformer model = experts_model();
  model.experts->count = 16;
  std::vector<LevelCase> cases;
  for (const Nesting& nesting : std::vector<Nesting>{{2}, {0, 1}, {0, 2}, {1, 2}}) {
    LevelCase c{"experts", {.ep = 16, .expert_exchange = ExpertExchange::uneven}, 16, 4};
    c.per_switch = 2;
    c.part = 2;
    c.nesting = nesting;
    cases.push_back(c);
  }
  expect_losses_of_one_rank(model, cases);
}

}  // namespace
}  // namespace weft
