#include "cost/movers.hpp"

#include <gtest/gtest.h>

#include "cost/cost_model.hpp"
#include "graph/test_graphs.hpp"
#include "graph/transfer_mover.hpp"

namespace weft {
namespace {

struct Chosen {
  Collective collective;
  std::int64_t ranks, bytes;
  GpuGeneration generation;
  std::int32_t blocks;
  bool multicast;
  double microseconds;
};

// From a transcription of queryModel_lsa and ncclSymkPickKernel (NCCL 2.29, src/sym_kernels.cc) to Python, of which
// this code took nothing: sizes are of the whole buffer, NCCL's are a rank's for all_gather and reduce_scatter.
constexpr Chosen kOfNccl[] = {
    {Collective::all_reduce, 2, 16384, GpuGeneration::ampere, 5, false, 5.1878},
    {Collective::all_reduce, 2, 268435456, GpuGeneration::ampere, 7, false, 807.1109},
    {Collective::all_reduce, 4, 16384, GpuGeneration::ampere, 6, false, 5.6881},
    {Collective::all_reduce, 4, 16384, GpuGeneration::hopper, 5, true, 5.7315},
    {Collective::all_reduce, 4, 1048576, GpuGeneration::ampere, 6, false, 11.6863},
    {Collective::all_reduce, 4, 1048576, GpuGeneration::hopper, 2, true, 9.6687},
    {Collective::all_reduce, 4, 16777216, GpuGeneration::ampere, 7, false, 81.8292},
    {Collective::all_reduce, 4, 16777216, GpuGeneration::hopper, 3, true, 47.5444},
    {Collective::all_reduce, 4, 268435456, GpuGeneration::ampere, 7, false, 1207.2664},
    {Collective::all_reduce, 4, 268435456, GpuGeneration::hopper, 3, true, 658.7107},
    {Collective::all_reduce, 8, 16384, GpuGeneration::ampere, 7, false, 7.0946},
    {Collective::all_reduce, 8, 16384, GpuGeneration::hopper, 6, true, 7.1309},
    {Collective::all_reduce, 8, 1048576, GpuGeneration::ampere, 7, false, 12.2822},
    {Collective::all_reduce, 8, 1048576, GpuGeneration::hopper, 1, true, 9.4453},
    {Collective::all_reduce, 8, 16777216, GpuGeneration::ampere, 7, false, 94.334},
    {Collective::all_reduce, 8, 16777216, GpuGeneration::hopper, 2, true, 43.422},
    {Collective::all_reduce, 8, 268435456, GpuGeneration::ampere, 7, false, 1407.3441},
    {Collective::all_reduce, 8, 268435456, GpuGeneration::hopper, 2, true, 592.7519},
    {Collective::all_gather, 2, 16384, GpuGeneration::ampere, 5, false, 5.0279},
    {Collective::all_gather, 2, 268435456, GpuGeneration::ampere, 9, false, 406.4096},
    {Collective::all_gather, 4, 16384, GpuGeneration::ampere, 5, false, 5.0279},
    {Collective::all_gather, 4, 16384, GpuGeneration::hopper, 4, true, 5.0621},
    {Collective::all_gather, 4, 1048576, GpuGeneration::ampere, 8, false, 9.4364},
    {Collective::all_gather, 4, 1048576, GpuGeneration::hopper, 4, true, 9.3824},
    {Collective::all_gather, 4, 16777216, GpuGeneration::ampere, 9, false, 44.2634},
    {Collective::all_gather, 4, 16777216, GpuGeneration::hopper, 4, true, 44.4373},
    {Collective::all_gather, 4, 268435456, GpuGeneration::ampere, 9, false, 606.2145},
    {Collective::all_gather, 4, 268435456, GpuGeneration::hopper, 4, true, 608.9973},
    {Collective::all_gather, 8, 16384, GpuGeneration::ampere, 5, false, 5.0279},
    {Collective::all_gather, 8, 16384, GpuGeneration::hopper, 4, true, 5.0621},
    {Collective::all_gather, 8, 1048576, GpuGeneration::ampere, 8, false, 9.7729},
    {Collective::all_gather, 8, 1048576, GpuGeneration::hopper, 2, true, 9.7054},
    {Collective::all_gather, 8, 16777216, GpuGeneration::ampere, 9, false, 50.5073},
    {Collective::all_gather, 8, 16777216, GpuGeneration::hopper, 2, true, 50.7102},
    {Collective::all_gather, 8, 268435456, GpuGeneration::ampere, 9, false, 706.1169},
    {Collective::all_gather, 8, 268435456, GpuGeneration::hopper, 2, true, 709.3635},
    {Collective::reduce_scatter, 2, 16384, GpuGeneration::ampere, 5, false, 5.0279},
    {Collective::reduce_scatter, 2, 268435456, GpuGeneration::ampere, 9, false, 406.4096},
    {Collective::reduce_scatter, 4, 16384, GpuGeneration::ampere, 5, false, 5.0279},
    {Collective::reduce_scatter, 4, 16384, GpuGeneration::hopper, 5, false, 5.0279},
    {Collective::reduce_scatter, 4, 1048576, GpuGeneration::ampere, 8, false, 9.4364},
    {Collective::reduce_scatter, 4, 1048576, GpuGeneration::hopper, 4, true, 9.3824},
    {Collective::reduce_scatter, 4, 16777216, GpuGeneration::ampere, 9, false, 44.2634},
    {Collective::reduce_scatter, 4, 16777216, GpuGeneration::hopper, 4, true, 44.4373},
    {Collective::reduce_scatter, 4, 268435456, GpuGeneration::ampere, 9, false, 606.2145},
    {Collective::reduce_scatter, 4, 268435456, GpuGeneration::hopper, 4, true, 608.9973},
    {Collective::reduce_scatter, 8, 16384, GpuGeneration::ampere, 5, false, 5.0279},
    {Collective::reduce_scatter, 8, 16384, GpuGeneration::hopper, 5, false, 5.0279},
    {Collective::reduce_scatter, 8, 1048576, GpuGeneration::ampere, 8, false, 9.7729},
    {Collective::reduce_scatter, 8, 1048576, GpuGeneration::hopper, 2, true, 9.7054},
    {Collective::reduce_scatter, 8, 16777216, GpuGeneration::ampere, 9, false, 50.5073},
    {Collective::reduce_scatter, 8, 16777216, GpuGeneration::hopper, 2, true, 50.7102},
    {Collective::reduce_scatter, 8, 268435456, GpuGeneration::ampere, 9, false, 706.1169},
    {Collective::reduce_scatter, 8, 268435456, GpuGeneration::hopper, 2, true, 709.3635},
    {Collective::all_reduce, 4, 16384, GpuGeneration::blackwell, 7, true, 11.8565},
    {Collective::all_reduce, 4, 1048576, GpuGeneration::blackwell, 3, true, 20.7058},
    {Collective::all_reduce, 4, 16777216, GpuGeneration::blackwell, 5, true, 38.1942},
    {Collective::all_reduce, 4, 268435456, GpuGeneration::blackwell, 5, true, 333.6069},
    {Collective::all_reduce, 8, 16384, GpuGeneration::blackwell, 9, true, 12.3747},
    {Collective::all_reduce, 8, 1048576, GpuGeneration::blackwell, 2, true, 20.3298},
    {Collective::all_reduce, 8, 16777216, GpuGeneration::blackwell, 3, true, 36.081},
    {Collective::all_reduce, 8, 268435456, GpuGeneration::blackwell, 3, true, 299.7959},
    {Collective::all_gather, 4, 16384, GpuGeneration::blackwell, 3, true, 9.0789},
    {Collective::all_gather, 4, 1048576, GpuGeneration::blackwell, 4, true, 13.9949},
    {Collective::all_gather, 4, 16777216, GpuGeneration::blackwell, 6, true, 31.7053},
    {Collective::all_gather, 4, 268435456, GpuGeneration::blackwell, 6, true, 327.2854},
    {Collective::all_gather, 8, 16384, GpuGeneration::blackwell, 3, true, 9.0789},
    {Collective::all_gather, 8, 1048576, GpuGeneration::blackwell, 2, true, 14.1634},
    {Collective::all_gather, 8, 16777216, GpuGeneration::blackwell, 3, true, 34.9896},
    {Collective::all_gather, 8, 268435456, GpuGeneration::blackwell, 3, true, 379.8329},
    {Collective::reduce_scatter, 4, 16384, GpuGeneration::blackwell, 3, false, 11.6129},
    {Collective::reduce_scatter, 4, 1048576, GpuGeneration::blackwell, 4, true, 13.9949},
    {Collective::reduce_scatter, 4, 16777216, GpuGeneration::blackwell, 6, true, 31.7053},
    {Collective::reduce_scatter, 4, 268435456, GpuGeneration::blackwell, 6, true, 327.2854},
    {Collective::reduce_scatter, 8, 16384, GpuGeneration::blackwell, 3, false, 11.6129},
    {Collective::reduce_scatter, 8, 1048576, GpuGeneration::blackwell, 2, true, 14.1634},
    {Collective::reduce_scatter, 8, 16777216, GpuGeneration::blackwell, 3, true, 34.9896},
    {Collective::reduce_scatter, 8, 268435456, GpuGeneration::blackwell, 3, true, 379.8329},
};

TEST(Movers, KernelsAndBlocksAreThoseThatNcclChooses) {
  for (const Chosen& expected : kOfNccl) {
    const auto kernel =
        symmetric_kernel({expected.collective, expected.ranks, Bytes{expected.bytes}}, expected.generation);
    ASSERT_TRUE(kernel);
    EXPECT_EQ(kernel->thread_blocks, expected.blocks)
        << name_of(expected.collective) << " of " << expected.bytes << " over " << expected.ranks;
    EXPECT_EQ(kernel->multicast, expected.multicast);
    EXPECT_NEAR(kernel->time.seconds() * 1e6, expected.microseconds, 1e-3 * expected.microseconds);
  }
}

TEST(Movers, MulticastHasSixteenBlocksForAllRanksTogetherOnHopper) {
  for (const std::int64_t ranks : {4, 8, 16}) {
    const auto kernel = symmetric_kernel({Collective::all_reduce, ranks, Bytes{1 << 30}}, GpuGeneration::hopper);
    ASSERT_TRUE(kernel && kernel->multicast);
    EXPECT_LE(kernel->thread_blocks, 16 / ranks);
  }
}

// The fewest: one block less is more than 2.5 % slower than the most, for kernels without multicast (A100 has none).
TEST(Movers, OneBlockLessIsTooSlow) {
  for (const std::int64_t bytes : {1 << 22, 1 << 26, 1 << 30}) {
    const NodeCollective what{Collective::all_reduce, 8, Bytes{bytes}};
    const auto kernel = symmetric_kernel(what, GpuGeneration::ampere);
    ASSERT_TRUE(kernel);
    const auto at = [&](std::int32_t blocks) {
      return time_with_blocks(what, GpuGeneration::ampere, blocks)->seconds();
    };
    EXPECT_LE(at(kernel->thread_blocks), 1.025 * at(64));
    EXPECT_GT(at(kernel->thread_blocks - 1), 1.025 * at(64));
  }
}

TEST(Movers, SlowdownGrowsWithTheBlocksBetweenCopiesAndTheLibrary) {
  EXPECT_DOUBLE_EQ(slowdown_with_blocks(0.25, 0.01, 24, 24), 0.25);
  EXPECT_DOUBLE_EQ(slowdown_with_blocks(0.25, 0.01, 12, 24), 0.13);  // 0.01 + 0.24 / 2
  EXPECT_DOUBLE_EQ(slowdown_with_blocks(0.0, 0.01, 12, 24), 0.0);    // nothing interferes
}

// 8 ranks of a node: 64 MiB are gathered. Copies start after 17.5 + 8 x 1.957 us and move 7/8 of the bytes at 392 GB/s,
// unless the library's kernels are slower at that size.
class MoversOfAStep : public testing::Test {
 protected:
  MoversOfAStep() {
    Layout layout;
    layout.zero = 3;
    graph = build_step_graph(model_preset("gpt2-xl"), cluster, test::filled(layout, 8));
    for (const Operation& op : graph.operations) {
      if (op.role == Role::param_gather && op.communication->bytes.value > (1 << 22)) gather = op;
      if (op.role == Role::grad_reduce && op.communication->bytes.value > (1 << 22)) reduction = op;
    }
  }
  const Cluster cluster{parse_cluster("dgx-h100:1")};
  StepGraph graph;
  Operation gather, reduction;
};

TEST_F(MoversOfAStep, CopyEnginesAreSlowerAloneAndTakeLessFromCompute) {
  const CostModel cost(graph, cluster, default_profile());
  Operation copied = gather;
  copied.communication->mover.copy_engine = true;
  const TransferCost by_library = cost.transfer(gather), by_copies = cost.transfer(copied);
  EXPECT_EQ(by_copies.latency, nanos_from_seconds((17.5 + 8 * 1.957) * 1e-6));
  const double at_links_rate = static_cast<double>(gather.communication->bytes.value) * 7 / 8 / 392e9;
  EXPECT_DOUBLE_EQ(by_copies.moving_seconds(), std::max(by_library.moving_seconds(), at_links_rate));
  EXPECT_GT(by_copies.alone(), by_library.alone());
  EXPECT_DOUBLE_EQ(cost.interference(copied).compute, kCopySlowdown);
  EXPECT_DOUBLE_EQ(cost.interference(gather).compute, cost.interference(ClassId{0}).compute);
}

// Userbuffers' ring exchange: the links' work is the library's, one of its 24 thread blocks is taken, and the summands
// of a reduction are read and their sum is written once more.
TEST_F(MoversOfAStep, RingExchangesTakeOneThreadBlockAndAddUpAtTheEnd) {
  const Profile profile = default_profile();
  const CostModel cost(graph, cluster, profile);
  Operation exchanged = gather, summed = reduction;
  summed.communication->collective = Collective::reduce_scatter;
  Operation by_library = summed;
  for (Operation* op : {&exchanged, &summed}) op->communication->mover = {.thread_blocks = 1, .copy_engine = true};
  EXPECT_EQ(cost.alone(exchanged), cost.alone(gather));
  const double library = cost.interference(ClassId{0}).compute;
  for (const Operation* op : {&exchanged, &summed}) {
    EXPECT_DOUBLE_EQ(cost.interference(*op).compute, kCopySlowdown + (library - kCopySlowdown) / 24);
  }
  const double rate =
      cluster.spec().device.memory_bandwidth.bytes_per_second * profile.device("h100").memory_efficiency;
  const double adding = static_cast<double>(summed.communication->bytes.value) * 9 / 8 / rate;
  EXPECT_NEAR(seconds(cost.alone(summed) - cost.alone(by_library)), adding, 2e-9);
}

TEST_F(MoversOfAStep, AreOfferedWhereNcclHasThem) {
  const CostModel cost(graph, cluster, default_profile());
  EXPECT_EQ(cost.possible_movers(gather).size(), 3U);     // the library, blocks, copy engines
  EXPECT_EQ(cost.possible_movers(reduction).size(), 2U);  // copy engines cannot reduce
  const Cluster two(parse_cluster("dgx-h100:2")), local(parse_cluster("local:8"));
  Layout layout;
  layout.zero = 3;
  for (const Cluster* other : {&two, &local}) {
    const StepGraph crossing =
        build_step_graph(model_preset("gpt2-xl"), *other, test::filled(layout, other->device_count()));
    const CostModel of_other(crossing, *other, default_profile());
    for (const Operation& op : crossing.operations) {
      if (op.communication) {
        EXPECT_EQ(of_other.possible_movers(op).size(), 1U) << describe(op);
      }
    }
  }
}

TEST_F(MoversOfAStep, FaultsSayWhatIsWrong) {
  const RankClass& rank_class = graph.classes[ClassId{0}];
  Communication c = reduction.communication.value();
  EXPECT_EQ(mover_fault(cluster, rank_class, c), "");
  c.mover.thread_blocks = 4;
  EXPECT_EQ(mover_fault(cluster, rank_class, c), "");
  c.mover = {.copy_engine = true};
  EXPECT_NE(mover_fault(cluster, rank_class, c).find("cannot reduce"), std::string::npos);
  EXPECT_NE(mover_fault(Cluster(parse_cluster("local:8")), rank_class, c).find("a program"), std::string::npos);
  c.mover = {.thread_blocks = 1, .copy_engine = true};
  c.collective = Collective::reduce_scatter;
  EXPECT_EQ(mover_fault(cluster, rank_class, c), "");
  c.collective = Collective::all_reduce;
  EXPECT_NE(mover_fault(cluster, rank_class, c).find("all_gather and reduce_scatter"), std::string::npos);
}

}  // namespace
}  // namespace weft
