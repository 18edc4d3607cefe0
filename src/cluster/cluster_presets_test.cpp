// Presets against the vendors' totals for a node, and what their text may not say.
#include <gtest/gtest.h>

#include <chrono>

#include "base/error.hpp"
#include "cluster/presets.hpp"

namespace weft {
namespace {

const LevelSpec& level(const ClusterSpec& spec, const std::string& name) {
  for (const LevelSpec& candidate : spec.levels) {
    if (candidate.name == name) return candidate;
  }
  throw Error("no level " + name);
}

double gigabytes(const LevelSpec& level) {
  return level.bandwidth.bytes_per_second / 1e9;
}

std::string error_of(const std::string& text) {
  try {
    parse_cluster(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Presets, EveryPresetBuildsWithOneNodeAndWithMany) {
  for (const std::string& name : cluster_preset_names()) {
    for (const char* nodes : {":1", ":2", ":16"}) {
      const Cluster cluster(parse_cluster(name + nodes));
      const std::int64_t last = cluster.device_count() - 1;
      EXPECT_NO_THROW(cluster.common_fabric(Rank{0}, make_id<Rank>(last))) << name;
      EXPECT_EQ(cluster.spec().name, name + nodes);
    }
  }
}

// NVIDIA's data sheet of the A100 80GB PCIe: 600 GB/s of NVLink between two cards, both directions together.
TEST(Presets, BridgesJoinPairsOfCards) {
  const Cluster cluster(parse_cluster("a100-pcie:2"));
  EXPECT_EQ(cluster.spec().device, device_profile("a100-80-pcie"));
  EXPECT_DOUBLE_EQ(gigabytes(level(cluster.spec(), "nvlink")), 300);
  const auto fabric = [&](std::int32_t a, std::int32_t b) {
    return cluster.level_name(cluster.common_fabric(Rank{a}, Rank{b}));
  };
  EXPECT_EQ(fabric(0, 1), "nvlink");
  EXPECT_EQ(fabric(1, 2), "pcie");
  EXPECT_EQ(fabric(0, 7), "pcie");
  EXPECT_EQ(fabric(6, 7), "nvlink");
  EXPECT_EQ(fabric(7, 8), "nic");
  EXPECT_EQ(cluster.path(cluster.fabrics().back(), Rank{3}).size(), 2U);  // its slot, then the host's adapter
  // Two cards are one pair, and three no pairs.
  EXPECT_EQ(Cluster(parse_cluster("a100-pcie:2,gpus=2")).fabrics().size(), 2U);
  EXPECT_NE(error_of("a100-pcie:2,gpus=3").find("joins 2 devices, which are no equal parts of the 3 of a node"),
            std::string::npos);
}

// NVIDIA's DGX data sheets: 600 and 900 GB/s of NVLink are both directions together; 8 x 200 and 8 x 400
// Gb/s.
TEST(Presets, DgxFiguresArePerDirection) {
  const ClusterSpec a100 = parse_cluster("dgx-a100:16");
  EXPECT_EQ(a100.nodes, 16);
  EXPECT_EQ(a100.devices_per_node, 8);
  EXPECT_EQ(a100.device, device_profile("a100-80"));
  EXPECT_DOUBLE_EQ(gigabytes(level(a100, "nvlink")), 300);
  EXPECT_DOUBLE_EQ(gigabytes(level(a100, "nic")), 25);
  EXPECT_EQ(level(a100, "nic").shared_by, 1);
  EXPECT_EQ(a100.execution, Execution{});
  const ClusterSpec h100 = parse_cluster("dgx-h100:4");
  EXPECT_DOUBLE_EQ(gigabytes(level(h100, "nvlink")), 450);
  EXPECT_DOUBLE_EQ(gigabytes(level(h100, "nic")), 50);
  EXPECT_EQ(parse_cluster("dgx-h200:1").device, device_profile("h200"));
  const ClusterSpec h800 = parse_cluster("dgx-h800:256");  // DeepSeek-V3: 2,048 devices, NVLink of 400 GB/s both ways
  EXPECT_EQ(h800.device, device_profile("h800"));
  EXPECT_EQ(h800.nodes * h800.devices_per_node, 2048);
  EXPECT_DOUBLE_EQ(gigabytes(level(h800, "nvlink")), 200);
}

// Bytes per second that a whole node can send: the sum over its distinct NICs.
double node_nic_gigabits(const std::string& text) {
  const Cluster cluster(parse_cluster(text));
  double bytes_per_second = 0;
  for (const Link& link : cluster.links()) {
    if (cluster.level_name(link.level) == "nic") bytes_per_second += link.bandwidth.bytes_per_second;
  }
  return bytes_per_second * 8e-9 / static_cast<double>(cluster.spec().nodes);
}

TEST(Presets, NodesHaveTheNetworkTheirVendorStates) {
  EXPECT_DOUBLE_EQ(node_nic_gigabits("dgx1-v100:2"), 400);
  EXPECT_DOUBLE_EQ(node_nic_gigabits("dgx-a100:2"), 1600);
  EXPECT_DOUBLE_EQ(node_nic_gigabits("dgx-h100:2"), 3200);
  EXPECT_DOUBLE_EQ(node_nic_gigabits("p3dn:2"), 100);
  EXPECT_DOUBLE_EQ(node_nic_gigabits("p4de:2"), 400);
}

TEST(Presets, TheNicKeyIsTheTotalOfANodeHoweverManyNicsShareIt) {
  EXPECT_DOUBLE_EQ(gigabytes(level(parse_cluster("dgx-a100:8,nic=800Gb/s"), "nic")), 12.5);  // 8 x 100 Gb/s
  for (const char* preset : {"dgx1-v100", "dgx-a100", "p3dn", "p4de"}) {
    for (const char* devices : {"1", "3", "4", "8", "16"}) {
      const std::string text = std::string(preset) + ":2,gpus=" + devices + ",nic=240Gb/s";
      EXPECT_DOUBLE_EQ(node_nic_gigabits(text), 240) << text;
    }
  }
}

TEST(Presets, FewerDevicesKeepTheirShareOfTheNics) {
  EXPECT_DOUBLE_EQ(node_nic_gigabits("dgx-a100:2,gpus=4"), 800);
  EXPECT_DOUBLE_EQ(node_nic_gigabits("p4de:2,gpus=4"), 200);
  EXPECT_DOUBLE_EQ(node_nic_gigabits("p3dn:2,gpus=4"), 100);  // the one NIC stays
  EXPECT_EQ(level(parse_cluster("p3dn:2,gpus=4"), "nic").shared_by, 4);
}

TEST(Presets, V100MachinesReachTheirNicOverASharedPcieSwitch) {
  const Cluster cluster(parse_cluster("p3dn:2"));
  const LevelId nic = cluster.common_fabric(Rank{0}, Rank{8});
  ASSERT_EQ(cluster.level_name(nic), "nic");
  const std::vector<LinkId> path = cluster.path(nic, Rank{3});
  ASSERT_EQ(path.size(), 2U);
  EXPECT_EQ(cluster.level_name(cluster.links()[path[0].index()].level), "pcie");
  EXPECT_EQ(path[0], cluster.path(nic, Rank{2})[0]);
  EXPECT_NE(path[0], cluster.path(nic, Rank{4})[0]);
  EXPECT_EQ(path[1], cluster.path(nic, Rank{7})[1]);
}

TEST(Presets, LocalCountsRanksAndIsLabelledEmulated) {
  const ClusterSpec spec = parse_cluster("local:4,nic=200Mb/s");
  EXPECT_EQ(spec.execution, kEmulation);
  EXPECT_EQ(spec.nodes * spec.devices_per_node, 4);
  EXPECT_EQ(spec.device, device_profile("cpu"));
  EXPECT_DOUBLE_EQ(level(spec, "nic").bandwidth.bytes_per_second, 25e6);
  EXPECT_EQ(level(spec, "nic").latency, Nanos{50'000});
  EXPECT_DOUBLE_EQ(level(parse_cluster("local:4"), "nic").bandwidth.bytes_per_second, 125e6);
}

// An H200 has 132 SMs, in partitions of eight: 16 of them, so four ranks have 4 x 8 each.
TEST(Presets, ALinkMakesRanksPartitionsOfOneGpuAndIsLabelledEmulated) {
  const ClusterSpec spec = parse_cluster("gpu:4,link=50GB/s,latency=3us");
  EXPECT_EQ(spec.execution, kPacedGpuRanks);
  EXPECT_EQ(spec.execution.links, LinkTiming::paced);
  EXPECT_EQ(spec.nodes * spec.devices_per_node, 4);
  ASSERT_EQ(spec.levels.size(), 1U);
  EXPECT_DOUBLE_EQ(gigabytes(level(spec, "link")), 50);
  EXPECT_EQ(level(spec, "link").latency, Nanos{3'000});
  const Device whole = device_profile("h200");
  EXPECT_EQ(spec.device.compute_units, 32);
  EXPECT_DOUBLE_EQ(spec.device.matrix_tflops_16, whole.matrix_tflops_16 * 32 / 132);
  EXPECT_DOUBLE_EQ(spec.device.memory_bandwidth.bytes_per_second, whole.memory_bandwidth.bytes_per_second / 4);
  EXPECT_EQ(spec.device.memory.value, whole.memory.value / 4);
  EXPECT_EQ(parse_cluster("gpu:3,link=50GB/s").device.compute_units, 40);
  EXPECT_EQ(level(parse_cluster("gpu:2,link=50GB/s"), "link").latency, Nanos{1'000});  // NVLink's
  EXPECT_EQ(parse_cluster("gpu:4").execution, kGpuRanks);
}

TEST(Presets, MistakesWithEmulatedLinksOfGpusAreNamed) {
  EXPECT_EQ(error_of("gpu:17,link=50GB/s"),
            "cluster 'gpu:17,link=50GB/s': link: the 132 SMs of one h200 make 16 partitions of 8, not 17");
  EXPECT_EQ(error_of("gpu:4,latency=1us"),
            "cluster 'gpu:4,latency=1us': latency: is of link=, a link that is emulated");
  EXPECT_EQ(
      error_of("gpu:4,link=50GB/s,nic=1GB/s"),
      "cluster 'gpu:4,link=50GB/s,nic=1GB/s': nic and link are given: with link=, ranks are partitions of one GPU "
      "with that link alone");
  EXPECT_EQ(error_of("gpu:4,link=50GB/s,gpus=2").find("gpus and link are given") != std::string::npos, true);
  EXPECT_NE(error_of("gpu:4,link=fast"), "accepted");
  EXPECT_NE(error_of("local:4,link=50GB/s"), "accepted");
}

TEST(Presets, KeysChangeTheDeviceInAnyOrder) {
  Device expected = device_profile("h800");
  expected.memory = Bytes{42'949'672'960};
  EXPECT_EQ(parse_cluster("dgx-h100:2,nvlink=200GB/s,device=h800,memory=40GiB").device, expected);
  EXPECT_EQ(parse_cluster("dgx-h100:2,memory=40GiB,device=h800").device, expected);
  EXPECT_DOUBLE_EQ(gigabytes(level(parse_cluster("dgx-h100:2,nvlink=200GB/s"), "nvlink")), 200);
}

TEST(Presets, MistakesAreNamedWithWhatIsAllowed) {
  EXPECT_EQ(error_of("dgx-a10:4"), "cluster 'dgx-a10:4': 'dgx-a10' is no preset; did you mean 'dgx-a100'?");
  EXPECT_EQ(error_of("dgx-a100:4,nick=1Gb/s"),
            "cluster 'dgx-a100:4,nick=1Gb/s': key 'nick' is not known; did you mean 'nic'?");
  EXPECT_EQ(error_of("dgx-a100"), "cluster 'dgx-a100': the number of nodes is missing; write dgx-a100:4");
  EXPECT_EQ(error_of("dgx-a100:0"), "cluster 'dgx-a100:0': nodes 0 is not in 1..1000000");
  EXPECT_EQ(error_of("local:-2"), "cluster 'local:-2': ranks -2 is not in 1..1000000");
  EXPECT_EQ(error_of("dgx-a100:4,nic"), "cluster 'dgx-a100:4,nic': 'nic' is not key=value");
  EXPECT_EQ(error_of("local:4,gpus=2"),
            "cluster 'local:4,gpus=2': key 'gpus' does not apply to local: a rank is a node of its own with "
            "one link");
  EXPECT_EQ(error_of("dgx-h100:2,device=h80"),
            "cluster 'dgx-h100:2,device=h80': device: 'h80' is not known; did you mean 'h800'?");
  EXPECT_EQ(error_of("dgx-a100:1000000"),
            "cluster 'dgx-a100:1000000': 1000000 nodes of 8 devices are 8000000 devices, at most 1048576 are allowed");
  EXPECT_EQ(parse_cluster("dgx-a100:131072").nodes, 131072);  // 1,048,576 devices
}

TEST(Presets, MalformedTextIsAlwaysAnError) {
  for (const char* bad : {"",
                          ":",
                          ":4",
                          ",",
                          "dgx-a100:",
                          "dgx-a100:x",
                          "dgx-a100:4x",
                          "dgx-a100:4:4",
                          "dgx-a100:1.5",
                          "dgx-a100:99999999999999999999",
                          "dgx-a100:1000001",
                          "dgx-a100:4,",
                          "dgx-a100:4,=1",
                          "dgx-a100:4,nic=",
                          "dgx-a100:4,nic=0Gb/s",
                          "dgx-a100:4,nic=fast",
                          "dgx-a100:4,nic=1b/s",
                          "dgx-a100:4,gpus=0",
                          "dgx-a100:4,gpus=-1",
                          "dgx-a100:4,memory=0",
                          "dgx-a100:4,memory=80",
                          "dgx-a100:4,nic=1Gb/s,nic=1Gb/s",
                          "dgx-a100 :4",
                          "local:4,nvlink=1GB/s",
                          "dgx-a100:1,gpus=9223372036854775807"}) {
    EXPECT_NE(error_of(bad), "accepted") << bad;
  }
}

// 160,000 devices: two links each, well under a second even in a sanitizer build.
TEST(Presets, TwentyThousandNodesBuildQuickly) {
  const auto start = std::chrono::steady_clock::now();
  const Cluster cluster(parse_cluster("dgx-h100:20000"));
  const auto elapsed = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(cluster.device_count(), 160'000);
  EXPECT_EQ(cluster.links().size(), 320'000U);
  EXPECT_LT(elapsed, std::chrono::seconds(1));
}

}  // namespace
}  // namespace weft
