#include <gtest/gtest.h>

#include "study/collective/collective_bench.hpp"

namespace weft {
namespace {

TEST(BusBandwidth, IsWhatNcclTestsDefines) {
  // 1000 bytes in 1 us: 1 GB/s; all_reduce over 4 ranks 2 * 3/4 of it, all_gather 3/4, broadcast all.
  const Bytes size{1000};
  const Nanos time{1000};
  EXPECT_DOUBLE_EQ(bus_bandwidth(Collective::all_reduce, 4, size, time), 1.5e9);
  EXPECT_DOUBLE_EQ(bus_bandwidth(Collective::all_gather, 4, size, time), 0.75e9);
  EXPECT_DOUBLE_EQ(bus_bandwidth(Collective::all_to_all, 4, size, time), 0.75e9);
  EXPECT_DOUBLE_EQ(bus_bandwidth(Collective::broadcast, 4, size, time), 1e9);
  EXPECT_EQ(bus_bandwidth(Collective::barrier, 4, size, time), 0);
  EXPECT_EQ(bus_bandwidth(Collective::broadcast, 1, size, time), 0);
}

}  // namespace
}  // namespace weft
