#include "timeline/trace/communication_facts.hpp"

#include <gtest/gtest.h>

#include "timeline/trace/test_device_trace.hpp"

namespace weft {
namespace {

TEST(CollectiveOp, IsKnownByAllNamesThatTracesUse) {
  for (const char* name : {"allreduce", "all_reduce", "nccl:all_reduce", "allreduce_coalesced",
                           "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
                           "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"}) {
    EXPECT_EQ(collective_op(name), CollectiveOp::all_reduce) << name;
  }
  EXPECT_EQ(collective_op("_reduce_scatter_base"), CollectiveOp::reduce_scatter);
  EXPECT_EQ(collective_op("_allgather_base"), CollectiveOp::all_gather);
  EXPECT_EQ(collective_op("all_to_allv"), CollectiveOp::all_to_all);
  EXPECT_EQ(collective_op("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)"), CollectiveOp::send_recv);
  EXPECT_EQ(collective_op("recv 3<-2"), CollectiveOp::send_recv);
  EXPECT_EQ(collective_op("_reduce_oop"), CollectiveOp::reduce);
  EXPECT_EQ(collective_op("ncclDevKernel_Generic(ncclDevComm*)"), CollectiveOp::other);
}

// doc/PERFORMANCE.md of nccl-tests.
TEST(BusFactor, IsThatOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(CollectiveOp::all_reduce, 8), 2 * 7.0 / 8);
  EXPECT_DOUBLE_EQ(bus_factor(CollectiveOp::all_gather, 8), 7.0 / 8);
  EXPECT_DOUBLE_EQ(bus_factor(CollectiveOp::reduce_scatter, 4), 3.0 / 4);
  EXPECT_DOUBLE_EQ(bus_factor(CollectiveOp::all_to_all, 2), 1.0 / 2);
  EXPECT_DOUBLE_EQ(bus_factor(CollectiveOp::broadcast, 8), 1);
  EXPECT_DOUBLE_EQ(bus_factor(CollectiveOp::send_recv, 2), 1);
  EXPECT_DOUBLE_EQ(bus_factor(CollectiveOp::all_reduce, 0), 1);
}

TEST(SizeClass, EndsAtPowersOfSixteenTimes64KiB) {
  EXPECT_EQ(size_class(-1), -1);
  EXPECT_EQ(size_class(0), 0);
  EXPECT_EQ(size_class((64 << 10) - 1), 0);
  EXPECT_EQ(size_class(64 << 10), 1);
  EXPECT_EQ(size_class((1 << 20) - 1), 1);
  EXPECT_EQ(size_class(1 << 20), 2);
  EXPECT_EQ(size_class(16 << 20), 3);
  EXPECT_EQ(size_class(256 << 20), 4);
  EXPECT_EQ(size_class(std::int64_t{1} << 60), 4);
}

// Per rank 100 floats in and 400 out, of four ranks: nccl-tests' all_gather of 1600 bytes.
TEST(CommunicationTable, CountsBytesAsNcclTestsDo) {
  test::TestDeviceTrace t;
  const auto gather = t.communicate(20, 0, 10), unknown = t.communicate(20, 20, 30), huge = t.communicate(20, 40, 50);
  t.collective(gather, "_allgather_base", "tp", 100, -1, {0, 1, 2, 3});
  t.trace().collectives.back().out_elements = 400;
  t.collective(huge, "allreduce", "tp", INT64_MAX, -1, {0, 1, 2, 3});
  const CommunicationTable table = communication_table(t.trace());
  EXPECT_EQ(table.of[gather].bytes, 1600);
  EXPECT_EQ(table.of[unknown].bytes, -1);
  EXPECT_EQ(table.of[unknown].op, CollectiveOp::all_reduce);
  EXPECT_EQ(table.of[unknown].group, 0);
  EXPECT_EQ(table.of[huge].bytes, -1);
  EXPECT_EQ(table.of[huge].group, table.of[gather].group);
  EXPECT_EQ(table.groups[1].label, "tp");
  EXPECT_EQ(table.groups[1].size, 4);
}

}  // namespace
}  // namespace weft
