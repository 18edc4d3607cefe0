// The examples are read from docs/cluster-format.md itself, so that the document cannot drift from the
// reader.
#include "io/cluster_json.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cluster/device_kind.hpp"
#include "cluster/presets.hpp"

namespace weft {
namespace {

using nlohmann::json;

std::vector<std::string> examples() {
  std::ifstream file(WEFT_SOURCE_DIR "/docs/cluster-format.md");
  std::stringstream content;
  content << file.rdbuf();
  const std::string text = content.str();
  const std::string open = "```json\n";
  std::vector<std::string> blocks;
  for (auto at = text.find(open); at != std::string::npos; at = text.find(open, at)) {
    at += open.size();
    blocks.push_back(text.substr(at, text.find("```", at) - at));
  }
  return blocks;
}

std::string example(const std::string& name) {
  for (const std::string& block : examples()) {
    if (json::parse(block).at("name") == name) return block;
  }
  throw Error("docs/cluster-format.md has no example named " + name);
}

Cluster read_example(const std::string& name) {
  return Cluster(read_cluster_json(example(name), "cluster.json"));
}

const Link& last_link(const Cluster& cluster, LevelId fabric, std::int32_t device) {
  return cluster.links()[cluster.link_of(fabric, Rank{device}).index()];
}

TEST(ClusterFormatPage, TwoNodesEqualThePresetButForTheName) {
  ClusterSpec expected = parse_cluster("dgx-a100:2");
  expected.name = "two-dgx";
  EXPECT_EQ(read_cluster_json(example("two-dgx"), "cluster.json"), expected);
}

TEST(ClusterFormatPage, UnequalNodesDifferWhereTheFileSaysSo) {
  const Cluster cluster = read_example("mixed");
  const LevelId nic = cluster.common_fabric(Rank{0}, Rank{31});
  for (std::int32_t device = 0; device < 32; ++device) {
    const std::int32_t node = device / 8;
    EXPECT_DOUBLE_EQ(last_link(cluster, nic, device).bandwidth.bytes_per_second, node < 2 ? 25e9 : 12.5e9);
    EXPECT_EQ(last_link(cluster, nic, device).latency, (Nanos{node < 2 ? 5'000 : 6'000}));
    EXPECT_EQ(cluster.device(Rank{device}).name, node == 3 ? "a100-40" : "a100-80");
  }
}

TEST(ClusterFormatPage, PairsOfDevicesShareAHalfDuplexSwitch) {
  const Cluster cluster = read_example("pcie-servers");
  const LevelId host = cluster.common_fabric(Rank{0}, Rank{3});
  EXPECT_EQ(cluster.level_name(host), "host");
  const std::vector<LinkId> path = cluster.path(host, Rank{1});
  ASSERT_EQ(path.size(), 2U);
  const Link& pcie = cluster.links()[path[0].index()];
  EXPECT_EQ(pcie.duplex, Duplex::half);
  EXPECT_DOUBLE_EQ(pcie.bandwidth.bytes_per_second, 12e9);
  EXPECT_EQ(pcie.latency, Nanos{500});
  EXPECT_EQ(cluster.path(host, Rank{0}), path);
  EXPECT_NE(cluster.path(host, Rank{2})[0], path[0]);
  EXPECT_EQ(cluster.path(host, Rank{2})[1], path[1]) << "the host's memory is one for all four";
  const LevelId nic = cluster.common_fabric(Rank{0}, Rank{4});
  EXPECT_EQ(cluster.path(nic, Rank{1})[0], path[0]) << "the network is behind the same switch";
}

TEST(ClusterFormatPage, OversubscriptionDividesTheUplinkOfALeaf) {
  const Cluster cluster = read_example("leaf-and-spine");
  EXPECT_EQ(cluster.level_name(cluster.common_fabric(Rank{0}, Rank{31})), "nic");
  const LevelId spine = cluster.common_fabric(Rank{0}, Rank{32});
  ASSERT_EQ(cluster.level_name(spine), "spine");
  // 32 devices x 400 Gb/s / 4 = 3.2 Tb/s = 400 GB/s.
  EXPECT_DOUBLE_EQ(last_link(cluster, spine, 0).bandwidth.bytes_per_second, 400e9);
  EXPECT_EQ(cluster.link_of(spine, Rank{0}), cluster.link_of(spine, Rank{31}));
  EXPECT_NE(cluster.link_of(spine, Rank{0}), cluster.link_of(spine, Rank{32}));
  EXPECT_EQ(cluster.path(spine, Rank{40}).size(), 2U);
}

TEST(ClusterFormatPage, ADeviceMayBeGivenInFull) {
  const Device device = read_example("one-of-mine").device(Rank{0});
  EXPECT_EQ(device, (Device{.name = "mine",
                            .matrix_tflops_16 = 200,
                            .matrix_tflops_32 = 50.5,
                            .vector_tflops_32 = 25,
                            .memory = Bytes{51'539'607'552},  // 48 x 2^30
                            .memory_bandwidth = Bandwidth{1e12},
                            .compute_units = 64,
                            .compute_slowdown = 0.1,
                            .transfer_slowdown = 0}));
}

// A node at 85 % computes and reads memory at 85 % of the rate; under a cap of c of r watts products run at the cube
// root of (c - 0.3 r) / 0.7 r: 290 / 490 of 700 W.
TEST(ClusterFormatPage, AStragglerIsAKnownDeviceAtAShareOfItsSpeed) {
  const ClusterSpec spec = read_cluster_json(example("straggler"), "docs");
  const Device known = device_profile("h100");
  ASSERT_EQ(spec.overrides.size(), 2U);
  const Device &slow = *spec.overrides[0].device, &capped = *spec.overrides[1].device;
  EXPECT_EQ(spec.overrides[0].node, 7);
  EXPECT_EQ(kind_of_device(slow.name), "h100");
  EXPECT_EQ(kind_of_device(capped.name), "h100");
  EXPECT_NE(slow.name, capped.name);
  EXPECT_DOUBLE_EQ(slow.matrix_tflops_16, 0.85 * known.matrix_tflops_16);
  EXPECT_DOUBLE_EQ(slow.matrix_tflops_8, 0.85 * known.matrix_tflops_8);
  EXPECT_DOUBLE_EQ(slow.vector_tflops_32, 0.85 * known.vector_tflops_32);
  EXPECT_DOUBLE_EQ(slow.memory_bandwidth.bytes_per_second, 0.85 * known.memory_bandwidth.bytes_per_second);
  EXPECT_EQ(slow.memory, known.memory);
  EXPECT_NEAR(capped.matrix_tflops_16 / known.matrix_tflops_16, std::cbrt(290.0 / 490.0), 1e-12);
  EXPECT_EQ(capped.memory_bandwidth, known.memory_bandwidth);
}

TEST(ClusterJson, ADeviceLikeAKnownOneKeepsWhatTheFileDoesNotSay) {
  const ClusterSpec spec = read_cluster_json(
      R"({"name": "x", "nodes": 1, "devices_per_node": 2, "levels": [{"name": "nvlink", "joins": "node",
          "bandwidth": "450GB/s", "latency": "1us"}],
          "device": {"like": "h100", "name": "ours", "memory": "64GiB", "speed": 0.5}})",
      "x.json");
  EXPECT_EQ(spec.device.name, "h100~ours");
  EXPECT_EQ(spec.device.memory, parse_bytes("64GiB", ""));
  EXPECT_DOUBLE_EQ(spec.device.matrix_tflops_16, 0.5 * device_profile("h100").matrix_tflops_16);
  EXPECT_EQ(spec.device.compute_units, device_profile("h100").compute_units);
}

TEST(ClusterJson, WhatIsWrittenReadsBackTheSame) {
  std::vector<ClusterSpec> specs;
  for (const std::string& text : examples()) specs.push_back(read_cluster_json(text, "docs"));
  ASSERT_EQ(specs.size(), 7U);
  for (const std::string& preset : cluster_preset_names()) {
    specs.push_back(parse_cluster(preset + ":3"));
    // Figures that no decimal text of a few digits holds.
    specs.push_back(parse_cluster(preset + ":3,nic=3.3333333333333335Gb/s,memory=12345678901"));
  }
  specs.back().levels.back().latency = Nanos{1'234'567};
  specs.push_back(specs[1]);
  specs.back().levels[0].latency = Nanos{0};
  specs.back().levels[1].latency = Nanos{100'000'000'000};
  specs.back().levels[1].bandwidth = Bandwidth{1e9 / 3};
  specs.back().levels[1].burst = Bytes{65'432};
  NodeOverride everything{.node = 1, .level = "nvlink", .bandwidth = Bandwidth{1e3}, .latency = Nanos{1}, .device = {}};
  everything.device = parse_cluster("dgx-a100:1,memory=1MB").device;
  specs.back().overrides.push_back(everything);
  for (const ClusterSpec& spec : specs) {
    EXPECT_EQ(read_cluster_json(write_cluster_json(spec), "written"), spec) << write_cluster_json(spec);
    EXPECT_EQ(cluster_from_json(json::parse(cluster_to_json(spec).dump()), "plan.json: cluster"), spec);
  }
}

TEST(ClusterJson, FactsOfExecutionAreKeptInEveryCombination) {
  for (const LinkTiming links : {LinkTiming::nominal, LinkTiming::paced, LinkTiming::measured}) {
    for (const CollectiveMaker collectives : {CollectiveMaker::library, CollectiveMaker::programs}) {
      for (const Runtime runtime : {Runtime::none, Runtime::cpu, Runtime::cuda}) {
        ClusterSpec spec = parse_cluster("dgx-a100:2");
        spec.execution = {links, collectives, runtime};
        EXPECT_EQ(read_cluster_json(write_cluster_json(spec), "cluster.json"), spec);
      }
    }
  }
}

TEST(ClusterJson, EmulatedSaysAllFactsAtOnceAndAnotherKeyWins) {
  json file = json::parse(write_cluster_json(parse_cluster("local:2")));
  EXPECT_EQ(file.at("emulated"), true);
  EXPECT_FALSE(file.contains("links"));
  file["links"] = "measured";
  EXPECT_EQ(read_cluster_json(file.dump(), "cluster.json").execution,
            (Execution{LinkTiming::measured, CollectiveMaker::programs, Runtime::cpu}));
}

TEST(ClusterJson, OverridesThatDifferOnlyInTheNodeAreWrittenAsOne) {
  const json written = cluster_to_json(read_cluster_json(example("mixed"), "docs"));
  ASSERT_EQ(written.at("overrides").size(), 2U);
  EXPECT_EQ(written.at("overrides")[0].at("nodes"), (json::array({2, 3})));
}

TEST(ClusterJson, NumbersAreBytesPerSecondAndNanoseconds) {
  json value = json::parse(example("two-dgx"));
  value["levels"][1]["bandwidth"] = 25e9;
  value["levels"][1]["latency"] = 5000;
  EXPECT_EQ(cluster_from_json(value, "numbers"), read_cluster_json(example("two-dgx"), "text"));
}

struct Mistake {
  const char* name;
  const char* pointer;  // which value of "leaf-and-spine" is replaced (or added)
  const char* value;
  const char* message;
};

void PrintTo(const Mistake& mistake, std::ostream* out) {
  *out << mistake.name;
}
std::string name_of_mistake(const testing::TestParamInfo<Mistake>& mistake) {
  return mistake.param.name;
}

class ClusterJsonMistake : public testing::TestWithParam<Mistake> {};

TEST_P(ClusterJsonMistake, IsNamed) {
  json value = json::parse(example("leaf-and-spine"));
  value[json::json_pointer(GetParam().pointer)] = json::parse(GetParam().value);
  try {
    read_cluster_json(value.dump(), "my.json");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(GetParam().message), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).find("my.json: "), 0U) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ClusterJsonMistake,
    testing::Values(
        Mistake{"UnknownKey", "/node", "4", "key 'node' is not known; did you mean 'nodes'?"},
        Mistake{"UnknownLevelKey", "/levels/1/latencey", "1",
                "levels[1]: key 'latencey' is not known; did you mean 'latency'?"},
        Mistake{"NoName", "/name", "null", "key 'name'"},
        Mistake{"NoNodes", "/nodes", "0", "key 'nodes': value 0 is not an integer in 1..1000000"},
        Mistake{"HugeNodes", "/nodes", "18446744073709551615", "key 'nodes'"},
        Mistake{"FractionalNodes", "/nodes", "1.5", "key 'nodes'"},
        Mistake{"UnknownDevice", "/device", "\"h10\"", "key 'device': value 'h10' is not known; did you mean 'h100'?"},
        Mistake{"DeviceNumber", "/device", "7", "key 'device': value 7 is not the name of a device or an object"},
        Mistake{"DeviceWithoutFigures", "/device", "{\"name\": \"x\"}", "device: key 'matrix_tflops_16' is missing"},
        Mistake{"UnknownDomain", "/levels/0/joins", "\"nodes\"", "levels[0]: key 'joins': value 'nodes' is not known"},
        Mistake{"UnknownDuplex", "/levels/0/duplex", "\"simplex\"", "key 'duplex'"},
        Mistake{"BandwidthWithoutUnit", "/levels/0/bandwidth", "\"300\"",
                "levels[0]: key 'bandwidth': '300' is not a bandwidth"},
        Mistake{"BandwidthList", "/levels/0/bandwidth", "[1]", "a bandwidth such as"},
        Mistake{"BandwidthZero", "/levels/0/bandwidth", "0", "level 'nvlink': bandwidth (bytes/s) 0"},
        Mistake{"BandwidthNull", "/levels/0/bandwidth", "null", "levels[0]: key 'bandwidth'"},
        Mistake{"LatencyNegative", "/levels/0/latency", "-1", "key 'latency'"},
        Mistake{"LatencyFraction", "/levels/0/latency", "0.5", "key 'latency'"},
        Mistake{"Undersubscription", "/levels/2/oversubscription", "0.5", "key 'oversubscription'"},
        Mistake{"LevelIsNoObject", "/levels/0", "3", "levels[0]: value 3 is not an object"},
        Mistake{"LevelsIsNoArray", "/levels", "3", "key 'levels'"},
        Mistake{"RuleOfAllLevels", "/levels/2/via", "[\"nick\"]", "level 'spine': via names 'nick'"},
        Mistake{"ViaNumber", "/levels/2/via", "[1]", "key 'via'"},
        Mistake{"OverrideOfNobody", "/overrides", "[{\"level\": \"nic\", \"bandwidth\": 1e9}]",
                "overrides[0]: one of 'node' and 'nodes' is needed"},
        Mistake{"OverrideOfBoth", "/overrides", "[{\"node\": 1, \"nodes\": [2], \"level\": \"nic\"}]",
                "one of 'node' and 'nodes'"},
        Mistake{"OverrideOfNoNodes", "/overrides", "[{\"nodes\": [], \"device\": \"h200\"}]", "names no node"},
        Mistake{"OverrideOutside", "/overrides", "[{\"node\": 8, \"device\": \"h200\"}]", "node 8 is not in 0..7"},
        Mistake{"OverrideTwice", "/overrides", "[{\"nodes\": [1, 1], \"device\": \"h200\"}]", "sets the device twice"}),
    name_of_mistake);

TEST(ClusterJson, TextThatIsNoJsonIsAnErrorNotACrash) {
  for (const char* bad : {"", "{", "[]", "null", "3", "\"dgx-a100:4\"", "{\"name\": \"\xff\"}"}) {
    EXPECT_THROW(read_cluster_json(bad, "bad.json"), Error) << bad;
  }
}

}  // namespace
}  // namespace weft
