// Each way to break a plan's order, its origins or its queues is rejected by its rule, in words that name operations.
#include <gtest/gtest.h>

#include <algorithm>

#include "collective/algorithms.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

class Rejects : public ::testing::Test {
 protected:
  // Two stages, 1F1B, four micro-batches. Stage 0: F0 F1 B0 F2 B1 F3 B2 B3 update; stage 1: F0 B0 F1 B1 ... update.
  Plan plan_ = test::serial(test::small_gpt(2), "local:2", {.pp = 2, .clip_grad = 1});

  ClassPlan& stage(std::size_t i) { return plan_.classes[i]; }
  Operation& op(std::string_view stage_name, std::string_view words) {
    return plan_.graph.operations[test::find_op(plan_.graph, stage_name, words).index()];
  }
  Issue& issue(std::string_view stage_name, std::string_view words) {
    return plan_.issues[test::find_op(plan_.graph, stage_name, words).index()];
  }
  void expect(Rule rule, std::initializer_list<std::string_view> words) const {
    const std::optional<Violation> found = verify_plan(plan_);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(name_of(found->rule), name_of(rule)) << found->message;
    for (const std::string_view word : words) {
      EXPECT_NE(found->message.find(word), std::string::npos) << "no '" << word << "' in: " << found->message;
    }
  }
};

TEST_F(Rejects, NothingOfTheOriginal) {
  EXPECT_FALSE(verify_plan(plan_).has_value());
}

// Order ---------------------------------------------------------------------------------------------------------------

TEST_F(Rejects, ForwardsInAnotherOrderOnOneStage) {
  std::swap(stage(0).order[0], stage(0).order[1]);
  expect(Rule::collective_order, {"stage 0", "stage 1", "stage_output forward, micro-batch 1' before",
                                  "stage_output forward, micro-batch 0'", "the other way round"});
}

// The same forwards, but what they send leaves in another order than the receiver takes it.
TEST_F(Rejects, TwoSendsExchangedOnOneStage) {
  IssueBlock& forward = block_of(stage(0), BlockKind::forward);
  const OpId send = forward.operations.back();
  ASSERT_EQ(describe(plan_.graph.op(send)), "stage_output forward");
  forward.operations.pop_back();
  const BlockId sends = stage(0).blocks.next_id();
  stage(0).blocks.push_back({BlockKind::extra, -1, {send}});
  std::vector<IssueSlot> order;
  for (const IssueSlot& slot : stage(0).order) {
    order.push_back(slot);
    if (slot.block.value == 0 && slot.micro_batch.value > 0) order.push_back({sends, slot.micro_batch});
    if (slot.block.value == 0 && slot.micro_batch.value == 1) order.push_back({sends, MicroBatch{0}});
  }
  stage(0).order = order;
  expect(Rule::collective_order, {"order of transfers: stage 0 issues", "stage_output forward, micro-batch 1",
                                  "stage_output forward, micro-batch 0", "stage 1 the other way round"});
}

TEST_F(Rejects, ABackwardBeforeItsForward) {
  // Stage 1: B0 F0 F1 B1 ...
  std::swap(stage(1).order[0], stage(1).order[1]);
  expect(Rule::deadlock, {"deadlock",
                          "weight_grad, micro-batch 0] waits for [stage 1: stage_input forward, micro-batch "
                          "0]: it reads what it writes"});
}

TEST_F(Rejects, AnOperationBeforeTheOneItReadsFrom) {
  std::vector<OpId>& forward = block_of(stage(0), BlockKind::forward).operations;
  const OpId norm = test::find_op(plan_.graph, "stage 0", "layer 0 attention_norm forward");
  const OpId qkv = test::find_op(plan_.graph, "stage 0", "layer 0 qkv forward");
  std::iter_swap(std::find(forward.begin(), forward.end(), norm), std::find(forward.begin(), forward.end(), qkv));
  expect(Rule::deadlock, {"[stage 0: layer 0 qkv forward, micro-batch 0] waits for [stage 0: layer 0 attention_norm "
                          "forward, micro-batch 0]: it reads what it writes",
                          "[stage 0: layer 0 attention_norm forward, micro-batch 0] waits for [stage 0: layer 0 qkv "
                          "forward, micro-batch 0]: it comes after it in its queue"});
}

// The classic: after its second forward stage 0 waits for stage 1 to receive, stage 1 first sends a gradient and waits
// for stage 0 to receive that.
TEST_F(Rejects, BlockingSendsBetweenNeighboursOf1F1B) {
  issue("stage 0", "stage_output forward").blocking = true;
  EXPECT_FALSE(verify_plan(plan_).has_value()) << "one direction alone is safe";
  issue("stage 1", "stage_input input_grad").blocking = true;
  expect(
      Rule::deadlock,
      {"[stage 1: stage_input forward, micro-batch 1] waits for [stage 1: stage_input input_grad, micro-batch 0]: it "
       "is "
       "issued after it and one of the two blocks; that is one transfer with [stage 0: stage_output input_grad, "
       "micro-batch 0]",
       "[stage 0: stage_output input_grad, micro-batch 0] waits for [stage 0: stage_output forward, micro-batch 1]"});
}

// Data parallelism over nodes with different adapters: one group, two rank classes; each gradient travels alone.
TEST_F(Rejects, GradientsThatOneClassReducesInAnotherOrder) {
  PlanRequest request = test::request(test::small_gpt(2), test::uneven_nics(), {});
  request.options.bucket_mib = 0;
  plan_ = make_plan(request, test::build(request), "ddp");
  ASSERT_FALSE(verify_plan(plan_).has_value());
  std::vector<OpId>& update = block_of(stage(1), BlockKind::update).operations;
  std::swap(update[0], update[1]);
  expect(Rule::collective_order,
         {"order of transfers: stage 0 on node 0 issues 'stage 0 on node 0: final_norm grad_reduce optimizer' before",
          "layer 1 ffn_out grad_reduce optimizer", "stage 0 on node 1 the other way round"});
}

TEST_F(Rejects, MembersOfOneTransferWithDifferentAlgorithms) {
  op("stage 0", "norm_reduce optimizer").communication->algorithm = Algorithm::ring;
  op("stage 1", "norm_reduce optimizer").communication->algorithm = Algorithm::direct;
  expect(Rule::collective_order, {"members of one transfer disagree", "stage 0 carries out 'norm_reduce optimizer'",
                                  "stage 1 carries out", "direct"});
}

TEST_F(Rejects, CarriedProgramsThatAreNotProven) {
  Program pair = make_program({.ranks = 2, .in_place = true});
  const auto carry = [&](const Program& program) {
    const ProgramRef carried(CarriedProgram{"pair.xml", program});
    for (const char* stage_name : {"stage 0", "stage 1"}) {
      Communication& c = *op(stage_name, "norm_reduce optimizer").communication;
      c.algorithm = Algorithm::carried;
      c.parts = 1;
      c.program = carried;
    }
  };
  carry(pair);
  EXPECT_FALSE(verify_plan(plan_).has_value()) << verify_plan(plan_)->message;
  pair.ranks[1].blocks[0].steps.pop_back();
  carry(pair);
  expect(Rule::program, {"program 'pair.xml'", "norm_reduce optimizer", "is not safe"});
  carry(make_program({.ranks = 3, .in_place = true}));
  expect(Rule::collective_order, {"program 'pair.xml' is for 3 ranks, but the group has 2"});
  carry(make_program({.kind = Collective::all_gather, .ranks = 2}));
  expect(Rule::collective_order, {"program 'pair.xml' is for all_gather, not all_reduce"});
}

TEST_F(Rejects, MembersOfOneTransferWithDifferentParts) {
  op("stage 0", "norm_reduce optimizer").communication->parts = 1;
  op("stage 1", "norm_reduce optimizer").communication->parts = 2;
  expect(Rule::collective_order, {"members of one transfer disagree", "stage 1 carries out", "in 2 parts"});
  op("stage 0", "norm_reduce optimizer").communication->parts = 2;
  EXPECT_FALSE(verify_plan(plan_).has_value()) << "they agree";
}

TEST_F(Rejects, MembersOfOneTransferWithDifferentInnerGroups) {
  for (const std::string stage : {"stage 0", "stage 1"}) {
    Communication& c = *op(stage, "norm_reduce optimizer").communication;
    c.algorithm = Algorithm::hierarchical;
    c.inner = stage == "stage 0" ? 1 : 2;
  }
  expect(Rule::collective_order, {"members of one transfer disagree", "stage 0 carries out", "inner groups of 1",
                                  "stage 1 carries out", "inner groups of 2"});
}

TEST_F(Rejects, TransfersThatNoProgramCarriesOut) {
  Communication& c = *op("stage 0", "norm_reduce optimizer").communication;
  c.algorithm = Algorithm::pairwise;
  expect(Rule::collective_order, {"stage 0: 'norm_reduce optimizer'", "there is no all_reduce that is a pairwise"});
  c.algorithm = Algorithm::hierarchical;
  c.inner = 3;
  expect(Rule::collective_order, {"stage 0: 'norm_reduce optimizer': inner 3 does not divide 2 members"});
}

// Each operation once -------------------------------------------------------------------------------------------------

TEST_F(Rejects, ADroppedSlot) {
  std::erase(stage(0).order, IssueSlot{BlockId{0}, MicroBatch{2}});
  expect(Rule::provenance, {"stage 0: 'embedding forward', micro-batch 2, is never issued"});
}

TEST_F(Rejects, ARepeatedSlot) {
  stage(1).order.push_back({BlockId{2}, kOncePerStep});
  expect(Rule::provenance, {"stage 1: ", "optimizer is issued twice"});
}

TEST_F(Rejects, ASlotThatDoesNotFitItsBlock) {
  stage(0).order.back().micro_batch = {0};
  expect(Rule::provenance, {"stage 0", "runs once a step, but its slot says micro-batch 0"});
}

TEST_F(Rejects, NumbersThatNameNothing) {
  const Plan original = plan_;
  stage(0).order[0].micro_batch = {4};
  expect(Rule::provenance, {"stage 0: its order names block 0 of 3, micro-batch 4 of 4"});
  plan_ = original;
  stage(0).order[0].block = {3};
  expect(Rule::provenance, {"stage 0: its order names block 3 of 3"});
  plan_ = original;
  block_of(stage(1), BlockKind::forward).operations[0] = make_id<OpId>(plan_.graph.operations.size());
  expect(Rule::provenance, {"stage 1: block 'forward 0' names operation"});
  plan_ = original;
  issue("stage 0", "stage_output forward").queue = {99};
  expect(Rule::provenance, {"stage 0: 'stage_output forward' is issued to queue 99"});
  plan_ = original;
  plan_.issues.pop_back();
  expect(Rule::provenance, {"the plan orders 2 rank classes"});
  plan_ = original;
  plan_.placements.pop_back();
  expect(Rule::hazard, {"the plan places"});
  plan_ = original;
  op("stage 0", "norm_reduce optimizer").rank_class = ClassId{2};
  expect(Rule::provenance, {"'norm_reduce optimizer' is of rank class 2, which is not in 0..1"});
}

TEST_F(Rejects, AnOperationOfAnotherClass) {
  block_of(stage(0), BlockKind::forward)
      .operations.push_back(test::find_op(plan_.graph, "stage 1", "layer 1 qkv forward"));
  expect(Rule::provenance, {"stage 0: its order names 'layer 1 qkv forward' of stage 1"});
}

TEST_F(Rejects, AQueueOfTheWrongKind) {
  const Plan original = plan_;
  issue("stage 0", "layer 0 qkv forward").queue = {1};
  expect(Rule::provenance, {"stage 0: 'layer 0 qkv forward' is issued to", "which is a communication queue"});
  plan_ = original;
  issue("stage 0", "stage_output forward").queue = kComputeQueue;
  expect(Rule::provenance, {"stage 0: 'stage_output forward' is issued to 'compute', which is a compute queue"});
  plan_ = original;
  stage(0).queues.push_back({"second", QueueKind::compute});
  expect(Rule::provenance, {"stage 0: queue", "('second') is a compute queue; queue 0 is the compute queue"});
}

// The model's operations and no others --------------------------------------------------------------------------------

TEST_F(Rejects, ARetargetedRead) {
  op("stage 0", "layer 0 ffn_out forward").reads[0].value =
      test::find_value(plan_.graph, "stage 0", "layer 0 ffn_hidden");
  expect(Rule::provenance, {"stage 0: 'layer 0 ffn_out forward' does not read what its origins read"});
}

TEST_F(Rejects, AReadOfTheWrongIteration) {
  op("stage 0", "layer 0 ffn_out forward").reads[1].distance = 0;
  expect(Rule::provenance, {"stage 0: 'layer 0 ffn_out forward' does not read what its origins read"});
}

TEST_F(Rejects, ALostWrite) {
  op("stage 0", "layer 0 ffn_residual forward").writes.pop_back();
  expect(Rule::provenance, {"stage 0: 'layer 0 ffn_residual forward' does not write what its origins write"});
}

TEST_F(Rejects, ChangedBytesAndSizes) {
  const Plan original = plan_;
  op("stage 0", "stage_output forward").communication->bytes.value -= 1;
  expect(Rule::provenance, {"stage 0: 'stage_output forward' has size", "its origins"});
  plan_ = original;
  op("stage 0", "layer 0 qkv forward").key.dims[0] /= 2;
  expect(Rule::provenance, {"stage 0: 'layer 0 qkv forward' has size"});
  plan_ = original;
  op("stage 0", "layer 0 qkv forward").key.dims[1] /= 2;
  expect(Rule::provenance, {"another kind of operation"});
}

TEST_F(Rejects, OriginsDroppedRepeatedOrCut) {
  const Plan original = plan_;
  Operation& update = op("stage 0", "update optimizer");
  ASSERT_GT(update.origins.size(), 2u);
  update.origins.pop_back();
  expect(Rule::provenance, {"stage 0: 'update optimizer' does not read what its origins read"});
  plan_ = original;
  op("stage 0", "layer 0 qkv forward").origins.clear();
  expect(Rule::provenance, {"stage 0: 'layer 0 qkv forward' names no operation of the model"});
  plan_ = original;
  const std::vector<Origin> other = op("stage 0", "layer 0 attention_norm forward").origins;
  op("stage 0", "layer 0 ffn_norm forward").origins = other;
  expect(Rule::provenance,
         {"stage 0: 'layer 0 ffn_norm forward' claims to carry out 'layer 0 attention_norm forward'"});
  plan_ = original;
  op("stage 0", "layer 0 qkv weight_grad").origins[0].of = 2;
  expect(Rule::provenance, {"stage 0: 'layer 0 qkv weight_grad part 1 of 2' carries out pieces 0..1 of 2"});
  plan_ = original;
  op("stage 0", "layer 0 qkv forward").origins[0].of = 2;
  expect(Rule::provenance, {"stage 0: 'layer 0 qkv forward part 1 of 2' has size "});
  plan_ = original;
  op("stage 0", "layer 0 qkv forward").origins[0].operation = OpId{1 << 20};
  expect(Rule::provenance, {"names origin 1048576, which the model does not have"});
}

TEST_F(Rejects, AnOperationDoneTwiceOrNotAtAll) {
  const Plan original = plan_;
  plan_.graph.operations.push_back(op("stage 0", "layer 0 qkv forward"));
  plan_.issues.push_back({});
  expect(Rule::provenance, {"stage 0: 'layer 0 qkv forward' is carried out 2 times instead of once"});
  plan_ = original;
  plan_.graph.operations.erase(plan_.graph.operations.begin());
  plan_.issues.erase(plan_.issues.begin());
  expect(Rule::provenance, {"stage 0: 'embedding forward' is carried out 0 times instead of once"});
}

TEST_F(Rejects, AnotherModelLayoutOrMachine) {
  const Plan original = plan_;
  plan_.model.ffn = 128;
  expect(Rule::provenance, {"the plan's values are not those of its model and layout"});
  plan_ = original;
  plan_.graph.micro_batches = 3;
  expect(Rule::provenance, {"the plan has 3 micro-batches, its layout 4"});
  plan_ = original;
  plan_.graph.classes[0].device.memory = Bytes{1LL << 50};  // would make any plan fit
  expect(Rule::provenance, {"the plan's rank classes are not those of its cluster and layout"});
}

}  // namespace
}  // namespace weft
