// Each rule of verify_graph rejects the graph that breaks it, and says which operation does.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "graph/test_graphs.hpp"
#include "graph/verify_graph.hpp"

namespace weft {
namespace {

class Mutation : public ::testing::Test {
 protected:
  // Two stages, tensor and data parallelism, ZeRO-1, clipping: every kind of operation but experts.
  StepGraph graph_ =
      test::build(test::with_layers("gpt2", 2), "dgx-a100:1", {.tp = 2, .pp = 2, .zero = 1, .clip_grad = 1});

  std::size_t index(std::string_view stage, std::string_view words) const {
    for (std::size_t i = 0; i < graph_.operations.size(); ++i) {
      const Operation& op = graph_.operations[i];
      if (graph_.classes[op.rank_class.index()].name == stage && describe(op) == words) return i;
    }
    ADD_FAILURE() << "no operation " << stage << ": " << words;
    return 0;
  }
  Operation& op(std::string_view stage, std::string_view words) { return graph_.operations[index(stage, words)]; }
  Value& value(ValueId id) { return graph_.values[id.index()]; }

  std::string message() const {
    try {
      verify_graph(graph_);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }
  void expect_rejected(std::string_view where, std::string_view why) const {
    const std::string text = message();
    EXPECT_NE(text.find(where), std::string::npos) << text;
    EXPECT_NE(text.find(why), std::string::npos) << text;
  }
};

TEST_F(Mutation, NoneIsAccepted) {
  EXPECT_EQ(message(), "accepted");
}

TEST_F(Mutation, TwoOperationsOfOneIdentity) {
  graph_.operations.push_back(op("stage 1", "layer 1 ffn_act forward"));
  expect_rejected("stage 1: layer 1 ffn_act forward", "same identity");
}

TEST_F(Mutation, AValueThatIsNotThere) {
  op("stage 0", "layer 0 qkv forward").reads[0].value = make_id<ValueId>(graph_.values.size());
  expect_rejected("stage 0: layer 0 qkv forward", "reads value");
}

TEST_F(Mutation, AWrittenValueThatIsNotThere) {
  op("stage 0", "layer 0 qkv forward").writes[0].value = ValueId{-1};
  expect_rejected("stage 0: layer 0 qkv forward", "writes value -1");
}

TEST_F(Mutation, AClassThatIsNotThere) {
  op("stage 0", "layer 0 qkv forward").rank_class = ClassId{2};
  expect_rejected("layer 0 qkv forward", "rank class 2");
}

TEST_F(Mutation, AValueOfAnotherClass) {
  op("stage 0", "layer 0 qkv forward").reads[0].value = op("stage 1", "layer 1 qkv forward").reads[0].value;
  expect_rejected("stage 0: layer 0 qkv forward", "another rank class");
}

TEST_F(Mutation, ADistanceOfTwo) {
  op("stage 0", "layer 0 qkv forward").reads[1].distance = 2;
  expect_rejected("stage 0: layer 0 qkv forward", "distance 2");
}

TEST_F(Mutation, AnOperandThatItsKindDoesNotHave) {
  op("stage 0", "layer 0 attention_residual forward").reads[1].operand = Operand::queries;
  expect_rejected("stage 0: layer 0 attention_residual forward", "reads a value as its 'queries'");
}

TEST_F(Mutation, TwoValuesUnderOneName) {
  op("stage 0", "layer 0 attention_residual forward").reads[1].operand = Operand::input;
  expect_rejected("stage 0: layer 0 attention_residual forward", "reads 2 values as its 'input'");
}

TEST_F(Mutation, AnOperandThatIsMissing) {
  std::erase_if(op("stage 0", "layer 0 qkv weight_grad").reads,
                [](const Read& read) { return read.operand == Operand::output_grad; });
  expect_rejected("stage 0: layer 0 qkv weight_grad", "reads no value as its 'output_grad'");
}

TEST_F(Mutation, ATransferThatWritesUnderAnotherName) {
  op("stage 0", "layer 0 ffn_reduce forward").writes[0].operand = Operand::keys_values;
  expect_rejected("stage 0: layer 0 ffn_reduce forward", "does not write under the names that it reads under");
}

TEST_F(Mutation, AKeyOfAnotherPhase) {
  op("stage 0", "layer 0 qkv forward").key.phase = Phase::recompute;
  expect_rejected("stage 0: layer 0 qkv forward", "recompute");
}

TEST_F(Mutation, AReadThatNobodyWrites) {
  op("stage 0", "layer 0 qkv forward").writes.clear();
  expect_rejected("stage 0: layer 0 attention forward", "nobody writes");
}

TEST_F(Mutation, AParameterThatNobodyUpdates) {
  op("stage 1", "layer 1 ffn_norm param_gather optimizer").writes.clear();
  expect_rejected("stage 1: layer 1 ffn_norm forward", "nobody writes");
}

TEST_F(Mutation, TwoWritersOfOneValue) {
  Operation& first = op("stage 0", "layer 0 qkv forward");
  op("stage 0", "layer 0 attention forward").writes.push_back(first.writes[0]);
  expect_rejected("stage 0: layer 0 attention forward", "writes already");
}

TEST_F(Mutation, AnUpdateThatReadsOneMicroBatch) {
  const ValueId activation = op("stage 0", "layer 0 qkv forward").writes[0].value;
  op("stage 0", "layer 0 qkv update optimizer").reads.push_back({Operand::square_sum, activation});
  expect_rejected("stage 0: layer 0 qkv update optimizer", "runs once a step but reads");
}

TEST_F(Mutation, AnActivationOfThePreviousIteration) {
  op("stage 0", "layer 0 qkv forward").reads[0].distance = 1;
  expect_rejected("stage 0: layer 0 qkv forward", "previous iteration");
}

TEST_F(Mutation, AGradientThatIsOverwrittenInsteadOfAccumulated) {
  value(op("stage 0", "layer 0 qkv weight_grad").writes[0].value).accumulated = false;
  expect_rejected("stage 0: layer 0 qkv weight_grad", "without accumulating");
}

TEST_F(Mutation, AMicroBatchesValueThatIsAccumulated) {
  value(op("stage 0", "layer 0 qkv forward").writes[0].value).accumulated = true;
  expect_rejected("stage 0: layer 0 qkv forward", "belongs to one micro-batch");
}

TEST_F(Mutation, AMicroBatchesValueWrittenOnceAStep) {
  value(op("stage 0", "grad_norm optimizer").writes[0].value).per_micro_batch = true;
  expect_rejected("stage 0: grad_norm optimizer", "runs once a step but writes");
}

// Dimensions that exact rules cover; the others (bytes per element, key length, key head size) have no value to match.
std::vector<std::size_t> checked_dims(OpKind kind) {
  switch (kind) {
    case OpKind::gemm:
      return {0, 1, 2, 3};
    case OpKind::attention:
      return {0, 1, 2, 5};
    case OpKind::norm:
    case OpKind::gather_rows:
    case OpKind::cross_entropy:
    case OpKind::curvature:
    case OpKind::precondition:
      return {0, 1};
    case OpKind::gate:
      return {0, 1, 2};
    case OpKind::encode:  // another format may take as many bytes
      return {0, 2};
    case OpKind::decode:
      return {0, 2, 3};
    case OpKind::low_rank:  // a rank follows from no value alone
      return {0, 2, 3, 4};
    case OpKind::elementwise:
    case OpKind::adam:
    case OpKind::square_sum:
    case OpKind::inverse:
    case OpKind::transfer:
      return {0};
    case OpKind::task:  // as long as the user says
      return {};
  }
  return {};
}

TEST_F(Mutation, ADimensionOfAnyOperationsKey) {
  for (Operation& changed : graph_.operations) {
    for (const std::size_t dim : checked_dims(changed.key.kind)) {
      ++changed.key.dims[dim];
      expect_rejected(describe(changed), "key");
      --changed.key.dims[dim];
    }
  }
  ASSERT_EQ(message(), "accepted");
  op("stage 0", "layer 0 qkv forward").key.dims[0] = -1;
  expect_rejected("stage 0: layer 0 qkv forward", "negative");
}

TEST_F(Mutation, ADimensionOfAGatesKey) {
  graph_ = test::build(test::with_layers("mixtral-8x7b", 1), "dgx-a100:1", {.ep = 4, .seq = 64});
  ASSERT_EQ(message(), "accepted");
  int gates = 0;
  for (Operation& changed : graph_.operations) {
    if (changed.role != Role::gate) continue;
    ++gates;
    for (const std::size_t dim : checked_dims(changed.key.kind)) {
      ++changed.key.dims[dim];
      expect_rejected(describe(changed), "key");
      --changed.key.dims[dim];
    }
  }
  EXPECT_EQ(gates, 2);  // forward and back
}

TEST_F(Mutation, TheShapeOfAValueBetweenTwoProducts) {
  // ffn_act writes what ffn_out reads; the writer is met first.
  value(op("stage 0", "layer 0 ffn_act forward").writes[0].value).shape[0] += 1;
  expect_rejected("stage 0: layer 0 ffn_act forward", "elements");
}

TEST_F(Mutation, AWeightOfTheWrongSize) {
  // gpt2: 768 x 3 * 768 / 2 and a bias; twice that is another matrix.
  value(op("stage 0", "layer 0 qkv forward").reads[1].value).shape[0] *= 2;
  expect_rejected("stage 0: layer 0 qkv forward", "weights read");
}

TEST_F(Mutation, TheBytesOfAnyTransfer) {
  for (Operation& changed : graph_.operations) {
    if (!changed.is_transfer()) continue;
    changed.communication->bytes.value += 4;
    changed.key.dims[0] += 4;
    expect_rejected(describe(changed), "bytes");
    changed.communication->bytes.value -= 4;
    changed.key.dims[0] -= 4;
  }
  EXPECT_EQ(message(), "accepted");
}

TEST_F(Mutation, AComputationThatClaimsToBeATransfer) {
  op("stage 0", "layer 0 qkv forward").key.kind = OpKind::transfer;
  expect_rejected("stage 0: layer 0 qkv forward", "no transfer");
}

TEST_F(Mutation, AGroupOfOne) {
  op("stage 0", "layer 0 attention_reduce forward").communication->group = GroupKind::cp;
  expect_rejected("stage 0: layer 0 attention_reduce forward", "cp group has one rank only");
}

TEST_F(Mutation, AMessageInsideADataParallelGroup) {
  op("stage 0", "stage_output forward").communication->group = GroupKind::dp;
  expect_rejected("stage 0: stage_output forward", "send_recv over a dp group");
}

TEST_F(Mutation, ATransferOfSeveralClassesWithoutANumber) {
  op("stage 1", "norm_reduce optimizer").communication->transfer = -1;
  expect_rejected("stage 1: norm_reduce optimizer", "spans 2 rank classes");
}

TEST_F(Mutation, AMemberOfATransferThatIsMissing) {
  op("stage 1", "norm_reduce optimizer").communication->transfer = 1'000'000;
  expect_rejected("norm_reduce optimizer", "1 rank classes take part");
}

TEST_F(Mutation, AClassThatIsTwiceInATransfer) {
  // The tied embedding's all_reduce and the norm's, given one number.
  const std::int32_t number = op("stage 0", "embedding tied_reduce optimizer").communication->transfer;
  op("stage 0", "norm_reduce optimizer").communication->transfer = number;
  expect_rejected("stage 0: norm_reduce optimizer", "twice");
}

TEST_F(Mutation, MembersThatDisagreeOnTheCollective) {
  op("stage 1", "norm_reduce optimizer").communication->collective = Collective::all_to_all;
  expect_rejected("stage 1: norm_reduce optimizer", "the same transfer is all_reduce");
}

TEST_F(Mutation, MembersThatDisagreeOnTheBytes) {
  Operation& reduce = op("stage 1", "norm_reduce optimizer");
  value(reduce.reads[0].value).shape = {2};
  value(reduce.writes[0].value).shape = {2};
  reduce.communication->bytes = Bytes{8};
  reduce.key.dims[0] = 8;
  expect_rejected("stage 1: norm_reduce optimizer", "the same transfer is all_reduce of 4 bytes");
}

TEST_F(Mutation, TwoSendersOfOneMessage) {
  Operation& receiver = op("stage 1", "stage_input forward");
  receiver.communication->sends = true;
  expect_rejected("stage 1: stage_input forward", "reads 0 bytes");
}

TEST_F(Mutation, ACycleInOneClass) {
  const ValueId later = op("stage 0", "layer 0 attention_residual forward").writes[0].value;
  op("stage 0", "layer 0 attention forward").reads.push_back({Operand::keys_values, later});
  expect_rejected("stage 0: layer 0 attention", "waits for itself");
}

TEST_F(Mutation, ACycleThroughThePipeline) {
  // Forward of stage 0 waits for the gradient that stage 1 computes from it.
  const ValueId gradient = op("stage 0", "stage_output input_grad").writes[0].value;
  op("stage 0", "layer 0 attention forward").reads.push_back({Operand::keys_values, gradient});
  const std::string text = message();
  EXPECT_NE(text.find("waits for itself, through stage"), std::string::npos) << text;
}

TEST_F(Mutation, AReaderStoredBeforeItsWriter) {
  std::swap(op("stage 0", "layer 0 qkv forward"), op("stage 0", "layer 0 attention forward"));
  expect_rejected("stage 0: layer 0 attention forward", "is stored before layer 0 qkv forward");
}

}  // namespace
}  // namespace weft
