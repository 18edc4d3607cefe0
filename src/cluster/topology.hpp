// The wiring of a machine as a graph: devices, NICs, switches and hosts, joined by links. Levels (cluster/cluster.hpp)
// say how fast groups of devices talk; a topology says over which links, so that meshes without a switch, relays
// through a third device, shared NICs and rails are what they are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.hpp"
#include "cluster/cluster.hpp"

namespace weft {

// Devices keep data and send it on; all others only pass it on. A host is the root of PCIe switches (a processor).
enum class VertexKind : std::uint8_t { device, nic, network_switch, host };
std::string_view name_of(VertexKind kind);

struct TopologyVertex {
  std::string name;
  VertexKind kind = VertexKind::device;
  std::int64_t node = -1;   // the machine that it is part of; -1: between machines
  bool multicasts = false;  // sends copies of what arrives once to several links (NVLS, SHARP)
  bool reduces = false;     // adds up what arrives over several links
  friend bool operator==(const TopologyVertex&, const TopologyVertex&) = default;
};

// One direction of a link. Parallel links between two vertices are one link with their sum.
struct TopologyLink {
  std::int32_t from = 0, to = 0;  // vertices
  Bandwidth bandwidth;
  Nanos latency;
  friend bool operator==(const TopologyLink&, const TopologyLink&) = default;
};

// Rank r is the r-th vertex that is a device.
struct Topology {
  std::string name;
  std::vector<TopologyVertex> vertices;
  std::vector<TopologyLink> links;

  std::int32_t add(TopologyVertex vertex);
  // Adds a link with both directions, or bandwidth to one that is there.
  void connect(std::int32_t a, std::int32_t b, Bandwidth bandwidth, Nanos latency);
  // The same for one direction.
  void connect_one_way(std::int32_t from, std::int32_t to, Bandwidth bandwidth, Nanos latency);
  // The vertices that are devices, by rank.
  std::vector<std::int32_t> devices() const;
  friend bool operator==(const Topology&, const Topology&) = default;
};

inline constexpr std::size_t kMaxTopologyDevices = 1024, kMaxTopologyVertices = 8192;
// Exact arithmetic counts bandwidth in whole units of this size, so a link has at least one and at most 10^9 of them.
inline constexpr double kBandwidthUnit = 1e3;  // bytes a second
inline constexpr double kMaxLinkBandwidth = 1e12;
std::int64_t bandwidth_units(Bandwidth bandwidth);

// Returns whether every device reaches every other.
bool joins_all_devices(const Topology& topology);
// Removes vertices other than devices that no link touches.
void drop_unconnected(Topology& topology);

// Throws Error, opened by the topology's name, where a name is empty or given twice, a link joins a vertex to itself or
// has no usable bandwidth, there are fewer than two devices, or a device cannot reach another.
void validate(const Topology& topology);

// Levels as a graph: a switch for every domain of a fabric, a vertex for every link that leads there. Devices that
// share a link also reach each other over it. Throws Error for half-duplex levels.
Topology topology_of(const Cluster& cluster);

}  // namespace weft
