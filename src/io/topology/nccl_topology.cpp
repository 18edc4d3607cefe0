#include "io/topology/nccl_topology.hpp"

#include <fmt/format.h>

#include <map>
#include <vector>

#include "base/error.hpp"

namespace weft {
namespace {

constexpr Nanos kHopOfNvlink{1'000}, kHopOfPcie{500};
constexpr Bandwidth kBetweenHosts{10e9};  // QPI of Skylake, which NCCL assumes too where it knows no better
constexpr int kMaxDepth = 32;             // of PCI elements

// NCCL's constants (src/graph/topo.h): GB/s that one NVLink of a generation carries.
double nvlink_rate(std::int64_t compute_capability) {
  if (compute_capability >= 100) return 40.1e9;
  if (compute_capability >= 90) return 20.6e9;
  if (compute_capability >= 70) return 20e9;
  return 18e9;
}

// RCCL's: by the number of the graphics core.
double xgmi_rate(std::int64_t core) {
  if (core >= 940) return 48e9;
  return core >= 910 ? 36e9 : 24e9;
}

enum class PciKind { bridge, device, nic, nvlink_switch, other };
PciKind pci_kind(const std::string& pci_class) {
  if (pci_class.starts_with("0x0604")) return PciKind::bridge;
  if (pci_class.starts_with("0x0302") || pci_class.starts_with("0x0380")) return PciKind::device;
  if (pci_class.starts_with("0x0207") || pci_class.starts_with("0x0200")) return PciKind::nic;
  return pci_class.starts_with("0x0680") ? PciKind::nvlink_switch : PciKind::other;
}

// Lanes times the rate of a lane, as NCCL counts them: 12 GB/s for 16 lanes of 8 GT/s.
Bandwidth pcie_bandwidth(const XmlElement& element) {
  if (!element.has("link_speed") || !element.has("link_width")) return {12e9};
  static const std::map<std::string, double> kBytesPerLane = {
      {"2.5", 0.1875e9}, {"5", 0.375e9}, {"5.0", 0.375e9}, {"8", 0.75e9}, {"8.0", 0.75e9}, {"16", 1.5e9},
      {"16.0", 1.5e9},   {"32", 3e9},    {"32.0", 3e9},    {"64", 6e9},   {"64.0", 6e9}};
  const std::string speed = element.text("link_speed");
  const auto found = kBytesPerLane.find(speed.substr(0, speed.find(' ')));
  const double lane = found == kBytesPerLane.end() ? 0.75e9 : found->second;
  const std::int64_t lanes = element.integer("link_width", 0, 64);
  return {lane * static_cast<double>(lanes == 0 ? 16 : lanes)};
}

class NcclReader {
 public:
  NcclReader(const std::string& file_name, std::optional<Bandwidth> nvlink)
      : topology_{file_name, {}, {}}, nvlink_(nvlink) {}

  Topology read(const XmlElement& system) {
    std::vector<std::int32_t> hosts;
    for (const XmlElement& cpu : system.all_children()) {
      if (cpu.tag() != "cpu") continue;
      hosts.push_back(topology_.add({fmt::format("host{}", hosts.size()), VertexKind::host, 0}));
      for (const XmlElement& pci : cpu.all_children()) read_pci(pci, hosts.back(), 0);
    }
    for (const Nvlink& link : nvlinks_) add_nvlink(link);
    const std::size_t devices = topology_.devices().size();
    if (devices < 2) system.complain(fmt::format("has {} devices; at least 2 are needed", devices));
    if (!joins_all_devices(topology_)) {
      for (const TopologyLink& link : pcie_) topology_.connect(link.from, link.to, link.bandwidth, link.latency);
      for (std::size_t i = 1; i < hosts.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) topology_.connect(hosts[i], hosts[j], kBetweenHosts, kHopOfPcie);
      }
    }
    drop_unconnected(topology_);
    validate(topology_);
    return std::move(topology_);
  }

 private:
  struct Nvlink {
    std::int32_t from;
    std::string target;
    bool to_switch;
    Bandwidth bandwidth;
  };

  void read_pci(const XmlElement& pci, std::int32_t above, int depth) {
    if (pci.tag() != "pci") return;
    if (depth == kMaxDepth) pci.complain(fmt::format("is more than {} levels deep", kMaxDepth));
    const std::string bus = pci.text("busid");
    const PciKind kind = pci_kind(pci.text("class"));
    if (kind == PciKind::nvlink_switch || kind == PciKind::other) return;
    const VertexKind vertex_kind = kind == PciKind::device ? VertexKind::device
                                   : kind == PciKind::nic  ? VertexKind::nic
                                                           : VertexKind::network_switch;
    const std::int32_t vertex = topology_.add({bus, vertex_kind, 0});
    if (!by_bus_.emplace(bus, vertex).second) pci.complain(fmt::format("busid '{}' is given twice", bus));
    pcie_.push_back({vertex, above, pcie_bandwidth(pci), kHopOfPcie});
    for (const XmlElement& child : pci.all_children()) {
      if (child.tag() == "pci") read_pci(child, vertex, depth + 1);
      if (child.tag() == "gpu") read_device(child, vertex);
      if (child.tag() == "nic") read_nic(child, vertex);
    }
  }

  void read_device(const XmlElement& device, std::int32_t vertex) {
    for (const XmlElement& link : device.all_children()) {
      if (link.tag() != "nvlink" && link.tag() != "xgmi") continue;
      const bool xgmi = link.tag() == "xgmi";
      const char* generation = xgmi ? "gcn" : "sm";
      const std::int64_t number = device.has(generation) ? device.integer(generation, 0, 100'000) : 0;
      const double rate = nvlink_ ? nvlink_->bytes_per_second : xgmi ? xgmi_rate(number) : nvlink_rate(number);
      const bool to_switch = link.has("tclass") && pci_kind(link.text("tclass")) == PciKind::nvlink_switch;
      const auto count = static_cast<double>(link.integer("count", 1, 1024));
      nvlinks_.push_back({vertex, link.text("target"), to_switch, {count * rate}});
    }
  }

  // The name that NCCL calls the NIC by.
  void read_nic(const XmlElement& nic, std::int32_t vertex) {
    for (const XmlElement& net : nic.all_children()) {
      if (net.tag() != "net" || !net.has("name")) continue;
      topology_.vertices[vertex].name = fmt::format("{} ({})", net.text("name"), topology_.vertices[vertex].name);
      return;
    }
  }

  // Both ends list a link between devices, so every element is one direction. A switch lists none.
  void add_nvlink(const Nvlink& link) {
    if (link.to_switch) {
      const auto [hub, is_new] = switches_.try_emplace(link.target, -1);
      if (is_new) hub->second = topology_.add({link.target, VertexKind::network_switch, 0});
      topology_.connect(link.from, hub->second, link.bandwidth, kHopOfNvlink);
      return;
    }
    const auto found = by_bus_.find(link.target);
    if (found != by_bus_.end()) topology_.connect_one_way(link.from, found->second, link.bandwidth, kHopOfNvlink);
  }

  Topology topology_;
  std::optional<Bandwidth> nvlink_;
  std::map<std::string, std::int32_t> by_bus_, switches_;
  std::vector<TopologyLink> pcie_;  // both directions
  std::vector<Nvlink> nvlinks_;
};

}  // namespace

Topology read_nccl_topology(const XmlElement& system, const std::string& file_name, std::optional<Bandwidth> nvlink) {
  return NcclReader(file_name, nvlink).read(system);
}

}  // namespace weft
