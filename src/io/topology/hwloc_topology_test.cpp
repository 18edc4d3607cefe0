// Files that lstopo wrote on real machines (tests/data/topologies); rates are counted by hand from them.
#include "io/topology/hwloc_topology.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "base/error.hpp"
#include "base/input_file.hpp"
#include "cluster/topology_cuts.hpp"
#include "io/msccl/msccl_xml.hpp"
#include "io/topology/topology_file.hpp"

namespace weft {
namespace {

class HwlocTopology : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_read_msccl_xml()) GTEST_SKIP() << "this build has no pugixml";
  }
  static std::string text_of(const std::string& name) {
    return read_text_file(std::filesystem::path(WEFT_SOURCE_DIR) / "tests/data/topologies" / name);
  }
  static Topology machine(const std::string& name) { return read_topology_file(text_of(name), "lstopo", std::nullopt); }
  static std::string refused(const std::string& text) {
    try {
      read_topology_file(text, "lstopo.xml", std::nullopt);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  static double gather_rate(const Topology& topology) {
    return gather_bandwidth(slowest_gather_cut(topology), static_cast<std::int64_t>(topology.devices().size()))
        .bytes_per_second;
  }
  static std::map<VertexKind, int> counts(const Topology& topology) {
    std::map<VertexKind, int> count;
    for (const TopologyVertex& vertex : topology.vertices) ++count[vertex.kind];
    return count;
  }
  // MB/s of the links that leave a vertex, ascending.
  static std::vector<std::int64_t> rates_from(const Topology& topology, std::int32_t vertex) {
    std::vector<std::int64_t> rates;
    for (const TopologyLink& link : topology.links) {
      if (link.from == vertex) rates.push_back(std::llround(link.bandwidth.bytes_per_second * 1e-6));
    }
    std::sort(rates.begin(), rates.end());
    return rates;
  }
};

// Two packages; one GPU below the first, two below the second, each at 4 GB/s behind a port of its own; two Ethernet
// ports below one bridge and an InfiniBand card below another. The display card and the disks are left out.
TEST_F(HwlocTopology, ReadsPcieWhereThereIsNothingElse) {
  const Topology topology = machine("hwloc-three-fermis.xml");
  EXPECT_EQ(
      counts(topology),
      (std::map<VertexKind, int>{
          {VertexKind::device, 3}, {VertexKind::nic, 3}, {VertexKind::network_switch, 5}, {VertexKind::host, 2}}));
  // A GPU gets two of three pieces over its 4 GB/s; 10 GB/s between the packages are more than that.
  EXPECT_DOUBLE_EQ(gather_rate(topology), 3 * 4e9 / 2);
  const auto card = std::ranges::find_if(
      topology.vertices, [](const TopologyVertex& vertex) { return vertex.name == "mlx4_0 (0000:05:00.0)"; });
  ASSERT_NE(card, topology.vertices.end());
  const auto at = static_cast<std::int32_t>(card - topology.vertices.begin());
  EXPECT_EQ(rates_from(topology, at), std::vector<std::int64_t>{2'000});
}

// Each P100 has 40 GB/s to its neighbour and 40 to its processor, so PCIe is left out, and two of four pieces cross
// the 10 GB/s that are assumed between processors. Both versions of the format say the same.
TEST_F(HwlocTopology, NvlinkReachesProcessorsOfPower8) {
  const Topology topology = machine("hwloc-power8-v3.xml");
  EXPECT_EQ(counts(topology), (std::map<VertexKind, int>{{VertexKind::device, 4}, {VertexKind::host, 2}}));
  EXPECT_DOUBLE_EQ(gather_rate(topology), 4 * 10e9 / 2);
  for (const std::int32_t device : topology.devices()) {
    EXPECT_EQ(rates_from(topology, device), (std::vector<std::int64_t>{40'000, 40'000}));
  }
  EXPECT_EQ(topology.vertices[topology.devices()[2]].name, "cuda2 (000a:01:00.0)");
  EXPECT_EQ(machine("hwloc-power8-v2.xml"), topology);
}

// hwloc sees the six links of a GPU to the switches of its board but not those between the boards, so that PCIe joins
// the halves: eight of sixteen pieces cross 10 GB/s between the packages.
TEST_F(HwlocTopology, NvswitchesOfADgx2JoinEightGpus) {
  const Topology topology = machine("hwloc-dgx2.xml");
  ASSERT_EQ(topology.devices().size(), 16U);
  EXPECT_DOUBLE_EQ(gather_rate(topology), 16 * 10e9 / 8);
  for (const std::int32_t device : topology.devices()) {
    EXPECT_EQ(rates_from(topology, device),
              (std::vector<std::int64_t>{15'754, 25'000, 25'000, 25'000, 25'000, 25'000, 25'000}));
  }
}

TEST_F(HwlocTopology, SaysWhatIsWrong) {
  const auto says = [&](const std::string& text, const std::string& words) {
    EXPECT_NE(refused(text).find(words), std::string::npos) << refused(text);
  };
  says(text_of("hwloc-no-gpus.xml"), "lstopo.xml:3: <topology>: has 0 GPUs or other accelerators");
  says("<topology><object type=\"Machine\"/></topology>", "attribute 'version' is missing: hwloc 1 wrote it");
  says("<topology version=\"4.0\"/>", "attribute 'version': value '4.0' is not 2.x or 3.x");
  says("<machine/>", "is neither <system>, with which NCCL's topologies begin, nor hwloc's <topology>");
  const std::string good = text_of("hwloc-power8-v3.xml");
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  says(changed("pci_link_speed=\"7.876923\"", "pci_link_speed=\"fast\""), "'pci_link_speed': value 'fast' is not");
  says(changed("nbobjs=\"6\"", "nbobjs=\"7\""), "has 6 <indexes>; 'nbobjs' says 7");
  says(changed("1000000 40000 0 0", "1000000 -40000 0 0"), "'-40000' is not a number from 0 to 1000000");
  std::string deep = "<topology version=\"2.0\">";
  for (int i = 0; i < 70; ++i) deep += "<object type=\"Group\">";
  for (int i = 0; i < 70; ++i) deep += "</object>";
  says(deep + "</topology>", "is more than 64 levels deep");
}

}  // namespace
}  // namespace weft
