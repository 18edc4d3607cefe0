// How often a step communicates, and how many bytes, against what the papers count.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "graph/test_graphs.hpp"
#include "model/counts.hpp"

namespace weft {
namespace {

using test::build;
using test::with_layers;

std::vector<Operation> transfers(const StepGraph& graph, const test::OpFilter& wanted) {
  std::vector<Operation> found;
  for (const Operation& op : graph.operations) {
    if (op.is_transfer() && wanted(op)) found.push_back(op);
  }
  return found;
}

std::int64_t total_bytes(const std::vector<Operation>& ops) {
  std::int64_t sum = 0;
  for (const Operation& op : ops) sum += op.communication->bytes.value;
  return sum;
}

test::OpFilter of_role(Role role) {
  return [role](const Operation& op) { return op.role == role; };
}

// Transfers of one layer's micro-batch in one group, in the order in which they are stored: "forward all_gather", ...
std::vector<std::string> layer_transfers(const StepGraph& graph, std::int32_t layer, GroupKind group) {
  std::vector<std::string> names;
  for (const Operation& op : transfers(graph, [&](const Operation& o) {
         return o.layer == layer && o.per_micro_batch && o.communication->group == group;
       })) {
    names.push_back(fmt::format("{} {}", name_of(op.phase), name_of(op.communication->collective)));
  }
  return names;
}

using Names = std::vector<std::string>;

TEST(TensorParallel, FourAllReducesALayer) {
  // Shoeybi et al. 2019: two forward, two backward; full recompute repeats the forward ones. Each carries b s h.
  const Transformer model = with_layers("megatron-1.7b", 4);
  const StepGraph graph = build(model, "dgx-a100:1", {.tp = 8, .micro_batch = 2, .seq = 512});
  EXPECT_EQ(layer_transfers(graph, 1, GroupKind::tp),
            (Names{"forward all_reduce", "forward all_reduce", "input_grad all_reduce", "input_grad all_reduce"}));
  const auto of_layer = transfers(graph, [](const Operation& op) { return op.layer == 1 && op.per_micro_batch; });
  EXPECT_EQ(total_bytes(of_layer), 4 * (2 * 512 * 2304 * 2));
  const StepGraph again = build(model, "dgx-a100:1", {.tp = 8, .recompute = Recompute::full});
  EXPECT_EQ(layer_transfers(again, 1, GroupKind::tp).size(), 6U);
  const StepGraph selective = build(model, "dgx-a100:1", {.tp = 8, .recompute = Recompute::selective});
  EXPECT_EQ(layer_transfers(selective, 1, GroupKind::tp).size(), 4U);
}

TEST(SequenceParallel, GathersAndScattersWithOneMoreGatherForEachWeightGradient) {
  // Korthikanti et al. 2022, section 4.2.2: an all_reduce becomes reduce_scatter and all_gather, and backward gathers
  // the sharded input of each column-parallel linear again for dW.
  const StepGraph graph =
      build(with_layers("megatron-1.7b", 4), "dgx-a100:1", {.tp = 8, .seq = 512, .sequence_parallel = true});
  const Names backward{"input_grad all_gather", "weight_grad all_gather", "input_grad reduce_scatter"};
  Names expected{"forward all_gather", "forward reduce_scatter", "forward all_gather", "forward reduce_scatter"};
  for (int half = 0; half < 2; ++half) expected.insert(expected.end(), backward.begin(), backward.end());
  EXPECT_EQ(layer_transfers(graph, 2, GroupKind::tp), expected);
  for (const Operation& op : transfers(graph, [](const Operation& o) { return o.layer == 2 && o.per_micro_batch; })) {
    EXPECT_EQ(op.communication->bytes.value, 512 * 2304 * 2) << describe(op);
  }
}

TEST(SequenceParallel, ReducesTheGradientsOfNormsOverTensorRanks) {
  const Layout layout{.tp = 8, .sequence_parallel = true};
  // Two norms a layer and the last one; none without sequence parallelism, where all ranks see all tokens.
  EXPECT_EQ(transfers(build(with_layers("gpt3-175b", 4), "dgx-a100:1", layout), of_role(Role::replica_reduce)).size(),
            9U);
  EXPECT_TRUE(
      transfers(build(with_layers("gpt3-175b", 4), "dgx-a100:1", {.tp = 8}), of_role(Role::replica_reduce)).empty());
}

TEST(TensorParallel, RanksWithTheSameKeyHeadSumItsGradients) {
  // Eight key/value heads of 128 on sixteen ranks: two ranks have each, with two of the 32 query heads for each rank.
  const Transformer model = with_layers("llama3-8b", 4);
  EXPECT_TRUE(transfers(build(model, "dgx-a100:1", {.tp = 8}), of_role(Role::replica_reduce)).empty());
  for (const bool sequence_parallel : {false, true}) {
    const StepGraph graph = build(model, "dgx-a100:2", {.tp = 16, .sequence_parallel = sequence_parallel});
    const auto of_keys =
        transfers(graph, [](const Operation& op) { return op.role == Role::replica_reduce && op.subject == Role::kv; });
    ASSERT_EQ(of_keys.size(), 4U * graph.classes.size());
    for (const Operation& op : of_keys) {
      EXPECT_EQ(op.communication->group, GroupKind::kv);
      EXPECT_EQ(op.communication->bytes.value, 4096 * 2 * 128 * 4);  // fp32
    }
    for (const RankClass& c : graph.classes) EXPECT_EQ(c.group(GroupKind::kv).view.size, 2);
  }
}

TEST(TensorParallel, CopiesOfKeyHeadsAreSoManyParametersMore) {
  // A rank has 2 of 32 query heads and one key head and value head of 128, each a row of 4096 weights for every column.
  const StepGraph graph = build(with_layers("llama3-8b", 1), "dgx-a100:2", {.tp = 16});
  std::map<Role, std::int64_t> elements;
  for (const Operation& op : graph.operations) {
    if (op.role == Role::update) elements[op.subject] = graph.value(write_of(op, Operand::weight)).elements();
  }
  EXPECT_EQ(elements.at(Role::qkv), 4096 * 2 * 128);
  EXPECT_EQ(elements.at(Role::kv), 4096 * 2 * 128);
  EXPECT_FALSE(elements.contains(Role::qk_norm));
}

TEST(TensorParallel, ReducesTheGradientsOfNormsOnQueriesAndKeys) {
  // One gain of a head's size for queries, one for keys, on every rank; each rank's heads add to them, whatever tokens
  // it has. With sequence parallelism the nine norms of four layers come on top.
  Transformer model = with_layers("llama2-7b", 4);
  model.qk_norm = true;
  EXPECT_TRUE(transfers(build(model, "dgx-a100:1", {}), of_role(Role::replica_reduce)).empty());
  const auto reductions = transfers(build(model, "dgx-a100:1", {.tp = 8}), of_role(Role::replica_reduce));
  ASSERT_EQ(reductions.size(), 4U);
  for (const Operation& op : reductions) {
    EXPECT_EQ(op.subject, Role::qk_norm);
    EXPECT_EQ(op.communication->group, GroupKind::tp);
    EXPECT_EQ(op.communication->bytes.value, 2 * 128 * 4);  // fp32
  }
  const Layout layout{.tp = 8, .sequence_parallel = true};
  EXPECT_EQ(transfers(build(model, "dgx-a100:1", layout), of_role(Role::replica_reduce)).size(), 4U + 9U);
}

TEST(DataParallel, ReducesEveryGradientOnce) {
  const Transformer model = with_layers("llama2-7b", 4);
  const Cluster cluster(parse_cluster("dgx-a100:1"));
  const StepGraph graph = build(model, "dgx-a100:1", {});
  const auto reductions = transfers(graph, of_role(Role::grad_reduce));
  EXPECT_EQ(total_bytes(reductions), 4 * total_parameters(model));
  double sent = 0;
  for (const Operation& op : reductions) {
    EXPECT_FALSE(op.per_micro_batch);
    EXPECT_EQ(op.communication->collective, Collective::all_reduce);
    const Communication& c = *op.communication;
    for (const FabricTraffic& fabric :
         collective_traffic(cluster, c.collective, c.algorithm, c.bytes, graph.classes[0].group(c.group).view)
             .fabrics) {
      sent += fabric.bytes;
    }
  }
  // A ring moves 2 (N - 1)/N of the gradients.
  EXPECT_NEAR(sent, 2.0 * 7 / 8 * 4 * static_cast<double>(total_parameters(model)), 1);
}

TEST(Zero, OneScattersGradientsAndGathersParameters) {
  const Transformer model = with_layers("llama2-7b", 4);
  const StepGraph graph = build(model, "dgx-a100:1", {.zero = 1});
  const auto reductions = transfers(graph, of_role(Role::grad_reduce)),
             gathers = transfers(graph, of_role(Role::param_gather));
  EXPECT_EQ(total_bytes(reductions), 4 * total_parameters(model));
  EXPECT_EQ(total_bytes(gathers), 2 * total_parameters(model));
  for (const Operation& op : reductions) EXPECT_EQ(op.communication->collective, Collective::reduce_scatter);
  for (const Operation& op : gathers) {
    EXPECT_EQ(op.communication->collective, Collective::all_gather);
    EXPECT_FALSE(op.per_micro_batch);
  }
}

TEST(Zero, TwoScattersGradientsOfEveryMicroBatch) {
  const Transformer model = with_layers("llama2-7b", 4);
  const StepGraph graph = build(model, "dgx-a100:1", {.zero = 2});
  const auto reductions = transfers(graph, of_role(Role::grad_reduce));
  EXPECT_EQ(total_bytes(reductions), 4 * total_parameters(model));
  for (const Operation& op : reductions) EXPECT_TRUE(op.per_micro_batch);
  EXPECT_EQ(total_bytes(transfers(graph, of_role(Role::param_gather))), 2 * total_parameters(model));
}

TEST(Zero, ThreePassesTheParametersThreeTimesAMicroBatch) {
  // Rajbhandari et al. 2020, section 7: gathered for forward, again for backward, gradients scattered. Backward of the
  // embedding needs no weights, and that of the head finds them, so the second pass has the layers alone.
  const Transformer model = with_layers("llama2-7b", 4);
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    const StepGraph graph = build(model, "dgx-a100:1", {.zero = 3, .recompute = recompute});
    std::int64_t forward = 0, backward = 0;
    for (const Operation& op : transfers(graph, of_role(Role::param_gather))) {
      EXPECT_TRUE(op.per_micro_batch);
      (op.phase == Phase::forward ? forward : backward) += op.communication->bytes.value;
    }
    EXPECT_EQ(forward, 2 * total_parameters(model));
    const std::int64_t head = model.vocab * model.hidden + model.hidden;  // and the norm before it
    EXPECT_EQ(backward, 2 * (total_parameters(model) - embedding_parameters(model) - head));
    EXPECT_EQ(total_bytes(transfers(graph, of_role(Role::grad_reduce))), 4 * total_parameters(model));
  }
}

TEST(Zero, ThreeGathersATiedEmbeddingForTheHeadToo) {
  // Its copy was dropped after the first layer. Each gather has a subject of its own.
  Transformer model = with_layers("gpt2", 4);
  const StepGraph graph = build(model, "dgx-a100:1", {.zero = 3});
  const auto count = [&](Role subject, Phase phase) {
    return transfers(graph,
                     [&](const Operation& op) {
                       return op.role == Role::param_gather && op.subject == subject && op.phase == phase;
                     })
        .size();
  };
  EXPECT_EQ(count(Role::embedding, Phase::forward), 1U);
  EXPECT_EQ(count(Role::head, Phase::forward), 1U);
  EXPECT_EQ(count(Role::head, Phase::input_grad), 0U);
}

// The backward of the head follows its forward at once, but for GPipe, where the forwards of other micro-batches lie
// between them, and for model chunks.
TEST(Zero, ThreeKeepsTheHeadBetweenForwardAndBackward) {
  const auto gathers_again = [](const Layout& layout) {
    const StepGraph graph = build(with_layers("llama2-7b", 8), "dgx-a100:1", layout, 4);
    return !transfers(graph, [](const Operation& op) {
              return op.role == Role::param_gather && op.subject == Role::head && op.phase == Phase::input_grad;
            }).empty();
  };
  EXPECT_FALSE(gathers_again({.zero = 3}));
  EXPECT_FALSE(gathers_again({.pp = 2, .zero = 3}));
  EXPECT_TRUE(gathers_again({.pp = 2, .zero = 3, .schedule = PipelineSchedule::gpipe}));
  EXPECT_TRUE(gathers_again({.pp = 2, .vpp = 2, .zero = 3, .schedule = PipelineSchedule::interleaved}));
}

TEST(ExpertParallel, TwoAllToAllsEachWay) {
  // Every token leaves for top_k experts: b s k h, dispatched and combined.
  const Transformer model = with_layers("mixtral-8x7b", 4);
  const Layout layout{.ep = 8, .seq = 512};
  const StepGraph graph = build(model, "dgx-a100:1", layout);
  EXPECT_EQ(layer_transfers(graph, 1, GroupKind::ep),
            (Names{"forward all_to_all", "forward all_to_all", "input_grad all_to_all", "input_grad all_to_all"}));
  const auto exchanges =
      transfers(graph, [](const Operation& op) { return op.layer == 1 && op.communication->group == GroupKind::ep; });
  for (const Operation& op : exchanges) EXPECT_EQ(op.communication->bytes.value, 512 * 2 * 4096 * 2);
  // Lancet's models send capacity 1.25 of one expert a token; sequence parallelism splits the tokens first.
  const StepGraph padded = build(with_layers("gpt2-s-moe", 4), "dgx-a100:2", {.ep = 16, .seq = 512});
  for (const Operation& op : transfers(padded, of_role(Role::expert_dispatch))) {
    EXPECT_EQ(op.communication->bytes.value, 640 * 768 * 2);
  }
  const StepGraph split =
      build(model, "dgx-a100:1", {.tp = 2, .ep = 4, .etp = 2, .seq = 512, .sequence_parallel = true});
  for (const Operation& op : transfers(split, of_role(Role::expert_dispatch))) {
    EXPECT_EQ(op.communication->bytes.value, 256 * 2 * 4096 * 2);
  }
}

// Megatron's allgather dispatcher: every rank gets the tokens of all, b s h of each, whatever top_k is.
TEST(ExpertParallel, GathersAllTokensWhereNoneAreExchanged) {
  const Transformer model = with_layers("mixtral-8x7b", 4);
  const StepGraph graph =
      build(model, "dgx-a100:1", {.ep = 8, .expert_exchange = ExpertExchange::gathered, .seq = 512});
  EXPECT_EQ(layer_transfers(graph, 1, GroupKind::ep), (Names{"forward all_gather", "forward reduce_scatter",
                                                             "input_grad all_gather", "input_grad reduce_scatter"}));
  const auto of_layer =
      transfers(graph, [](const Operation& op) { return op.layer == 1 && op.communication->group == GroupKind::ep; });
  for (const Operation& op : of_layer) EXPECT_EQ(op.communication->bytes.value, 8 * 512 * 4096 * 2);
}

// DeepSeek-V3 report, section 3.3.3: in fp8 (a byte, and four for every 128) what goes to experts, in bf16 what
// returns.
TEST(ExpertParallel, SendsFp8ToExpertsAndBf16Back) {
  const StepGraph graph =
      build(with_layers("deepseek-v3", 4), "dgx-a100:1", {.ep = 8, .dispatch_fp8 = true, .seq = 512});
  const std::int64_t elements = 512 * 8 * 7168;
  int to_experts = 0, back = 0;
  for (const Operation& op : graph.operations) {
    if (!op.communication || op.communication->group != GroupKind::ep) continue;
    const bool goes = (op.role == Role::expert_dispatch) == (op.phase == Phase::forward);
    EXPECT_EQ(op.communication->bytes.value, goes ? elements + elements / 128 * 4 : 2 * elements) << describe(op);
    EXPECT_EQ(op.communication->format, goes ? kDispatchFp8 : WireFormat{ElementType::bf16}) << describe(op);
    ++(goes ? to_experts : back);
  }
  EXPECT_EQ(to_experts, 2);
  EXPECT_EQ(back, 2);
}

TEST(ExpertParallel, IsNotRepeatedByLocalRecomputation) {
  const Transformer model = with_layers("deepseek-v3", 5);
  const auto exchanges = [&](Recompute recompute) {
    Names names =
        layer_transfers(build(model, "dgx-a100:1", {.ep = 8, .seq = 512, .recompute = recompute}), 4, GroupKind::ep);
    return names;
  };
  const Names twice{"forward all_to_all", "forward all_to_all", "input_grad all_to_all", "input_grad all_to_all"};
  EXPECT_EQ(exchanges(Recompute::none), twice);
  EXPECT_EQ(exchanges(Recompute::local), twice);
  EXPECT_EQ(exchanges(Recompute::full).size(), 6U);
  // What they brought is kept: [512 * 8, 7168] twice in bf16, beside what full recomputation keeps.
  const auto kept = [&](Recompute recompute) {
    const StepGraph graph = build(model, "dgx-a100:1", {.ep = 8, .seq = 512, .recompute = recompute});
    std::set<ValueId> forward, later;
    for (const Operation& op : graph.operations) {
      if (op.layer != 4 || !op.per_micro_batch) continue;
      for (const Write& write : op.writes) {
        if (op.phase == Phase::forward) forward.insert(write.value);
      }
      for (const Read& read : op.reads) {
        if (op.phase != Phase::forward) later.insert(read.value);
      }
    }
    std::int64_t bytes = 0;
    for (const ValueId value : forward) bytes += later.contains(value) ? graph.value(value).bytes().value : 0;
    return bytes;
  };
  EXPECT_EQ(kept(Recompute::full), 0);  // but its input, which the layer before wrote
  EXPECT_EQ(kept(Recompute::local), 2 * 512 * 8 * 7168 * 2);
}

// Every choice of top_k experts out of those of the groups in use, one by one: how many domains it touches.
double distinct_by_counting(int experts, int top_k, int domains, int possible) {
  const int each = experts / domains, pool = each * possible;
  std::int64_t touched = 0, choices = 0;
  for (unsigned chosen = 0; chosen < (1U << pool); ++chosen) {
    if (std::popcount(chosen) != top_k) continue;
    ++choices;
    for (int d = 0; d < possible; ++d) touched += (chosen >> (d * each) & ((1U << each) - 1)) != 0 ? 1 : 0;
  }
  return static_cast<double>(touched) / static_cast<double>(choices * top_k);
}

TEST(DistinctShare, IsTheMeanOverAllChoices) {
  const auto share = [](std::int64_t experts, std::int64_t top_k, std::int64_t domains, std::int64_t groups,
                        std::int64_t group_topk) {
    return distinct_share(
        {.experts = experts, .top_k = top_k, .capacity = 1, .groups = groups, .group_topk = group_topk}, domains);
  };
  for (const int top_k : {1, 2, 3, 4}) {
    EXPECT_NEAR(share(16, top_k, 4, 1, 1), distinct_by_counting(16, top_k, 4, 4), 1e-12) << top_k;
    EXPECT_NEAR(share(16, top_k, 4, 4, 2), distinct_by_counting(16, top_k, 4, 2), 1e-12) << top_k;
    EXPECT_NEAR(share(16, top_k, 4, 2, 1), distinct_by_counting(16, top_k, 4, 2), 1e-12) << top_k;
    EXPECT_NEAR(share(16, top_k, 4, 4, 1), 1.0 / top_k, 1e-12) << top_k;
  }
  // DeepSeek-V3 on 8 nodes: at most four of them, 3.6 on average (its report: 3.2 experts a node at no further cost).
  EXPECT_LT(8 * share(256, 8, 8, 8, 4), 4);
  EXPECT_GT(8 * share(256, 8, 8, 8, 4), 3.6);
}

// Who needs what the gate decided: both permutations and their gradients; its own gradient needs the loads too.
TEST(ExpertParallel, TheGateDecidesForEveryoneBehindIt) {
  const StepGraph graph = build(with_layers("mixtral-8x7b", 1), "dgx-a100:1", {.ep = 8, .seq = 512});
  const auto gate = std::find_if(graph.operations.begin(), graph.operations.end(),
                                 [](const Operation& op) { return op.role == Role::gate; });
  ASSERT_NE(gate, graph.operations.end());
  const ValueId routing = write_of(*gate, Operand::routing), loads = write_of(*gate, Operand::loads);
  const auto readers_of = [&](ValueId value) {
    Names names;
    for (const Operation& op : graph.operations) {
      for (const Read& read : op.reads) {
        if (read.value == value) names.push_back(fmt::format("{} {}", name_of(op.role), name_of(op.phase)));
      }
    }
    std::sort(names.begin(), names.end());
    return names;
  };
  EXPECT_EQ(graph.value(routing).shape, (std::vector<std::int64_t>{512, 4}));
  EXPECT_EQ(graph.value(loads).shape, (std::vector<std::int64_t>{2, 8}));
  EXPECT_EQ(readers_of(routing), (Names{"combine forward", "combine input_grad", "dispatch forward",
                                        "dispatch input_grad", "gate input_grad"}));
  EXPECT_EQ(readers_of(loads), (Names{"gate input_grad"}));
}

TEST(ExpertTensorParallel, GathersTokensWhereItsRanksHoldDifferentOnes) {
  const Transformer model = with_layers("mixtral-8x7b", 4);
  const Names gathered{"forward all_gather", "forward reduce_scatter", "input_grad all_gather",
                       "input_grad reduce_scatter"};
  const Names replicated{"forward all_reduce", "input_grad all_reduce"};
  EXPECT_EQ(layer_transfers(build(model, "dgx-a100:1", {.etp = 2}), 1, GroupKind::etp), gathered);
  EXPECT_EQ(
      layer_transfers(build(model, "dgx-a100:1", {.tp = 2, .etp = 2, .sequence_parallel = true}), 1, GroupKind::etp),
      gathered);
  EXPECT_EQ(layer_transfers(build(model, "dgx-a100:1", {.tp = 2, .etp = 2}), 1, GroupKind::etp), replicated);
}

TEST(ContextParallel, GathersKeysAndValuesForwardAndAgainBackward) {
  // Keys and values of the whole sequence: 2 * kv_heads * head_dim columns (Llama 3, section 3.3.2).
  const Names none{"forward all_gather", "input_grad all_gather", "input_grad reduce_scatter"};
  const Names full{"forward all_gather", "recompute all_gather", "input_grad reduce_scatter"};
  const Transformer model = with_layers("llama2-70b", 4);
  const StepGraph graph = build(model, "dgx-a100:1", {.cp = 4, .seq = 512});
  EXPECT_EQ(layer_transfers(graph, 1, GroupKind::cp), none);
  for (const Operation& op : transfers(graph, of_role(Role::kv_gather))) {
    EXPECT_EQ(op.communication->bytes.value, 512 * 2 * 8 * 128 * 2);
  }
  EXPECT_EQ(layer_transfers(build(model, "dgx-a100:1", {.cp = 4, .recompute = Recompute::full}), 1, GroupKind::cp),
            full);
  // Latent attention: 128 heads of 128 + 128, and the one rotary key of 64.
  const StepGraph latent = build(with_layers("deepseek-v3", 4), "dgx-a100:1", {.cp = 4, .seq = 512});
  EXPECT_EQ(layer_transfers(latent, 1, GroupKind::cp), none);
  for (const Role role : {Role::kv_gather, Role::kv_reduce}) {
    for (const Operation& op : transfers(latent, of_role(role))) {
      EXPECT_EQ(op.communication->bytes.value, 512 * (128 * 256 + 64) * 2);
    }
  }
}

}  // namespace
}  // namespace weft
