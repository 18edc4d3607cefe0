#include "planner/partition/merge.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/test_effort.hpp"
#include "graph/verify_graph.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

using Pair = std::pair<std::int32_t, std::int32_t>;

// What the members of an operation read, write and move, added up by hand.
struct Sum {
  std::set<Pair> reads;
  std::multiset<std::int32_t> writes;
  std::int64_t size = 0;
  Bytes bytes;
  friend bool operator==(const Sum&, const Sum&) = default;
};

void add(Sum& sum, const Operation& op) {
  for (const Read& read : op.reads) sum.reads.insert({read.value.value, read.distance});
  for (const Write& write : op.writes) sum.writes.insert(write.value.value);
  sum.size += op.key.dims[0];
  if (op.communication) sum.bytes += op.communication->bytes;
}

// Every operation of `whole` is the origin of exactly one operation of `graph`, which does what its origins do.
void expect_covers(const StepGraph& graph, const StepGraph& whole) {
  std::vector<int> covered(whole.operations.size(), 0);
  for (const Operation& op : graph.operations) {
    ASSERT_FALSE(op.origins.empty()) << describe(op);
    Sum merged, members;
    add(merged, op);
    for (const Origin& origin : op.origins) {
      EXPECT_EQ(origin.begin, 0);
      EXPECT_EQ(origin.end, origin.of);
      ++covered[origin.operation.index()];
      const Operation& member = whole.op(origin.operation);
      add(members, member);
      EXPECT_EQ(member.rank_class, op.rank_class);
      EXPECT_EQ(member.role, op.role);
      EXPECT_EQ(member.phase, op.phase);
      EXPECT_EQ(member.per_micro_batch, op.per_micro_batch);
    }
    EXPECT_EQ(merged, members) << describe(op);
  }
  for (std::size_t i = 0; i < covered.size(); ++i) {
    EXPECT_EQ(covered[i], 1) << describe(whole.operations[i]);
  }
}

// Stored order: what is read at distance 0 was written earlier in the same class.
void expect_writers_first(const StepGraph& graph) {
  std::vector<int> to_come(graph.values.size(), 0);
  for (const Operation& op : graph.operations) {
    for (const Write& write : op.writes) ++to_come[write.value.index()];
  }
  for (const Operation& op : graph.operations) {
    for (const Read& read : op.reads) {
      if (read.distance == 0) {
        EXPECT_EQ(to_come[read.value.index()], 0)
            << describe(op) << " reads " << graph.value(read.value).name << " before it is written";
      }
    }
    for (const Write& write : op.writes) --to_come[write.value.index()];
  }
}

TEST(OneBucket, KeepsEveryOperationOnceAndWritersFirstInEveryLayout) {
  int graphs = 0;
  test::Sample sample;
  for (const Transformer& model : {test::small_gpt(), test::small_mla()}) {
    for (const auto& [name, layout] : test::layouts()) {
      if (layout.ep > 1 && !model.experts) continue;
      for (int zero = 0; zero <= 3; ++zero) {
        const int turn = graphs++;
        if (!sample.takes()) continue;
        SCOPED_TRACE(fmt::format("{}, {}, zero {}", model.name, name, zero));
        Layout l = layout;
        l.zero = zero;
        l.clip_grad = zero % 2;
        l.recompute = static_cast<Recompute>(turn % 3);
        const ClusterSpec cluster = turn % 4 == 0 ? test::uneven_nics() : parse_cluster("dgx-a100:2");
        const StepGraph whole = test::build(test::request(model, cluster, l));
        const StepGraph graph = merge_operations(whole, one_bucket(whole));
        expect_covers(graph, whole);
        expect_writers_first(graph);
        // The graph's own rules; they read an update's size off its first output, so updates stay single here.
        std::vector<MergeSet> transfers = one_bucket(whole);
        std::erase_if(transfers, [&](const MergeSet& set) {
          const Operation& op = whole.op(set.members.front());
          return op.phase == Phase::optimizer && op.role != Role::grad_reduce;
        });
        EXPECT_NO_THROW(verify_graph(merge_operations(whole, transfers)));
        EXPECT_EQ(graph.values, whole.values);
        EXPECT_EQ(graph.micro_batches, whole.micro_batches);
      }
    }
  }
  EXPECT_EQ(graphs, 4 * (16 + 22));
}

TEST(OneBucket, MakesOneReductionOneUpdateAndOneGatherOfAStep) {
  for (int zero = 0; zero <= 2; ++zero) {
    const StepGraph whole = test::build(test::request(test::small_gpt(4), parse_cluster("dgx-a100:1"), {.zero = zero}));
    const StepGraph graph = merge_operations(whole, one_bucket(whole));
    std::map<Role, int> once;
    for (const Operation& op : graph.operations) once[op.role] += op.per_micro_batch ? 0 : 1;
    EXPECT_EQ(once[Role::grad_reduce], zero == 2 ? 0 : 1) << zero;
    EXPECT_EQ(once[Role::update], 1) << zero;
    EXPECT_EQ(once[Role::param_gather], zero == 0 ? 0 : 1) << zero;
  }
}

TEST(OneBucket, MovesTheWholeGradientInOneMessage) {
  const Transformer model = test::small_gpt(4);
  const PlanRequest request = test::request(model, parse_cluster("dgx-a100:1"), {});
  const StepGraph whole = test::build(request);
  const StepGraph graph = merge_operations(whole, one_bucket(whole));
  const Operation& reduce = graph.op(test::find_op(graph, "stage 0", "grad_reduce optimizer"));
  // fp32 gradients of all parameters; the vocabulary is padded from 500 to 512 rows.
  const std::int64_t parameters = total_parameters(model) + (512 - 500) * model.hidden;
  EXPECT_EQ(reduce.communication->bytes.value, 4 * parameters);
  EXPECT_EQ(reduce.key.dims[0], 4 * parameters);
  EXPECT_EQ(reduce.layer, -1);
}

// ZeRO-3 moves each layer's parameters and gradients in every micro-batch: one gather forward, one backward, one
// reduction. The embedding and the head do the same, but nothing in backward reads the embedding, and the head is still
// there.
TEST(OneBucket, MakesOneGatherAndOneReductionOfALayerUnderZero3) {
  const StepGraph whole = test::build(test::request(test::small_gpt(4), parse_cluster("dgx-a100:1"), {.zero = 3}));
  const StepGraph graph = merge_operations(whole, one_bucket(whole));
  std::map<std::tuple<Role, Phase, std::int32_t>, int> count;
  for (const Operation& op : graph.operations) {
    if (op.is_transfer()) ++count[{op.role, op.phase, op.layer}];
  }
  for (std::int32_t layer = -1; layer < 4; ++layer) {
    EXPECT_EQ((count[{Role::param_gather, Phase::forward, layer}]), layer < 0 ? 2 : 1) << layer;
    EXPECT_EQ((count[{Role::param_gather, Phase::input_grad, layer}]), layer < 0 ? 0 : 1) << layer;
    EXPECT_EQ((count[{Role::grad_reduce, Phase::weight_grad, layer}]), layer < 0 ? 2 : 1) << layer;
  }
  EXPECT_EQ(count.size(), 3u * 5u);
}

TEST(Merge, PlacesASetAtItsFirstOrLastMember) {
  const StepGraph whole = test::build(test::request(test::small_gpt(2), parse_cluster("dgx-a100:1"), {}));
  MergeSet set;
  for (std::size_t i = 0; i < whole.operations.size(); ++i) {
    if (whole.operations[i].role == Role::update) set.members.push_back(make_id<OpId>(i));
  }
  ASSERT_GT(set.members.size(), 2u);
  // Updates are the last operations of the graph; nothing lies between them.
  const StepGraph first = merge_operations(whole, {set});
  EXPECT_EQ(first.operations.size(), whole.operations.size() - set.members.size() + 1);
  EXPECT_EQ(first.operations[set.members.front().index()].origins.size(), set.members.size());
  set.members.erase(set.members.begin() + 1);  // the second stays alone, after the merged one or before it
  set.at_last = true;
  const StepGraph last = merge_operations(whole, {set});
  EXPECT_EQ(last.operations.back().origins.size(), set.members.size());
  EXPECT_EQ(last.operations[last.operations.size() - 2].origins.size(), 1u);
}

TEST(Merge, OfMergedOperationsNamesTheModelsOwn) {
  const StepGraph whole = test::build(test::request(test::small_gpt(2), parse_cluster("dgx-a100:1"), {}));
  const auto updates_of = [](const StepGraph& graph) {
    std::vector<OpId> ids;
    for (std::size_t i = 0; i < graph.operations.size(); ++i) {
      if (graph.operations[i].role == Role::update) ids.push_back(make_id<OpId>(i));
    }
    return ids;
  };
  std::vector<OpId> ids = updates_of(whole);
  const StepGraph halves = merge_operations(whole, {{{ids.begin(), ids.begin() + 3}}, {{ids.begin() + 3, ids.end()}}});
  EXPECT_EQ(updates_of(halves).size(), 2u);
  const StepGraph again = merge_operations(halves, {{updates_of(halves)}});
  expect_covers(again, whole);
}

TEST(Merge, OfNothingOnlyNamesOrigins) {
  const StepGraph whole = test::build(test::request(test::small_moe(2), parse_cluster("dgx-a100:1"), {.ep = 4}));
  StepGraph graph = merge_operations(whole, {});
  for (std::size_t i = 0; i < graph.operations.size(); ++i) {
    EXPECT_EQ(graph.operations[i].origins, (std::vector<Origin>{{make_id<OpId>(i), 0, 0, 1, 1}}));
    graph.operations[i].origins.clear();
  }
  EXPECT_EQ(graph.operations, whole.operations);
}

TEST(MergeDeathTest, OperationsThatDifferAreABrokenInvariant) {
  const StepGraph whole = test::build(test::request(test::small_gpt(2), parse_cluster("dgx-a100:1"), {}));
  const OpId qkv = test::find_op(whole, "stage 0", "layer 0 qkv forward");
  const OpId other = test::find_op(whole, "stage 0", "layer 0 ffn_in forward");
  EXPECT_DEATH(merge_operations(whole, {{{qkv, other}}}), "agree");
  EXPECT_DEATH(merge_operations(whole, {{{qkv}}, {{qkv}}}), "set_of");
}

}  // namespace
}  // namespace weft
