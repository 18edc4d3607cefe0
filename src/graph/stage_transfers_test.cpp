// What crosses pipeline stages and rank classes: activations, tied embeddings, the gradient norm.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "graph/test_graphs.hpp"

namespace weft {
namespace {

using test::build;
using test::with_layers;

std::vector<Operation> of_role(const StepGraph& graph, Role role) {
  std::vector<Operation> found;
  for (const Operation& op : graph.operations) {
    if (op.role == role) found.push_back(op);
  }
  return found;
}

std::int64_t sends(const StepGraph& graph, Phase phase) {
  return std::count_if(graph.operations.begin(), graph.operations.end(), [&](const Operation& op) {
    return op.is_transfer() && op.communication->collective == Collective::send_recv && op.communication->sends &&
           op.phase == phase;
  });
}

TEST(Pipeline, OneMessagePerBoundaryDirectionAndMicroBatch) {
  const Transformer model = with_layers("megatron-1.7b", 8);
  for (const auto& [layout, boundaries] :
       {std::pair{Layout{.pp = 4}, 3},
        std::pair{Layout{.pp = 2, .vpp = 4, .schedule = PipelineSchedule::interleaved}, 7},
        std::pair{Layout{.pp = 8, .schedule = PipelineSchedule::gpipe}, 7}}) {
    const StepGraph graph = build(model, "dgx-a100:1", layout, 8);
    EXPECT_EQ(sends(graph, Phase::forward), boundaries);
    EXPECT_EQ(sends(graph, Phase::input_grad), boundaries);
    for (const Operation& op : graph.operations) {
      const bool message = op.role == Role::stage_input || op.role == Role::stage_output;
      EXPECT_TRUE(!message || op.per_micro_batch) << describe(op);
    }
  }
}

TEST(Pipeline, MessagesCarryOneRanksShareOfTheHiddenState) {
  const Transformer model = with_layers("megatron-1.7b", 8);
  const auto bytes = [&](Layout layout) {
    layout.pp = 2;
    layout.micro_batch = 2;
    layout.seq = 512;
    return of_role(build(model, "dgx-a100:1", layout), Role::stage_output).front().communication->bytes.value;
  };
  const std::int64_t whole = 2 * 512 * 2304 * 2;
  EXPECT_EQ(bytes({}), whole);
  EXPECT_EQ(bytes({.tp = 2}), whole / 2);  // ranks that hold the same send one half each
  EXPECT_EQ(bytes({.tp = 2, .sequence_parallel = true}), whole / 2);
  EXPECT_EQ(bytes({.cp = 2}), whole / 2);
  EXPECT_EQ(bytes({.tp = 2, .cp = 2, .sequence_parallel = true}), whole / 4);
}

TEST(Pipeline, SlicesAreGatheredBeforeTheyAreUsed) {
  const Transformer model = with_layers("megatron-1.7b", 8);
  const StepGraph graph = build(model, "dgx-a100:1", {.tp = 2, .pp = 2, .seq = 512});
  const std::int64_t whole = 512 * 2304 * 2;
  const std::vector<Operation> gathers = of_role(graph, Role::stage_gather);
  ASSERT_EQ(gathers.size(), 2u);  // activations forward, gradients back
  for (const Operation& gather : gathers) {
    EXPECT_EQ(gather.communication->collective, Collective::all_gather);
    EXPECT_EQ(gather.communication->bytes.value, whole);
    EXPECT_EQ(graph.value(gather.reads.front().value).bytes().value, whole / 2);
    EXPECT_TRUE(graph.value(gather.writes.front().value).sharding.splits.empty());
  }
  EXPECT_TRUE(
      of_role(build(model, "dgx-a100:1", {.tp = 2, .pp = 2, .seq = 512, .sequence_parallel = true}), Role::stage_gather)
          .empty());
}

// Tensor-parallel ranks of a stage are of two classes here, because some of their pipelines cross to another node.
TEST(Pipeline, GathersOfTwoChunksAreTransfersOfTheirOwn) {
  for (const PipelineSchedule schedule : {PipelineSchedule::zbv, PipelineSchedule::interleaved}) {
    const StepGraph graph = build(with_layers("megatron-1.7b", 12), "p4de:3",
                                  {.tp = 2,
                                   .dp = 4,
                                   .pp = 3,
                                   .vpp = 2,
                                   .seq = 512,
                                   .schedule = schedule,
                                   .mesh_order = {Axis::pp, Axis::tp, Axis::cp, Axis::dp}},
                                  12);
    std::set<std::pair<ClassId, std::int32_t>> seen;
    std::int64_t shared = 0;
    for (const Operation& op : graph.operations) {
      if (!op.is_transfer() || op.communication->transfer < 0) continue;
      shared += op.role == Role::stage_gather ? 1 : 0;
      EXPECT_TRUE(seen.emplace(op.rank_class, op.communication->transfer).second) << describe(op);
    }
    EXPECT_GT(shared, 0);
  }
}

TEST(Pipeline, StagesHoldTheLayersTheyWereGiven) {
  const StepGraph graph = build(with_layers("llama2-7b", 8), "local:4", {.pp = 4, .stage_layers = {1, 4, 2, 1}});
  std::map<std::int64_t, std::set<std::int32_t>> layers;
  for (const Operation& op : graph.operations) {
    if (op.layer >= 0) layers[graph.classes[op.rank_class.index()].stage].insert(op.layer);
  }
  EXPECT_EQ(layers[0], (std::set<std::int32_t>{0}));
  EXPECT_EQ(layers[1], (std::set<std::int32_t>{1, 2, 3, 4}));
  EXPECT_EQ(layers[2], (std::set<std::int32_t>{5, 6}));
  EXPECT_EQ(layers[3], (std::set<std::int32_t>{7}));
}

TEST(Pipeline, InterleavedStagesHoldEveryPthChunk) {
  // Narayanan et al. 2021, figure 4: with 2 stages and 2 chunks each, stage 0 has layers 0-1 and 4-5.
  const StepGraph graph =
      build(with_layers("llama2-7b", 8), "local:2", {.pp = 2, .vpp = 2, .schedule = PipelineSchedule::interleaved});
  std::map<std::pair<std::int64_t, std::int32_t>, std::set<std::int32_t>> layers;
  for (const Operation& op : graph.operations) {
    if (op.layer >= 0) layers[{graph.classes[op.rank_class.index()].stage, op.chunk}].insert(op.layer);
  }
  EXPECT_EQ((layers[{0, 0}]), (std::set<std::int32_t>{0, 1}));
  EXPECT_EQ((layers[{1, 0}]), (std::set<std::int32_t>{2, 3}));
  EXPECT_EQ((layers[{0, 1}]), (std::set<std::int32_t>{4, 5}));
  EXPECT_EQ((layers[{1, 1}]), (std::set<std::int32_t>{6, 7}));
}

TEST(TiedEmbeddings, OneAllReduceBetweenFirstAndLastStage) {
  Transformer model = with_layers("megatron-1.7b", 8);
  const StepGraph graph = build(model, "dgx-a100:1", {.tp = 2, .pp = 4});
  const auto reductions = of_role(graph, Role::tied_reduce);
  ASSERT_EQ(reductions.size(), 2U);
  EXPECT_EQ(reductions[0].communication->transfer, reductions[1].communication->transfer);
  std::set<std::int64_t> stages;
  for (const Operation& op : reductions) {
    stages.insert(graph.classes[op.rank_class.index()].stage);
    EXPECT_FALSE(op.per_micro_batch);
    EXPECT_EQ(op.communication->bytes.value, 4 * 51200 / 2 * 2304);
  }
  EXPECT_EQ(stages, (std::set<std::int64_t>{0, 3}));
  EXPECT_TRUE(of_role(build(model, "dgx-a100:1", {.tp = 2}), Role::tied_reduce).empty());
  model.tied_embeddings = false;
  EXPECT_TRUE(of_role(build(model, "dgx-a100:1", {.tp = 2, .pp = 4}), Role::tied_reduce).empty());
}

TEST(Clipping, AddsOneAllReduceOverAllThatHoldDifferentParameters) {
  const Transformer model = with_layers("llama2-7b", 8);
  const StepGraph graph = build(model, "dgx-a100:1", {.tp = 2, .pp = 2, .clip_grad = 1});
  const auto reductions = of_role(graph, Role::norm_reduce);
  ASSERT_EQ(reductions.size(), 2U);  // one in each class, together one transfer of 2 * 2 ranks
  EXPECT_EQ(reductions[0].communication->transfer, reductions[1].communication->transfer);
  EXPECT_EQ(graph.classes[0].group(GroupKind::norm).view.size, 4);
  EXPECT_TRUE(of_role(build(model, "dgx-a100:1", {.tp = 2, .pp = 2}), Role::norm_reduce).empty());
  // Data-parallel ranks hold the same gradients, so plain data parallelism needs none; ZeRO shards them.
  EXPECT_TRUE(of_role(build(model, "dgx-a100:1", {.clip_grad = 1}), Role::norm_reduce).empty());
  const StepGraph sharded = build(model, "dgx-a100:1", {.zero = 1, .clip_grad = 1});
  EXPECT_EQ(of_role(sharded, Role::norm_reduce).size(), 1U);
  EXPECT_EQ(sharded.classes[0].group(GroupKind::norm).view.size, 8);
}

TEST(Clipping, SpansRanksWithDifferentExperts) {
  const Transformer model = with_layers("mixtral-8x7b", 4);
  for (const Layout& layout : {Layout{.ep = 4, .clip_grad = 1}, Layout{.etp = 2, .clip_grad = 1}}) {
    const StepGraph graph = build(model, "dgx-a100:1", layout);
    EXPECT_EQ(of_role(graph, Role::norm_reduce).size(), 1U);
    EXPECT_EQ(graph.classes[0].group(GroupKind::norm).view.size, 8);
  }
}

// With weights of 16 bits the master copy lies in the optimizer's state, so an update reads one value fewer; it clips
// all the same.
TEST(Clipping, IsInEveryUpdateWhateverThePrecision) {
  for (const ElementType precision : {ElementType::fp32, ElementType::bf16}) {
    const StepGraph graph = build(with_layers("llama2-7b", 2), "dgx-a100:1", {.precision = precision, .clip_grad = 1});
    const ValueId norm = write_of(of_role(graph, Role::grad_norm).front(), Operand::square_sum);
    for (const Operation& op : of_role(graph, Role::update)) {
      EXPECT_EQ(find_read(op, Operand::square_sum), norm) << describe(op);
      EXPECT_EQ(find_read(op, Operand::weight).valid(), precision == ElementType::fp32) << describe(op);
    }
  }
}

TEST(Clipping, MakesEveryUpdateWaitForEveryGradient) {
  const StepGraph graph = build(with_layers("llama2-7b", 4), "dgx-a100:1", {.zero = 1, .clip_grad = 1});
  const Operation norm = of_role(graph, Role::norm_reduce).front(), sum = of_role(graph, Role::grad_norm).front();
  std::set<ValueId> normed, updated;
  for (const Read& read : sum.reads) normed.insert(read.value);
  for (const Operation& op : of_role(graph, Role::update)) {
    EXPECT_EQ(find_read(op, Operand::square_sum), write_of(norm, Operand::payload));
    updated.insert(read_of(op, Operand::gradient));
  }
  EXPECT_EQ(normed, updated);
}

}  // namespace
}  // namespace weft
