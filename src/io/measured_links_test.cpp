#include "io/measured_links.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace weft {
namespace {

// As nccl-tests 2.13 print it, with lines of a launcher before.
const std::string kPrinted = R"(srun: job 7 started
# nThread 1 nGpus 1 minBytes 8 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid  41 on     node-a device  0 [0x1b] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid  42 on     node-a device  1 [0x43] NVIDIA H100 80GB HBM3
#  Rank  2 Group  0 Pid  43 on     node-b device  0 [0x1b] NVIDIA H100 80GB HBM3
#  Rank  3 Group  0 Pid  44 on     node-b device  1 [0x43] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2     float     sum      -1    31.92    0.00    0.00      0    31.55    0.00    0.00      0
     1048576        262144     float     sum      -1    52.43   20.00   30.00      0    52.10   20.13   30.19      0
  1073741824     268435456     float     sum      -1   8053.1  133.33  200.00    N/A   8050.0  133.38  200.08    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 76.67
)";

std::string message_of(const std::string& text, const std::string& file) {
  try {
    read_measured_links(text, file);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(MeasuredLinks, ReadsWhatNcclTestsPrint) {
  const MeasuredCollective read = read_nccl_tests(kPrinted, "out/all_reduce-2.txt");
  EXPECT_EQ(read.collective, Collective::all_reduce);
  EXPECT_EQ(read.members, 4);
  EXPECT_EQ(read.per_node, 2);
  const std::vector<MeasuredCollective::Point> points{{Bytes{1 << 20}, {30e9}}, {Bytes{1 << 30}, {200e9}}};
  EXPECT_EQ(read.points, points);
}

TEST(MeasuredLinks, TheTestsOwnNameWins) {
  const std::string named = "# Collective test starting: reduce_scatter_perf\n" + kPrinted;
  EXPECT_EQ(read_nccl_tests(named, "all_reduce.txt").collective, Collective::reduce_scatter);
}

TEST(MeasuredLinks, ReadsJson) {
  const std::vector<MeasuredCollective> read = read_measured_links(
      R"({"weft_links": 1, "collectives": [
          {"collective": "all_gather", "members": 16, "bytes": [1048576, 1073741824], "bus_gb_per_s": [20, 180.5]},
          {"collective": "all_reduce", "members": 8, "per_node": 4, "bytes": [4096], "bus_gb_per_s": [0.1]}]})",
      "links.json");
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[0].collective, Collective::all_gather);
  EXPECT_EQ(read[0].members, 16);
  EXPECT_EQ(read[0].per_node, 0);
  EXPECT_DOUBLE_EQ(read[0].points[1].bus.bytes_per_second, 180.5e9);
  EXPECT_EQ(read[1].per_node, 4);
}

TEST(MeasuredLinks, MistakesNameTheFileAndTheValue) {
  EXPECT_EQ(message_of(" \n", "a.txt"), "a.txt: is empty");
  EXPECT_EQ(message_of(kPrinted, "two.txt"),
            "two.txt: does not say which collective it measured; name the file all_reduce*.txt");
  EXPECT_NE(message_of("hello\n", "all_reduce.txt").find("has no row with a bus bandwidth"), std::string::npos);
  EXPECT_NE(message_of("8 2 float\n", "all_reduce.txt").find("line 1: '8 2 float' is no row of nccl-tests"),
            std::string::npos);
  EXPECT_NE(message_of("  1024 256 float sum -1 9.0 1.0 fast 0\n", "all_reduce.txt").find("'fast' is no bus bandwidth"),
            std::string::npos);
  EXPECT_NE(message_of(kPrinted + "  1024 256 float sum -1 9.0 1.0 2.0 0\n", "all_reduce.txt").find("does not ascend"),
            std::string::npos);
  EXPECT_NE(message_of("  1024 256 float sum -1 9.0 1.0 2.0 0\n", "all_reduce.txt").find("names 0 ranks"),
            std::string::npos);
  const auto json = [](const std::string& entry) {
    return message_of(R"({"weft_links": 1, "collectives": [)" + entry + "]}", "l.json");
  };
  EXPECT_NE(json("").find("has no entry"), std::string::npos);
  const std::string one = R"({"collective": "all_reduce", "members": 8, "bytes": [8], "bus_gb_per_s": [1]})";
  EXPECT_NE(json(one + "," + one).find("is listed twice"), std::string::npos);
  EXPECT_NE(json(R"({"collective": "all_reduce", "members": 8, "bytes": [8, 4], "bus_gb_per_s": [1, 1]})")
                .find("ascending order"),
            std::string::npos);
  EXPECT_NE(json(R"({"collective": "all_reduce", "members": 8, "bytes": [8], "bus_gb_per_s": []})").find("same number"),
            std::string::npos);
}

}  // namespace
}  // namespace weft
