#include "cost/cost_model.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "cluster/presets.hpp"
#include "graph/operation_part.hpp"
#include "model/presets.hpp"

namespace weft {
namespace {

// Links at their stated rate, so that closed forms hold without factors.
Profile ideal_profile() {
  Profile profile = default_profile();
  remove_overheads(profile);
  return profile;
}

const Operation& find(const StepGraph& graph, Role role, Phase phase) {
  for (const Operation& op : graph.operations) {
    if (op.role == role && op.phase == phase) return op;
  }
  ADD_FAILURE() << "no such operation";
  return graph.operations.front();
}

struct Case {
  Cluster cluster;
  StepGraph graph;
  CostModel cost;
  Case(const char* cluster_text, const Layout& layout, Profile profile = ideal_profile())
      : cluster(parse_cluster(cluster_text)),
        graph(build_step_graph(model_preset("megatron-1.7b"), cluster, layout)),
        cost(graph, cluster, std::move(profile)) {}
};

Layout layout(std::int64_t tp, std::int64_t dp) {
  Layout l;
  l.tp = tp;
  l.dp = dp;
  l.global_batch = dp;
  l.seq = 2048;
  return l;
}

TEST(TransferCost, RingAllReduceIsTwiceNMinusOneLatenciesAndTwiceNMinusOneOverNBytes) {
  const Case c("dgx-a100:1,nvlink=300GB/s", layout(8, 1));
  const Operation& op = find(c.graph, Role::attention_reduce, Phase::forward);
  const double bytes = 2048.0 * 2304 * 2;
  const Nanos hop = c.cluster.spec().levels[0].latency;
  const Nanos expected = hop * 14 + nanos_from_seconds(2.0 * 7 / 8 * bytes / 300e9);
  EXPECT_EQ(op.communication->bytes, Bytes{static_cast<std::int64_t>(bytes)});
  EXPECT_EQ(c.cost.transfer(op).alone(), expected);
}

TEST(TransferCost, AStageUsesTheLinksOfItsLevelOnly) {
  // dp over two nodes of eight. Inner: a ring of eight over nvlink, 7 hops and 7/8 of the bytes. Outer: a ring of two
  // over the NICs, all eight places at once with a NIC each; all_reduce passes twice, each time half of its bytes.
  const Case c("dgx-a100:2,nvlink=300GB/s", layout(1, 16));
  Operation op = find(c.graph, Role::grad_reduce, Phase::optimizer);
  ASSERT_EQ(op.communication->collective, Collective::all_reduce);
  const auto bytes = static_cast<double>(op.communication->bytes.value);
  const Nanos inside = c.cluster.spec().levels[0].latency, between = c.cluster.spec().levels[1].latency;
  op.communication->scope = Scope::inner;
  op.communication->collective = Collective::reduce_scatter;
  EXPECT_EQ(c.cost.transfer(op).alone(), inside * 7 + nanos_from_seconds(7.0 / 8 * bytes / 300e9));
  EXPECT_EQ(c.cost.transfer(op).work.size(), 2U);  // nvlink out and in
  op.communication->scope = Scope::outer;
  op.communication->collective = Collective::all_reduce;
  EXPECT_EQ(c.cost.transfer(op).alone(), between * 2 + nanos_from_seconds(bytes / 25e9));
  EXPECT_EQ(c.cost.resource_name(c.cost.transfer(op).work.front().resource), "nic out");
}

TEST(TransferCost, RanksThatShareANicDivideItsBandwidth) {
  // dp over two nodes, tp 8 inside: eight rings at once. p3dn has one 100 Gb/s NIC for all eight, dgx-a100 eight of
  // 200 Gb/s: the same bytes take 8 * 2 = 16 times as long.
  const Case shared("p3dn:2", layout(8, 2));
  const Case own("dgx-a100:2", layout(8, 2));
  const double slow = shared.cost.transfer(find(shared.graph, Role::grad_reduce, Phase::optimizer)).bandwidth_seconds();
  const double fast = own.cost.transfer(find(own.graph, Role::grad_reduce, Phase::optimizer)).bandwidth_seconds();
  EXPECT_NEAR(slow / fast, 16.0, 1e-9);
}

TEST(TransferCost, HalfDuplexLinksCarryBothDirectionsOnOneResource) {
  ClusterSpec spec = parse_cluster("local:2,nic=1Gb/s");
  const Layout l = layout(1, 2);
  const auto busy = [&](Duplex duplex) {
    spec.levels.back().duplex = duplex;
    const Cluster cluster(spec);
    const StepGraph graph = build_step_graph(model_preset("megatron-1.7b"), cluster, l);
    const CostModel cost(graph, cluster, ideal_profile());
    return cost.transfer(find(graph, Role::grad_reduce, Phase::optimizer)).bandwidth_seconds();
  };
  EXPECT_NEAR(busy(Duplex::half) / busy(Duplex::full), 2.0, 1e-9);
}

TEST(TransferCost, BoundsUseNoMoreThanTheRingMoves) {
  for (const char* text : {"dgx-a100:2", "dgx1-v100:2", "p3dn:2"}) {
    const Case c(text, layout(2, 8));
    for (const Operation& op : c.graph.operations) {
      if (!op.is_transfer()) continue;
      EXPECT_LE(c.cost.least_transfer(op).bandwidth_seconds(), c.cost.transfer(op).bandwidth_seconds() * (1 + 1e-12))
          << text << " " << describe(op);
    }
  }
}

// vTrain's table: 64 MiB over 8 A100 at a bus bandwidth of 202.6 GB/s, latency included.
TEST(TransferCost, WithinANodeIsWhatNcclTook) {
  Layout l = layout(8, 1);
  l.micro_batch = 8;
  l.global_batch = 8;
  l.seq = 2048;
  const Case c("dgx-a100:1", l, default_profile());
  const Operation& op = find(c.graph, Role::attention_reduce, Phase::forward);
  const double bytes = 8 * 2048.0 * 2304 * 2;         // 72 MiB
  const double took = 2.0 * 7 / 8 * bytes / 209.4e9;  // vTrain measured this size; the profile interpolates
  EXPECT_NEAR(seconds(c.cost.transfer(op).alone()) / took, 1.0, 0.05);
}

TEST(TransferCost, SmallOnesDoNotGetFasterThanTheSmallestMeasured) {
  const Case c("dgx-a100:1", layout(8, 1), default_profile());
  Operation op = find(c.graph, Role::attention_reduce, Phase::forward);
  op.communication->bytes = Bytes{24 << 10};
  EXPECT_NEAR(seconds(c.cost.transfer(op).alone()), 2.0 * 7 / 8 * (1 << 20) / 19.9e9, 1e-6);
}

struct ExpertCase {
  Cluster cluster;
  StepGraph graph;
  CostModel cost;
  explicit ExpertCase(Profile profile)
      : cluster(parse_cluster("dgx-a100:8")),
        graph(build_step_graph(model(), cluster, layout_of_experts())),
        cost(graph, cluster, std::move(profile)) {}
  static Transformer model() {
    Transformer shape = model_preset("gpt2-s-moe");
    shape.experts->count = 128;
    return shape;
  }
  static Layout layout_of_experts() {
    Layout l = layout(1, 64);
    l.ep = 64;
    l.micro_batch = 16;
    l.global_batch = 16 * 64;
    l.seq = 512;
    return l;
  }
  Operation part(Role role, Phase phase, std::int32_t axis) const {
    Operation op = find(graph, role, phase);
    const auto id = make_id<OpId>(&find(graph, role, phase) - graph.operations.data());
    op.origins = {{id, axis, 0, 1, 4}};
    op.key.dims[0] = part_size(graph, graph.op(id), op.origins.front());
    if (op.communication) op.communication->bytes = {op.key.dims[0]};
    return op;
  }
};

// 64 ranks in nodes of 8, each with a NIC of 25 GB/s: 56 of 64 pieces leave the node.
TEST(TransferCost, AnAllToAllSendsWhatLeavesTheNodeOverTheNic) {
  const ExpertCase c(ideal_profile());
  const Operation& op = find(c.graph, Role::expert_dispatch, Phase::forward);
  const double bytes = 16.0 * 512 * 1.25 * 768 * 2;
  ASSERT_DOUBLE_EQ(static_cast<double>(op.communication->bytes.value), bytes);
  EXPECT_NEAR(c.cost.transfer(op).bandwidth_seconds(), bytes * 56 / 64 / 25e9, 1e-9);
}

// SimAI measured 0.64 of the NIC at 16 MiB among 64, beside large all_reduces at 0.85; the latency is part of that.
TEST(TransferCost, AnAllToAllTakesWhatWasMeasuredOfThem) {
  const ExpertCase c(default_profile());
  Operation op = find(c.graph, Role::expert_dispatch, Phase::forward);
  op.communication->bytes = {16 << 20};
  op.key.dims[0] = op.communication->bytes.value;
  EXPECT_NEAR(seconds(c.cost.transfer(op).alone()), (16 << 20) * 56.0 / 64 / 25e9 / 0.64, 1e-6);
}

// Of 8192 tokens a quarter travels: 2048 rows, 2048 * 768 * 2 bytes, as many for each of 64 ranks in the mean. The
// worst off gets sqrt(2 * 2048 * ln 64) more by chance. By capacity it is a quarter of the padded 10240, for all alike.
TEST(TransferCost, AnAllToAllByTokensTakesWhatItsWorstRankTakes) {
  const ExpertCase c(ideal_profile());
  const double row = 768 * 2 * 56.0 / 64 / 25e9;
  for (const auto& [role, phase] : {std::pair{Role::expert_dispatch, Phase::forward},
                                    {Role::expert_combine, Phase::forward},
                                    {Role::expert_dispatch, Phase::input_grad}}) {
    const TransferCost even = c.cost.transfer(c.part(role, phase, kCapacityAxis));
    const TransferCost uneven = c.cost.transfer(c.part(role, phase, kTokenAxis));
    EXPECT_NEAR(even.bandwidth_seconds(), 10240.0 / 4 * row, 1e-9);
    EXPECT_NEAR(uneven.bandwidth_seconds(), (2048 + std::sqrt(2 * 2048 * std::log(64.0))) * row, 1e-9);
    // Sizes travel ahead of the tokens, once.
    const bool tells = role == Role::expert_dispatch && phase == Phase::forward;
    EXPECT_EQ(uneven.latency, even.latency * (tells ? 2 : 1));
  }
}

// The same ranks wait for the products of the one with the most rows. 2048 rows of 2 local experts from all ranks.
TEST(ComputeCost, ExpertsByTokensTakeWhatTheWorstRankTakes) {
  const ExpertCase c(ideal_profile());
  const Operation even = [&] {
    Operation op = c.part(Role::expert_in, Phase::forward, kTokenAxis);
    op.origins.clear();
    return op;
  }();
  const double expected = seconds(c.cost.compute(even)) * (1 + std::sqrt(2 * std::log(64.0) / 2048));
  EXPECT_NEAR(seconds(c.cost.compute(c.part(Role::expert_in, Phase::forward, kTokenAxis))), expected, 2e-9);
}

TEST(ComputeCost, LargeProductsRunAtTheProfilesShareOfThePeak) {
  const Case c("dgx-a100:1", layout(8, 1));
  const Operation& op = find(c.graph, Role::ffn_in, Phase::forward);
  const double flops = 2.0 * 2048 * 2304 * (4 * 2304 / 8);
  const double seconds = flops / (312e12 * default_profile().device("a100-80").matrix_efficiency);
  EXPECT_EQ(c.cost.compute(op), nanos_from_seconds(seconds));
}

TEST(ComputeCost, TheRuntimesOverheadComesOnTopOfEveryOperation) {
  Profile with = ideal_profile();
  with.devices["a100-80"].operation_overhead = Nanos{700};
  const Case c("dgx-a100:1", layout(8, 1), with), without("dgx-a100:1", layout(8, 1));
  const Operation& product = find(c.graph, Role::ffn_in, Phase::forward);
  EXPECT_EQ(c.cost.compute(product), without.cost.compute(product) + Nanos{700});
  const Operation& update = find(c.graph, Role::update, Phase::optimizer);
  EXPECT_EQ(c.cost.compute(update), without.cost.compute(update) + Nanos{700});
  EXPECT_EQ(c.cost.least_compute(update), without.cost.least_compute(update));  // may be fused
}

TEST(TransferCost, AHandoffIsPartOfTheLatencyAndNotOfTheBound) {
  Profile with = ideal_profile();
  with.devices["a100-80"].handoff = with.devices["cpu"].handoff = Nanos{30'000};
  for (const char* cluster : {"dgx-a100:1,gpus=4", "local:4"}) {
    const Case c(cluster, layout(1, 4), with), without(cluster, layout(1, 4));
    const Operation& op = find(c.graph, Role::grad_reduce, Phase::optimizer);
    EXPECT_EQ(c.cost.transfer(op).latency, without.cost.transfer(op).latency + Nanos{30'000}) << cluster;
    EXPECT_EQ(c.cost.transfer(op).bandwidth_seconds(), without.cost.transfer(op).bandwidth_seconds());
    EXPECT_EQ(c.cost.least_transfer(op).latency, Nanos{0});
  }
}

// Two ranks: two messages one after the other, each of half the buffer; what arrives first is reduced.
TEST(TransferCost, MessagesOfEmulatedTransfersTakeWhatTheirRankAdds) {
  Profile with = ideal_profile();
  with.devices["cpu"].message_overhead = Nanos{1'000'000};
  with.devices["cpu"].reduce = {1e9};
  const Case c("local:2", layout(1, 2), with), without("local:2", layout(1, 2));
  Operation op = find(c.graph, Role::grad_reduce, Phase::optimizer);
  op.communication->collective = Collective::all_reduce;
  op.communication->algorithm = Algorithm::ring;
  op.communication->parts = 1;
  op.communication->bytes = Bytes{8'000'000};
  const double added = 2 * 1e-3 + 4e6 / 1e9;
  EXPECT_NEAR(seconds(c.cost.alone(op)), seconds(without.cost.alone(op)) + added, 1e-8);
}

TEST(Interference, IsTheProfilesWhereItStatesIt) {
  Profile profile = ideal_profile();
  const Case devices("dgx-a100:1", layout(8, 1), profile);
  EXPECT_DOUBLE_EQ(devices.cost.interference(ClassId{0}).compute, 0.1255);  // cluster/device.cpp
  profile.devices["a100-80"].compute_slowdown = 0.5;
  const Case stated("dgx-a100:1", layout(8, 1), profile);
  EXPECT_EQ(stated.cost.interference(ClassId{0}).compute, 0.5);
  EXPECT_DOUBLE_EQ(stated.cost.interference(ClassId{0}).transfer, 0.1255);
}

TEST(Algorithms, ATreeIsChosenOnlyWhereLatencyRules) {
  Case c("dgx-a100:128", layout(1, 1024));
  choose_algorithms(c.graph, c.cost);
  bool tree = false, ring = false;
  for (const Operation& op : c.graph.operations) {
    if (op.role != Role::grad_reduce) continue;
    (op.communication->algorithm == Algorithm::tree ? tree : ring) = true;
  }
  EXPECT_TRUE(tree);  // norms: a few kilobytes over 1,024 ranks
}

// Links of 1 ms: a tree would be the faster by far.
TEST(Algorithms, PacedCollectivesOfAGpuAreRings) {
  Case c("gpu:8,link=50GB/s,latency=1ms", layout(1, 8));
  choose_algorithms(c.graph, c.cost);
  for (const Operation& op : c.graph.operations) {
    if (!op.communication) continue;
    EXPECT_EQ(op.communication->algorithm, Algorithm::ring);
  }
}

}  // namespace
}  // namespace weft
