#include "planner/partition/buckets.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "planner/test_plans.hpp"

namespace weft {
namespace {

using Sizes = std::vector<std::int64_t>;

// Items of the given sizes, numbered from 0; a parameter is 4 bytes of gradient.
std::vector<BucketItem> items(const Sizes& parameters) {
  std::vector<BucketItem> result;
  for (const std::int64_t p : parameters) result.push_back({make_id<OpId>(result.size()), 0, p, Bytes{4 * p}, false});
  return result;
}

std::string written(const std::vector<std::vector<OpId>>& buckets) {
  std::string text;
  for (const std::vector<OpId>& bucket : buckets) {
    if (!text.empty()) text += " | ";
    for (std::size_t i = 0; i < bucket.size(); ++i) text += fmt::format("{}{}", i > 0 ? " " : "", bucket[i].value);
  }
  return text;
}

constexpr std::int64_t kMiB = 1 << 20;

// PyTorch: 1 MiB for the first bucket, 25 MiB for the others, looked at after a tensor was added.
TEST(DdpBuckets, CloseOnceTheyHaveReachedTheirLimit) {
  const std::vector<BucketItem> half_mib_then_more =
      items({kMiB / 8, kMiB / 8 - 1, 1, 2 * kMiB, 4 * kMiB, kMiB / 4, 7 * kMiB, kMiB, 1});
  // 0.5 MiB; 1 MiB less 4 bytes; exactly 1 MiB: closed. 8, 24, 25: closed at the limit. 28: closed alone. 4, then the
  // rest stays open.
  EXPECT_EQ(written(cut_into_buckets(half_mib_then_more, ddp_buckets(), 0)), "0 1 2 | 3 4 5 | 6 | 7 8");
  EXPECT_EQ(written(cut_into_buckets(items({8 * kMiB, 1, 1}), ddp_buckets(), 0)), "0 | 1 2")
      << "one beyond both limits";
  EXPECT_EQ(written(cut_into_buckets({}, ddp_buckets(), 0)), "");
}

TEST(DdpBuckets, OfAnAskedForSizeHaveItFromTheFirst) {
  EXPECT_EQ(written(cut_into_buckets(items({kMiB / 4, kMiB / 4, kMiB / 4, kMiB / 4}), ddp_buckets(2.0), 0)),
            "0 1 | 2 3");
}

TEST(DdpBuckets, DoNotLookAtStagesOrChunks) {
  std::vector<BucketItem> list = items({kMiB / 8, kMiB / 8, kMiB, kMiB});
  list[0].chunk = 1;
  list[2].shared_embedding = true;
  EXPECT_EQ(written(cut_into_buckets(list, ddp_buckets(), 3)), "0 1 | 2 3");
}

BucketRule megatron(std::int64_t parameters, bool distributed_optimizer) {
  const StepGraph graph = test::build(test::request(test::small_gpt(2), parse_cluster("local:2"), {}));
  return megatron_buckets(graph, distributed_optimizer, parameters);
}

TEST(MegatronBuckets, CountParametersNotBytes) {
  EXPECT_EQ(written(cut_into_buckets(items({60, 39, 1, 99, 1, 500, 7}), megatron(100, false), 0)),
            "0 1 2 | 3 4 | 5 | 6");
}

// A pipeline rank behind the first has its whole backward of the last micro-batch's ramp to hide in; the first chunk of
// the first rank ends last.
TEST(MegatronBuckets, AreCutOnTheFirstChunkOfTheFirstStageOnly) {
  std::vector<BucketItem> list = items({60, 60, 60, 60, 60, 60, 60});
  list[0].chunk = 2;
  list[1].chunk = list[2].chunk = 1;
  EXPECT_EQ(written(cut_into_buckets(list, megatron(100, false), 0)), "0 | 1 2 | 3 4 | 5 6");
  EXPECT_EQ(written(cut_into_buckets(list, megatron(100, false), 1)), "0 | 1 2 | 3 4 5 6");
  EXPECT_EQ(written(cut_into_buckets(list, megatron_whole_chunks(false), 0)), "0 | 1 2 | 3 4 5 6");
}

// Two copies of a model in opposite directions: the last pipeline rank has the first layers too, as its first chunk.
TEST(MegatronBuckets, AreCutAlikeOnBothRanksThatHoldTheFirstLayers) {
  std::vector<BucketItem> list = items({60, 60, 60, 60});
  list[0].chunk = list[1].chunk = 1;
  BucketRule rule = megatron(100, false);
  rule.rank_with_copy = 3;
  for (const std::int64_t stage : {0, 3}) EXPECT_EQ(written(cut_into_buckets(list, rule, stage)), "0 1 | 2 3");
  list.push_back(list.back());
  for (const std::int64_t stage : {0, 3}) EXPECT_EQ(written(cut_into_buckets(list, rule, stage)), "0 1 | 2 3 | 3");
  for (const std::int64_t stage : {1, 2}) EXPECT_EQ(written(cut_into_buckets(list, rule, stage)), "0 1 | 2 3 3");
}

TEST(MegatronBuckets, KeepASharedEmbeddingApartWithTheDistributedOptimizer) {
  std::vector<BucketItem> list = items({10, 10, 10, 10});
  list[2].shared_embedding = true;
  EXPECT_EQ(written(cut_into_buckets(list, megatron(100, true), 0)), "0 1 | 2 | 3");
  EXPECT_EQ(written(cut_into_buckets(list, megatron(100, true), 1)), "0 1 | 2 | 3");
  EXPECT_EQ(written(cut_into_buckets(list, megatron(100, false), 0)), "0 1 2 3");
  list[2].shared_embedding = false;
  list[0].shared_embedding = true;
  EXPECT_EQ(written(cut_into_buckets(list, megatron_whole_chunks(true), 0)), "0 | 1 2 3");
}

// max(40,000,000, 1,000,000 * group); the group is that of data and context parallel ranks.
TEST(MegatronBuckets, GrowWithTheGroup) {
  const auto limit = [](const char* cluster, Layout layout) {
    return megatron_buckets(test::build(test::request(test::small_gpt(2), parse_cluster(cluster), layout)), false)
        .limit;
  };
  EXPECT_EQ(limit("dgx-a100:5", {}), 40'000'000);
  EXPECT_EQ(limit("dgx-a100:6", {}), 48'000'000);
  EXPECT_EQ(limit("dgx-a100:6", {.cp = 2}), 48'000'000);
  EXPECT_EQ(limit("dgx-a100:6", {.tp = 2}), 40'000'000);
}

// Parameters in each bucket of a role, as the graph has them.
Sizes bucket_sizes(const StepGraph& graph, Role role, std::size_t rank_class = 0, GroupKind group = GroupKind::dp) {
  Sizes sizes;
  for (const Operation& op : graph.operations) {
    if (op.role != role || op.per_micro_batch || op.rank_class.index() != rank_class) continue;
    if (op.communication->group != group) continue;
    std::int64_t sum = 0;
    if (role == Role::param_gather) {
      for (const Write& write : op.writes) sum += graph.value(write.value).elements();
    } else {
      for (const Read& read : op.reads) sum += graph.value(read.value).elements();
    }
    sizes.push_back(sum);
  }
  return sizes;
}

StepGraph bucketed(const StepGraph& whole, const BucketRule& rule, bool gathers = false) {
  return merge_operations(whole, bucket_sets(whole, rule, gathers));
}

// h 64: norms 128 parameters, qkv 12,480, attention_out 4,160, ffn_in 16,640, ffn_out 16,448; embedding (512 rows)
// 32,768, positions 4,096. Two layers: 136,960. Backward: final_norm, then of each layer ffn_out, ffn_in, ffn_norm,
// attention_out, qkv, attention_norm, at last the embedding (which is the head too) and the positions.
constexpr double kMiBOf25000 = 100'000.0 / (1 << 20);  // fp32 gradients of 25,000 parameters

TEST(BucketSets, OfDdpFollowBackward) {
  const StepGraph whole = test::build(test::request(test::small_gpt(2), parse_cluster("dgx-a100:1"), {}));
  const StepGraph graph = bucketed(whole, ddp_buckets(kMiBOf25000));
  // final_norm ffn_out ffn_in | ffn_norm attention_out qkv attention_norm ffn_out | ffn_in ffn_norm attention_out qkv |
  // attention_norm embedding | positions
  EXPECT_EQ(bucket_sizes(graph, Role::grad_reduce), (Sizes{33'216, 33'344, 33'408, 32'896, 4'096}));
}

// Megatron goes by the order of declaration, in which the positions follow the embedding.
TEST(BucketSets, OfMegatronGoBackwardsThroughTheParameters) {
  const StepGraph whole = test::build(test::request(test::small_gpt(2), parse_cluster("dgx-a100:1"), {.zero = 1}));
  const StepGraph graph = bucketed(whole, megatron_buckets(whole, true, 25'000), true);
  EXPECT_EQ(bucket_sizes(graph, Role::grad_reduce), (Sizes{33'216, 33'344, 33'408, 36'992}));
  EXPECT_EQ(bucket_sizes(graph, Role::param_gather), (Sizes{36'992, 33'408, 33'344, 33'216})) << "forward's order";
}

// ZeRO-2 reduces in every micro-batch; its gathers still go in Megatron's buckets.
TEST(BucketSets, OfGathersAreThoseOfTheGradientsAlsoUnderZero2) {
  const StepGraph whole = test::build(test::request(test::small_gpt(2), parse_cluster("dgx-a100:1"), {.zero = 2}));
  const StepGraph graph = bucketed(whole, megatron_buckets(whole, true, 25'000), true);
  EXPECT_EQ(bucket_sizes(graph, Role::grad_reduce), Sizes{});
  EXPECT_EQ(bucket_sizes(graph, Role::param_gather), (Sizes{36'992, 33'408, 33'344, 33'216}));
}

// Two stages of one layer each. The embedding on stage 0 and its copy, the head, on stage 1 are apart under ZeRO-1;
// stage 1 is not cut otherwise. Stage 0: layer 49,984 | positions 4,096 | embedding, or all of it cut at 25,000.
TEST(BucketSets, OfMegatronInAPipelineWithTiedEmbeddings) {
  const PlanRequest sharded = test::request(test::small_gpt(2), parse_cluster("dgx-a100:1"), {.pp = 2, .zero = 1});
  const StepGraph whole = test::build(sharded);
  const StepGraph graph = bucketed(whole, megatron_buckets(whole, true, 25'000), true);
  // ffn_out ffn_in | ffn_norm attention_out qkv attention_norm positions | embedding
  EXPECT_EQ(bucket_sizes(graph, Role::grad_reduce, 0), (Sizes{33'088, 20'992, 32'768}));
  EXPECT_EQ(bucket_sizes(graph, Role::param_gather, 0), (Sizes{32'768, 20'992, 33'088}));
  // head | final_norm and the layer
  EXPECT_EQ(bucket_sizes(graph, Role::grad_reduce, 1), (Sizes{32'768, 50'112}));
  EXPECT_EQ(bucket_sizes(graph, Role::param_gather, 1), (Sizes{50'112, 32'768}));

  const StepGraph unsharded = test::build(test::request(test::small_gpt(2), parse_cluster("dgx-a100:1"), {.pp = 2}));
  const StepGraph together = bucketed(unsharded, megatron_buckets(unsharded, false, 25'000));
  EXPECT_EQ(bucket_sizes(together, Role::grad_reduce, 0), (Sizes{33'088, 53'760}));
  EXPECT_EQ(bucket_sizes(together, Role::grad_reduce, 1), (Sizes{82'880}));
}

// Interleaved, one layer a chunk: stage 0 has layers 0 and 2, stage 1 layers 1 and 3. No head on stage 0 (not tied).
TEST(BucketSets, OfMegatronNeverSpanChunks) {
  Transformer model = test::small_gpt(4);
  model.tied_embeddings = false;
  const PlanRequest r =
      test::request(model, parse_cluster("dgx-a100:1"), {.pp = 2, .vpp = 2, .schedule = PipelineSchedule::interleaved});
  const StepGraph whole = test::build(r);
  const StepGraph graph = bucketed(whole, megatron_buckets(whole, false, 25'000));
  EXPECT_EQ(bucket_sizes(graph, Role::grad_reduce, 0), (Sizes{49'984, 33'088, 53'760}));
  EXPECT_EQ(bucket_sizes(graph, Role::grad_reduce, 1), (Sizes{49'984 + 128 + 32'768, 49'984}));
  // DDP sees one module: 49,984 of layer 2, then layer 0 and the ends, cut anywhere.
  EXPECT_EQ(bucket_sizes(bucketed(whole, ddp_buckets(1.0)), Role::grad_reduce, 0), (Sizes{136'832}));
}

// Experts reduce over edp: buckets of their own, each begun anew.
TEST(BucketSets, KeepExpertsApart) {
  const PlanRequest r = test::request(test::small_moe(4), parse_cluster("dgx-a100:1"), {.ep = 4});
  const StepGraph whole = test::build(r);
  // Layers 1 and 3 or 0 and 2: two of eight experts on a rank, SwiGLU 3 * 64 * 64 parameters each.
  for (const BucketRule& rule : {ddp_buckets(), megatron_buckets(whole, false)}) {
    const StepGraph graph = bucketed(whole, rule);
    EXPECT_EQ(bucket_sizes(graph, Role::grad_reduce, 0, GroupKind::edp), (Sizes{2 * 2 * 3 * 64 * 64}));
    EXPECT_EQ(bucket_sizes(graph, Role::grad_reduce, 0, GroupKind::dp).size(), 1u);
  }
  const StepGraph graph = bucketed(whole, megatron_buckets(whole, false, 10'000));
  // expert_out 2 * 4,096, expert_in 2 * 8,192: out stays open, in closes.
  EXPECT_EQ(bucket_sizes(graph, Role::grad_reduce, 0, GroupKind::edp), (Sizes{24'576, 24'576}));
}

// Sequence parallelism: norms are replicated over tensor-parallel ranks. Each bucket has a reduction of its replicas.
TEST(BucketSets, CutReplicasReductionsAsTheBucketsThatReadThem) {
  const PlanRequest r =
      test::request(test::small_gpt(2), parse_cluster("dgx-a100:1"), {.tp = 2, .sequence_parallel = true});
  const StepGraph whole = test::build(r);
  const StepGraph graph = bucketed(whole, ddp_buckets(kMiBOf25000 / 2));
  const std::vector<std::vector<OpId>> writers = writers_of(graph);
  int buckets = 0, with_replicas = 0;
  std::map<OpId, int> readers;
  for (const Operation& op : graph.operations) {
    if (op.role != Role::grad_reduce) continue;
    ++buckets;
    std::map<OpId, int> replicas;
    for (const Read& read : op.reads) {
      for (const OpId writer : writers[read.value.index()]) {
        if (graph.op(writer).role == Role::replica_reduce) ++replicas[writer];
      }
    }
    EXPECT_LE(replicas.size(), 1u) << describe(op);
    with_replicas += replicas.empty() ? 0 : 1;
    for (const auto& [id, count] : replicas) {
      EXPECT_EQ(static_cast<std::size_t>(count), graph.op(id).writes.size()) << "read by one bucket alone";
    }
  }
  EXPECT_GT(buckets, 2);
  EXPECT_GT(with_replicas, 1);
}

// Data parallelism over nodes with different adapters: two classes, the same buckets in both under one number each.
TEST(BucketSets, AreTheSameInAllClassesOfAGroup) {
  const StepGraph whole = test::build(test::request(test::small_gpt(2), test::uneven_nics(), {}));
  ASSERT_EQ(whole.classes.size(), 2u);
  const StepGraph graph = bucketed(whole, ddp_buckets(kMiBOf25000));
  const Sizes expected{33'216, 33'344, 33'408, 32'896, 4'096};
  std::vector<std::vector<std::int32_t>> transfers(2);
  for (const Operation& op : graph.operations) {
    if (op.role == Role::grad_reduce) transfers[op.rank_class.index()].push_back(op.communication->transfer);
  }
  for (std::size_t c = 0; c < 2; ++c) EXPECT_EQ(bucket_sizes(graph, Role::grad_reduce, c), expected);
  EXPECT_EQ(transfers[0], transfers[1]);
  for (const std::int32_t t : transfers[0]) EXPECT_GE(t, 0);
  EXPECT_EQ(std::set<std::int32_t>(transfers[0].begin(), transfers[0].end()).size(), expected.size());
  // And serial's one bucket.
  EXPECT_EQ(bucket_sizes(merge_operations(whole, one_bucket(whole)), Role::grad_reduce, 1), (Sizes{136'960}));
}

TEST(MergeDeathTest, ATransferMergedInOneOfItsClassesOnlyIsABrokenInvariant) {
  const StepGraph whole = test::build(test::request(test::small_gpt(2), test::uneven_nics(), {}));
  std::vector<MergeSet> sets = one_bucket(whole);
  std::erase_if(sets, [&](const MergeSet& set) {
    const Operation& op = whole.op(set.members.front());
    return op.role == Role::grad_reduce && op.rank_class.index() == 1;
  });
  EXPECT_DEATH(merge_operations(whole, sets), "became");
}

}  // namespace
}  // namespace weft
