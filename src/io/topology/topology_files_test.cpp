#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "base/error.hpp"
#include "base/input_file.hpp"
#include "base/test_folder.hpp"
#include "cluster/topology_cuts.hpp"
#include "cluster/topology_presets.hpp"
#include "io/msccl/msccl_xml.hpp"
#include "io/topology/taccl_sketch.hpp"
#include "io/topology/topology_file.hpp"
#include "io/topology/topology_json.hpp"
#include "io/topology/topology_svg.hpp"

namespace weft {
namespace {

std::string refusal(const std::string& text) {
  try {
    read_topology_file(text, "file", std::nullopt);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

double gathered(const Topology& topology) {
  return gather_bandwidth(slowest_gather_cut(topology), static_cast<std::int64_t>(topology.devices().size()))
             .bytes_per_second *
         1e-9;
}

std::optional<Topology> shared_topology(const std::string& name, std::optional<Bandwidth> nvlink = std::nullopt) {
  const auto path = std::filesystem::path(WEFT_SOURCE_DIR) / "../shared/data/topologies" / name;
  if (!std::filesystem::exists(path)) return std::nullopt;
  return read_topology_file(read_text_file(path), name, nvlink);
}

TEST(TopologyJson, ReadsWhatItWrote) {
  for (const std::string& name : topology_preset_names()) {
    const Topology topology = parse_topology(name + ":2");
    EXPECT_EQ(read_topology_file(write_topology_json(topology), "file", std::nullopt), topology) << name;
  }
}

TEST(TopologyJson, LinksHaveTwoDirectionsUnlessTheySayOne) {
  const std::string text =
      R"({"topology": "t", "vertices": [{"name": "a", "kind": "device"}, {"name": "b", "kind": "device"}],)"
      R"( "links": [{"from": "a", "to": "b", "bandwidth": "1GB/s"},)"
      R"( {"from": "a", "to": "b", "bandwidth": "2GB/s", "directions": "one"}]})";
  const Topology topology = read_topology_file(text, "file", std::nullopt);
  ASSERT_EQ(topology.links.size(), 2u);
  EXPECT_DOUBLE_EQ(topology.links[0].bandwidth.bytes_per_second, 3e9);
  EXPECT_DOUBLE_EQ(topology.links[1].bandwidth.bytes_per_second, 1e9);
}

TEST(TopologyFile, SaysWhatIsWrong) {
  EXPECT_EQ(refusal(" "), "file: is empty");
  EXPECT_NE(refusal("{}").find("has none of the keys 'vertices'"), std::string::npos);
  EXPECT_NE(refusal(R"({"topology": "t", "vertices": [{"name": "a", "kind": "gpu"}], "links": []})").find("'kind'"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"topology": "t", "vertices": [{"name": "a", "kind": "device"}],)"
                    R"( "links": [{"from": "a", "to": "x", "bandwidth": "1GB/s"}]})")
                .find("'to': value \"x\" is not the name of a vertex"),
            std::string::npos);
  EXPECT_NE(refusal("\tGPU0\tGPU1\nGPU0\t X \tNVX\nGPU1\tNV1\t X \n").find("row 'GPU0', column 'GPU1': 'NVX' is not"),
            std::string::npos);
  EXPECT_NE(refusal("hello\n").find("is no table of nvidia-smi topo -m"), std::string::npos);
}

TEST(NvidiaSmiMatrix, FallsBackToPcieWhereNvlinkLeavesDevicesApart) {
  // Two pairs with two NVLinks each, on two processors.
  const std::string text =
      "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\n"
      "GPU0\t X \tNV2\tSYS\tSYS\t0-3\n"
      "GPU1\tNV2\t X \tSYS\tSYS\t0-3\n"
      "GPU2\tSYS\tSYS\t X \tNV2\t4-7\n"
      "GPU3\tSYS\tSYS\tNV2\t X \t4-7\n\nLegend:\n";
  const Topology topology = read_topology_file(text, "file", Bandwidth{25e9});
  // Either pair sends 2 of 4 pieces to the other through the 12 GB/s between the processors.
  EXPECT_DOUBLE_EQ(gathered(topology), 4 * 12.0 / 2);
}

TEST(NcclTopology, NvlinksToASwitchMeetThere) {
  if (!can_read_msccl_xml()) GTEST_SKIP() << "this build has no pugixml";
  std::string text = "<system version=\"1\"><cpu numaid=\"0\">";
  for (int i = 0; i < 4; ++i) {
    text +=
        "<pci busid=\"" + std::to_string(i) +
        "\" class=\"0x030200\" link_speed=\"8 GT/s\" link_width=\"16\"><gpu dev=\"0\" sm=\"80\">"
        "<nvlink target=\"s0\" count=\"2\" tclass=\"0x068000\"/><nvlink target=\"s1\" count=\"1\" tclass=\"0x068000\"/>"
        "</gpu></pci>";
  }
  text += "</cpu></system>";
  // Three links of 20 GB/s, NCCL's figure for this generation, bring 3 of 4 pieces.
  const Topology topology = read_topology_file(text, "file", std::nullopt);
  EXPECT_EQ(topology.vertices.size(), 6u);
  EXPECT_DOUBLE_EQ(gathered(topology), 4 * 60.0 / 3);
}

TEST(AstraSimNetwork, DimensionsJoinDevicesThatDifferInOneCoordinate) {
  const std::string text =
      "# 2D\ntopology: [ Ring, Switch ]\nnpus_count: [ 4, 2 ]\nbandwidth: [ 50.0, 25 ]  # GB/s\nlatency: [ 500, 700.0 "
      "]\n";
  const Topology topology = read_topology_file(text, "file", std::nullopt);
  EXPECT_EQ(topology.devices().size(), 8u);
  EXPECT_EQ(topology.vertices.size(), 8u + 4);
  // Two links of a ring and one to a switch bring 7 of 8 pieces; their gigabyte has 2^30 bytes.
  EXPECT_NEAR(gathered(topology), 8 * (2 * 50 + 25) * 1.073741824 / 7, 1e-5);
  EXPECT_NE(
      refusal("topology: [ Ring ]\nnpus_count: [ 4, 2 ]\nbandwidth: [ 1 ]\nlatency: [ 1 ]").find("'npus_count': 2 ent"),
      std::string::npos);
  EXPECT_NE(
      refusal("topology: [ Rings ]\nnpus_count: [ 4 ]\nbandwidth: [ 1 ]\nlatency: [ 1 ]").find("'Rings' is not known"),
      std::string::npos);
  EXPECT_NE(refusal("topology: [ Ring ]\nnpus_count: [ 4 ]\nlatency: [ 1 ]").find("'bandwidth' is missing"),
            std::string::npos);
}

TEST(TacosLinks, AreOneDirectionEach) {
  const std::string head = "3\nSrc,Dest,Latency (ns),Bandwidth (GB/s)\n";
  const Topology topology = read_topology_file(head + "0,1,500,10\n1,2,500,20\n2,0,500,40.0\n", "file", std::nullopt);
  EXPECT_EQ(topology.links.size(), 3u);
  // A ring in one direction: 2 of 3 pieces cross its slowest link.
  EXPECT_NEAR(gathered(topology), 3 * 10 * 1.073741824 / 2, 1e-5);
  EXPECT_NE(refusal(head + "0,3,500,10\n").find("file:3: destination: 3 is not in 0..2"), std::string::npos);
  EXPECT_NE(refusal(head + "0,1,500\n").find("file:3: has 3 cells"), std::string::npos);
}

TEST(SharedTopologies, HaveTheOptimumOfTheirLinks) {
  const auto dgx1 = shared_topology("dgx1v_topo_m.txt");
  if (!dgx1 || !can_read_msccl_xml()) GTEST_SKIP() << "needs ../shared/data and pugixml";
  // Six NVLinks of 25 GB/s bring 7 of 8 pieces.
  EXPECT_NEAR(gathered(*dgx1), 8 * 150.0 / 7, 1e-6);
  // Eight MI100, six xGMI links of 24 GB/s each.
  EXPECT_NEAR(gathered(*shared_topology("topo_8p6l_4nic.xml")), 8 * 144.0 / 7, 1e-6);
  // A device gets 7 of 8 pieces through the 12 GB/s of the bridge above it.
  EXPECT_NEAR(gathered(*shared_topology("topo_8p_pcie.xml")), 8 * 12.0 / 7, 1e-6);
  // 2^20 bytes take 46 us over one NVLink; a device has six of them, of which pairs count as twice one.
  EXPECT_NEAR(gathered(*shared_topology("topo-ndv2-1MB.json")), 8 * 6 * 1.048576 / 46e-3 / 7, 1e-4);
  EXPECT_NEAR(gathered(*shared_topology("topo-dgx2-1MB.json")), 16 * 1.048576 / 8e-3 / 15, 1e-4);
  EXPECT_EQ(shared_topology("ndv4-topo.xml")->devices().size(), 8u);
}

TEST(TopologySvg, HasABoxForEveryVertex) {
  for (const std::string& name : topology_preset_names()) {
    const Topology topology = parse_topology(name + ":2");
    std::ostringstream out;
    write_topology_svg(out, topology);
    const std::string text = out.str();
    std::size_t boxes = 0;
    for (std::size_t at = 0; (at = text.find("<g>", at)) != std::string::npos; ++at) ++boxes;
    EXPECT_EQ(boxes, topology.vertices.size()) << name;
    EXPECT_TRUE(text.ends_with("</svg>\n"));
  }
}

constexpr const char* kSketch = R"({"nnodes": 2,
  "intranode_sketch": {"strategy": "switch", "switches": [[0,1,2,3]], "switch_hyperedge_strategy": ["uc-min"]},
  "internode_sketch": {"strategy": "relay", "internode_conn": {"1": [0], "3": [2]},
                       "gpus_to_sender_rev_map": {"1": [0, 1], "3": [2, 3]}, "enforce_ordering": true},
  "symmetry_offsets": [[2, 4], [4, 8]], "hyperparameters": {"input_chunkup": 2}})";

TEST(TacclSketch, SaysWhatTacclsFilesSay) {
  const Sketch sketch = read_taccl_sketch(kSketch, "folder/sk.json");
  const Sketch expected{.name = "sk.json",
                        .nodes = 2,
                        .switch_connections = SwitchConnections::few,
                        .crossings = {{1, {0}}, {3, {2}}},
                        .sends_for = {{1, {0, 1}}, {3, {2, 3}}},
                        .rotations = {{2, 4}, {4, 8}},
                        .chunks = 2};
  EXPECT_EQ(sketch, expected);
  const Sketch alone = read_taccl_sketch(
      R"({"nnodes": 1, "intranode_sketch": {"strategy": "none"}, "symmetry_offsets": [],
          "hyperparameters": {"input_chunkup": 6}})",
      "one.json");
  EXPECT_EQ(alone, (Sketch{.name = "one.json", .chunks = 6}));
}

TEST(TacclSketch, MistakesAreNamed) {
  const auto refusal = [](const std::string& before, const std::string& after) {
    std::string text = kSketch;
    const std::size_t at = text.find(before);
    EXPECT_NE(at, std::string::npos) << before;
    text.replace(at, before.size(), after);
    return test::error_of([&] { read_taccl_sketch(text, "sk.json"); });
  };
  EXPECT_NE(refusal("\"nnodes\": 2", "\"nnodes\": 0").find("key 'nnodes'"), std::string::npos);
  EXPECT_NE(refusal("\"switch\"", "\"torus\"").find("key 'strategy'"), std::string::npos);
  EXPECT_NE(refusal("uc-min", "uc-mid").find("switch_hyperedge_strategy"), std::string::npos);
  EXPECT_NE(refusal("{\"1\": [0], \"3\"", "{\"x\": [0], \"3\"").find("'x'"), std::string::npos);
  EXPECT_NE(refusal("[[2, 4], [4, 8]]", "[[2]]").find("symmetry_offsets"), std::string::npos);
  EXPECT_NE(refusal("\"input_chunkup\": 2", "\"input_chunkup\": 0").find("input_chunkup"), std::string::npos);
}

}  // namespace
}  // namespace weft
