// The wiring inside a node comes from the vendors' descriptions of the machines. One node has no NICs here, because
// nothing would use them; several are joined by InfiniBand.
#include "cluster/topology_presets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/text.hpp"

namespace weft {
namespace {

constexpr std::int64_t kMaxTopologyNodes = 128;
// Orders of magnitude, as in cluster/presets.cpp.
constexpr Nanos kLatencyOfNvlink{1'000}, kLatencyOfPcie{500}, kLatencyOfInfiniband{2'500};
constexpr Bandwidth kBandwidthOfPcieGen3{12e9};  // x16, payload

// A machine of one kind, as its nodes are added.
using Wiring = void (*)(Topology& topology, std::int64_t nodes);

std::int32_t add_device(Topology& topology, std::int64_t node, std::int64_t number) {
  return topology.add({fmt::format("node{}.gpu{}", node, number), VertexKind::device, node});
}

std::int32_t add_switch(Topology& topology, std::int64_t node, std::string_view kind, std::int64_t number) {
  return topology.add({fmt::format("node{}.{}{}", node, kind, number), VertexKind::network_switch, node});
}

struct CountedLinks {
  std::int32_t a, b;
  int links;
};

void add_mesh(Topology& topology, std::int32_t first, std::span<const CountedLinks> mesh, Bandwidth link) {
  for (const CountedLinks& pair : mesh) {
    topology.connect(first + pair.a, first + pair.b, {pair.links * link.bytes_per_second}, kLatencyOfNvlink);
  }
}

// NIC i of every node is joined to the same leaf switch, rail i.
void add_rails(Topology& topology, std::int64_t nodes, std::int64_t devices_per_node, Bandwidth nic) {
  if (nodes == 1) return;
  const std::vector<std::int32_t> devices = topology.devices();
  for (std::int64_t i = 0; i < devices_per_node; ++i) {
    const std::int32_t rail = topology.add({fmt::format("rail{}", i), VertexKind::network_switch});
    for (std::int64_t node = 0; node < nodes; ++node) {
      const std::int32_t card = topology.add({fmt::format("node{}.nic{}", node, i), VertexKind::nic, node});
      topology.connect(devices[node * devices_per_node + i], card, nic, kLatencyOfPcie);
      topology.connect(card, rail, nic, kLatencyOfInfiniband);
    }
  }
}

// A NIC for every two devices behind their PCIe switch, and one switch for all NICs.
void add_paired_nics(Topology& topology, std::int64_t nodes, std::int64_t devices_per_node, Bandwidth nic) {
  if (nodes == 1) return;
  const std::vector<std::int32_t> devices = topology.devices();
  const std::int32_t hub = topology.add({"infiniband", VertexKind::network_switch});
  for (std::int64_t node = 0; node < nodes; ++node) {
    for (std::int64_t i = 0; i < devices_per_node / 2; ++i) {
      const std::int32_t pcie = add_switch(topology, node, "pcie", i);
      const std::int32_t card = topology.add({fmt::format("node{}.nic{}", node, i), VertexKind::nic, node});
      for (std::int64_t place = 2 * i; place < 2 * i + 2; ++place) {
        topology.connect(devices[node * devices_per_node + place], pcie, kBandwidthOfPcieGen3, kLatencyOfPcie);
      }
      topology.connect(pcie, card, kBandwidthOfPcieGen3, kLatencyOfPcie);
      topology.connect(card, hub, nic, kLatencyOfInfiniband);
    }
  }
}

// DGX-1V: six NVLink2 links of 25 GB/s a GPU in a hybrid cube mesh, as `nvidia-smi topo -m` prints it.
void wire_dgx1v(Topology& topology, std::int64_t nodes) {
  static constexpr std::array kMesh = std::to_array<CountedLinks>({{0, 1, 1},
                                                                   {0, 2, 1},
                                                                   {0, 3, 2},
                                                                   {0, 4, 2},
                                                                   {1, 2, 2},
                                                                   {1, 3, 1},
                                                                   {1, 5, 2},
                                                                   {2, 3, 2},
                                                                   {2, 6, 1},
                                                                   {3, 7, 1},
                                                                   {4, 5, 1},
                                                                   {4, 6, 1},
                                                                   {4, 7, 2},
                                                                   {5, 6, 2},
                                                                   {5, 7, 1},
                                                                   {6, 7, 2}});
  for (std::int64_t node = 0; node < nodes; ++node) {
    const auto first = static_cast<std::int32_t>(topology.vertices.size());
    for (std::int64_t i = 0; i < 8; ++i) add_device(topology, node, i);
    add_mesh(topology, first, kMesh, {25e9});
  }
  add_paired_nics(topology, nodes, 8, {12.5e9});
}

// DGX-2: two boards of eight V100 and six NVSwitches. A GPU has one link of 25 GB/s to every switch of its board, a
// switch eight to its twin on the other board.
void wire_dgx2(Topology& topology, std::int64_t nodes) {
  for (std::int64_t node = 0; node < nodes; ++node) {
    const auto first = static_cast<std::int32_t>(topology.vertices.size());
    for (std::int64_t i = 0; i < 16; ++i) add_device(topology, node, i);
    for (std::int64_t plane = 0; plane < 6; ++plane) {
      const std::int32_t boards[] = {add_switch(topology, node, "nvswitch", plane),
                                     add_switch(topology, node, "nvswitch", plane + 6)};
      for (std::int32_t i = 0; i < 16; ++i) topology.connect(first + i, boards[i / 8], {25e9}, kLatencyOfNvlink);
      topology.connect(boards[0], boards[1], {8 * 25e9}, kLatencyOfNvlink);
    }
  }
  add_paired_nics(topology, nodes, 16, {12.5e9});
}

// So many links of every GPU lead to each of the NVSwitches.
void add_nvswitches(Topology& topology, std::int64_t node, std::int32_t first, std::int32_t devices,
                    std::span<const int> links, Bandwidth link, bool has_nvls) {
  for (std::size_t plane = 0; plane < links.size(); ++plane) {
    const std::int32_t hub = add_switch(topology, node, "nvswitch", static_cast<std::int64_t>(plane));
    topology.vertices[hub].multicasts = topology.vertices[hub].reduces = has_nvls;
    for (std::int32_t i = 0; i < devices; ++i) {
      topology.connect(first + i, hub, {links[plane] * link.bytes_per_second}, kLatencyOfNvlink);
    }
  }
}

// DGX A100: twelve NVLink3 links of 25 GB/s, two to each of six NVSwitches; eight HDR adapters on rails.
void wire_dgx_a100(Topology& topology, std::int64_t nodes) {
  for (std::int64_t node = 0; node < nodes; ++node) {
    const auto first = static_cast<std::int32_t>(topology.vertices.size());
    for (std::int64_t i = 0; i < 8; ++i) add_device(topology, node, i);
    add_nvswitches(topology, node, first, 8, std::array{2, 2, 2, 2, 2, 2}, {25e9}, false);
  }
  add_rails(topology, nodes, 8, {25e9});
}

// DGX H100: eighteen NVLink4 links of 25 GB/s, five or four to each of four NVSwitches, which reduce and multicast;
// eight NDR adapters on rails.
void wire_dgx_h100(Topology& topology, std::int64_t nodes) {
  for (std::int64_t node = 0; node < nodes; ++node) {
    const auto first = static_cast<std::int32_t>(topology.vertices.size());
    for (std::int64_t i = 0; i < 8; ++i) add_device(topology, node, i);
    add_nvswitches(topology, node, first, 8, std::array{5, 4, 4, 5}, {25e9}, true);
  }
  add_rails(topology, nodes, 8, {50e9});
}

// Eight MI250, each of two dies that are devices: four xGMI links of 50 GB/s between the dies of a module, one or two
// to dies of other modules. Between nodes 16 GB/s of InfiniBand a die, which is how ForestColl's evaluation models it.
void wire_mi250(Topology& topology, std::int64_t nodes) {
  static constexpr std::array kMesh = std::to_array<CountedLinks>(
      {{0, 1, 4},   {2, 3, 4},  {4, 5, 4},  {6, 7, 4},   {8, 9, 4},   {10, 11, 4}, {12, 13, 4},
       {14, 15, 4}, {0, 4, 2},  {3, 7, 2},  {8, 12, 2},  {11, 15, 2}, {0, 8, 1},   {1, 5, 1},
       {1, 9, 1},   {1, 10, 1}, {2, 6, 1},  {2, 9, 1},   {2, 10, 1},  {3, 11, 1},  {4, 6, 1},
       {5, 6, 1},   {5, 7, 1},  {9, 13, 1}, {10, 14, 1}, {12, 14, 1}, {13, 14, 1}, {13, 15, 1}});
  const Bandwidth of_infiniband{16e9};
  for (std::int64_t node = 0; node < nodes; ++node) {
    const auto first = static_cast<std::int32_t>(topology.vertices.size());
    for (std::int64_t i = 0; i < 16; ++i) add_device(topology, node, i);
    add_mesh(topology, first, kMesh, {50e9});
  }
  if (nodes == 1) return;
  const std::int32_t hub = topology.add({"infiniband", VertexKind::network_switch});
  for (const std::int32_t device : topology.devices()) {
    topology.connect(device, hub, of_infiniband, kLatencyOfInfiniband);
  }
}

// GB200 NVL72: eighteen trays of four GPUs, eighteen NVLink5 links of 50 GB/s a GPU, one to each of eighteen
// NVSwitches, which reduce and multicast. Racks are joined by one NDR adapter a GPU, on rails of the tray.
void wire_nvl72(Topology& topology, std::int64_t racks) {
  constexpr std::int32_t kDevices = 72;
  for (std::int64_t rack = 0; rack < racks; ++rack) {
    const auto first = static_cast<std::int32_t>(topology.vertices.size());
    for (std::int64_t i = 0; i < kDevices; ++i) add_device(topology, rack, i);
    std::array<int, 18> links{};
    links.fill(1);
    add_nvswitches(topology, rack, first, kDevices, links, {50e9}, true);
  }
  add_rails(topology, racks, kDevices, {50e9});
}

struct NamedWiring {
  std::string_view name;
  Wiring wire;
};
constexpr std::array kWirings{NamedWiring{"dgx1-v100", wire_dgx1v},   NamedWiring{"dgx2", wire_dgx2},
                              NamedWiring{"dgx-a100", wire_dgx_a100}, NamedWiring{"dgx-h100", wire_dgx_h100},
                              NamedWiring{"mi250", wire_mi250},       NamedWiring{"gb200-nvl72", wire_nvl72}};

const NamedWiring* find_wiring(std::string_view text) {
  const std::string_view name = text.substr(0, text.find(':'));
  const auto found = std::ranges::find(kWirings, name, &NamedWiring::name);
  return found == kWirings.end() ? nullptr : &*found;
}

}  // namespace

std::vector<std::string> topology_preset_names() {
  std::vector<std::string> names;
  for (const NamedWiring& wiring : kWirings) names.emplace_back(wiring.name);
  return names;
}

bool is_topology_preset(std::string_view text) {
  return text.find(',') == std::string_view::npos && find_wiring(text) != nullptr;
}

Topology parse_topology(std::string_view text) {
  const NamedWiring* wiring = find_wiring(text);
  if (wiring == nullptr) fail("topology '{}': there is no such{}", text, suggestion(text, topology_preset_names()));
  std::int64_t nodes = 1;
  if (const auto colon = text.find(':'); colon != std::string_view::npos) {
    const std::string what = fmt::format("topology '{}': nodes", text);
    nodes = parse_integer(text.substr(colon + 1), what);
    if (nodes < 1 || nodes > kMaxTopologyNodes) fail("{} {} is not in 1..{}", what, nodes, kMaxTopologyNodes);
  }
  Topology topology{std::string(text), {}, {}};
  wiring->wire(topology, nodes);
  validate(topology);
  return topology;
}

}  // namespace weft
