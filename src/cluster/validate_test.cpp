// One good cluster, and every mistake that makes it a bad one.
#include "cluster/validate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "base/error.hpp"

namespace weft {
namespace {

ClusterSpec good() {
  ClusterSpec spec;
  spec.name = "good";
  spec.device = device_profile("a100-80");
  spec.nodes = 4;
  spec.devices_per_node = 8;
  spec.nodes_per_leaf = 2;
  const auto level = [](const char* name, Domain joins, std::vector<std::string> via, std::int64_t shared_by) {
    return LevelSpec{.name = name,
                     .joins = joins,
                     .via = std::move(via),
                     .bandwidth = {25e9},
                     .latency = {5'000},
                     .duplex = Duplex::full,
                     .shared_by = shared_by};
  };
  spec.levels = {level("nvlink", Domain::node, {}, 1), level("pcie", Domain::none, {}, 2),
                 level("nic", Domain::leaf, {"pcie"}, 2), level("spine", Domain::cluster, {"pcie", "nic"}, 16)};
  return spec;
}

NodeOverride override_of(std::int64_t node, const char* level) {
  NodeOverride change;
  change.node = node;
  change.level = level;
  change.bandwidth = Bandwidth{1e9};
  return change;
}

LevelSpec bridge_of(std::int64_t devices) {
  return {
      .name = "bridge", .joins = Domain::part, .part = devices, .via = {}, .bandwidth = {100e9}, .latency = {1'000}};
}

struct Mistake {
  const char* name;
  std::function<void(ClusterSpec&)> make;
  const char* message;  // what the error must say
};

void PrintTo(const Mistake& mistake, std::ostream* out) {
  *out << mistake.name;
}

std::string name_of_mistake(const testing::TestParamInfo<Mistake>& mistake) {
  return mistake.param.name;
}

class ValidateMistake : public testing::TestWithParam<Mistake> {};

TEST_P(ValidateMistake, IsNamed) {
  ClusterSpec spec = good();
  GetParam().make(spec);
  try {
    validate(spec);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(GetParam().message), std::string::npos) << error.what();
  }
}

const double kNaN = std::numeric_limits<double>::quiet_NaN();

INSTANTIATE_TEST_SUITE_P(
    Sizes, ValidateMistake,
    testing::Values(
        Mistake{"NoName", [](ClusterSpec& s) { s.name = ""; }, "name '' is not 1 to 256 characters"},
        Mistake{"NoNodes", [](ClusterSpec& s) { s.nodes = 0; }, "cluster 'good': nodes 0 is not in 1..1000000"},
        Mistake{"TooManyNodes", [](ClusterSpec& s) { s.nodes = 1'000'001; }, "nodes 1000001 is not in"},
        Mistake{"NegativeDevices", [](ClusterSpec& s) { s.devices_per_node = -8; }, "devices_per_node -8"},
        Mistake{"TooManyDevices",
                [](ClusterSpec& s) {
                  s.nodes = 1'000'000;
                  s.devices_per_node = 17;
                },
                "17000000 devices, at most 1048576"},
        Mistake{"NegativeLeaf", [](ClusterSpec& s) { s.nodes_per_leaf = -1; }, "nodes_per_leaf -1"},
        Mistake{"DeviceWithoutMemory", [](ClusterSpec& s) { s.device.memory = {0}; },
                "device 'a100-80': memory (bytes) 0"},
        Mistake{"DeviceNaN", [](ClusterSpec& s) { s.device.matrix_tflops_16 = kNaN; }, "matrix_tflops_16 nan"},
        Mistake{"NegativeSlowdown", [](ClusterSpec& s) { s.device.compute_slowdown = -0.1; },
                "compute_slowdown -0.1 is not in 0..100"}),
    name_of_mistake);

INSTANTIATE_TEST_SUITE_P(
    Levels, ValidateMistake,
    testing::Values(
        Mistake{"SameName", [](ClusterSpec& s) { s.levels[3].name = "nic"; }, "two levels are named 'nic'"},
        Mistake{"OddName", [](ClusterSpec& s) { s.levels[0].name = "nv link"; }, "level name 'nv link'"},
        Mistake{"NoBandwidth", [](ClusterSpec& s) { s.levels[2].bandwidth = {0}; },
                "level 'nic': bandwidth (bytes/s) 0"},
        Mistake{"InfiniteBandwidth", [](ClusterSpec& s) { s.levels[2].bandwidth = {INFINITY}; },
                "bandwidth (bytes/s) inf"},
        Mistake{"NegativeLatency", [](ClusterSpec& s) { s.levels[2].latency = {-1}; }, "latency (ns) -1"},
        Mistake{"UnknownVia", [](ClusterSpec& s) { s.levels[2].via = {"pci"}; },
                "via names 'pci', which is no level; did you mean 'pcie'?"},
        Mistake{"ViaItself", [](ClusterSpec& s) { s.levels[2].via = {"nic", "pcie"}; }, "via names the level itself"},
        Mistake{"ViaTwice", [](ClusterSpec& s) { s.levels[2].via = {"pcie", "pcie"}; }, "via names 'pcie' twice"},
        Mistake{"ViaLater", [](ClusterSpec& s) { s.levels[2].via = {"pcie", "spine"}; }, "which comes later"},
        Mistake{"HopWithVia", [](ClusterSpec& s) { s.levels[1].via = {"nvlink"}; }, "a hop and has no via"},
        Mistake{"UnusedHop",
                [](ClusterSpec& s) {
                  s.levels[2].via = {};
                  s.levels[3].via = {"nic"};
                },
                "level 'pcie': joins nothing and no level names it in via"},
        Mistake{"OuterBeforeInner", [](ClusterSpec& s) { std::swap(s.levels[0], s.levels[2]); },
                "level 'nvlink': joins less than 'nic' before it"},
        Mistake{"TooManyLevels", [](ClusterSpec& s) { s.levels.resize(17, s.levels[0]); }, "17 levels, at most 16"}),
    name_of_mistake);

INSTANTIATE_TEST_SUITE_P(
    Sharing, ValidateMistake,
    testing::Values(
        Mistake{"ByNone", [](ClusterSpec& s) { s.levels[2].shared_by = 0; }, "shared_by 0 is not in 1.."},
        Mistake{"NodeFabricAmongNodes", [](ClusterSpec& s) { s.levels[0].shared_by = 16; },
                "level 'nvlink': shared_by 16 is more than the 8 devices of a node"},
        Mistake{"HopAmongNodes", [](ClusterSpec& s) { s.levels[1].shared_by = 16; }, "level 'pcie': shared_by 16"},
        Mistake{"PartOfANode", [](ClusterSpec& s) { s.levels[3].shared_by = 12; }, "nor a multiple of them"},
        Mistake{"AmongLeaves", [](ClusterSpec& s) { s.levels[3].shared_by = 32; },
                "shared_by 32 is more than the 16 devices of a leaf"}),
    name_of_mistake);

INSTANTIATE_TEST_SUITE_P(
    Reach, ValidateMistake,
    testing::Values(Mistake{"NoLevels", [](ClusterSpec& s) { s.levels.clear(); },
                            "devices 0 and 1 (node 0) cannot talk: no level joins anything"},
                    Mistake{"NodesOnly", [](ClusterSpec& s) { s.levels.resize(1); },
                            "devices 0 and 8 (node 1) cannot talk: the outermost level that joins any, "
                            "'nvlink', joins a node"},
                    Mistake{"LeavesOnly", [](ClusterSpec& s) { s.levels.pop_back(); },
                            "devices 0 and 16 (node 2) cannot talk"},
                    Mistake{"PairsOnly", [](ClusterSpec& s) { s.levels = {bridge_of(2)}; },
                            "devices 0 and 2 (node 0) cannot talk: the outermost level that joins any, 'bridge', "
                            "joins 2 devices"}),
    name_of_mistake);

INSTANTIATE_TEST_SUITE_P(
    Parts, ValidateMistake,
    testing::Values(Mistake{"OneDevice", [](ClusterSpec& s) { s.levels.insert(s.levels.begin(), bridge_of(1)); },
                            "level 'bridge': joins 1 devices, which are no equal parts of the 8 of a node"},
                    Mistake{"Uneven", [](ClusterSpec& s) { s.levels.insert(s.levels.begin(), bridge_of(3)); },
                            "joins 3 devices, which are no equal parts of the 8 of a node"},
                    Mistake{"TheWholeNode", [](ClusterSpec& s) { s.levels.insert(s.levels.begin(), bridge_of(8)); },
                            "a level that joins all of them joins \"node\""},
                    Mistake{"LinksAcrossParts",
                            [](ClusterSpec& s) {
                              s.levels.insert(s.levels.begin(), bridge_of(2));
                              s.levels[0].shared_by = 4;
                            },
                            "level 'bridge': shared_by 4 does not divide the 2 devices that it joins"},
                    Mistake{"BehindTheNode",
                            [](ClusterSpec& s) { s.levels.insert(s.levels.begin() + 1, bridge_of(2)); },
                            "level 'bridge': joins less than 'nvlink' before it"},
                    Mistake{"NotNested",
                            [](ClusterSpec& s) {
                              s.levels.insert(s.levels.begin(), {bridge_of(4), bridge_of(2)});
                              s.levels[1].name = "pair";
                            },
                            "level 'pair': joins 2 devices, which are no multiple of the 4 that 'bridge' before it"}),
    name_of_mistake);

TEST(Validate, PartsOfANodeNestInsideIt) {
  ClusterSpec spec = good();
  spec.levels.insert(spec.levels.begin(), {bridge_of(2), bridge_of(4)});
  spec.levels[1].name = "socket";
  spec.levels[0].shared_by = 2;
  EXPECT_NO_THROW(validate(spec));
}

INSTANTIATE_TEST_SUITE_P(
    Overrides, ValidateMistake,
    testing::Values(
        Mistake{"UnknownNode", [](ClusterSpec& s) { s.overrides = {override_of(4, "nic")}; }, "node 4 is not in 0..3"},
        Mistake{"UnknownLevel", [](ClusterSpec& s) { s.overrides = {override_of(3, "nics")}; },
                "override of node 3: level 'nics' is not known; did you mean 'nic'?"},
        Mistake{"NoLevel", [](ClusterSpec& s) { s.overrides = {override_of(3, "")}; }, "names no level"},
        Mistake{"NoChange", [](ClusterSpec& s) { s.overrides = {NodeOverride{}}; }, "node 0: changes nothing"},
        Mistake{"LevelWithoutChange",
                [](ClusterSpec& s) {
                  s.overrides = {override_of(3, "nic")};
                  s.overrides[0].bandwidth.reset();
                },
                "names level 'nic' but no bandwidth or latency"},
        Mistake{"Twice", [](ClusterSpec& s) { s.overrides = {override_of(3, "nic"), override_of(3, "nic")}; },
                "sets the bandwidth of 'nic' twice"},
        Mistake{"BadBandwidth",
                [](ClusterSpec& s) {
                  s.overrides = {override_of(3, "nic")};
                  s.overrides[0].bandwidth = Bandwidth{-1};
                },
                "override of node 3: bandwidth (bytes/s) -1"}),
    name_of_mistake);

TEST(Validate, AcceptsTheSpecThatTheMistakesStartFrom) {
  EXPECT_NO_THROW(validate(good()));
}

TEST(Validate, AHopMayBeListedAfterTheLevelThatCrossesIt) {
  ClusterSpec spec = good();
  std::swap(spec.levels[1], spec.levels[2]);
  EXPECT_NO_THROW(validate(spec));
}

TEST(Validate, OneNodeNeedsNoMoreThanItsOwnFabricAndOneLeafNoSpine) {
  ClusterSpec spec = good();
  spec.nodes = 1;
  spec.levels.resize(1);
  EXPECT_NO_THROW(validate(spec));
  spec = good();
  spec.nodes = 2;  // both in the one leaf
  spec.levels.pop_back();
  EXPECT_NO_THROW(validate(spec));
}

}  // namespace
}  // namespace weft
