#include "io/topology/hwloc_topology.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include "base/error.hpp"

namespace weft {
namespace {

constexpr Nanos kDeviceLinkHop{1'000}, kPciHop{500};
constexpr Bandwidth kUnknownPciRate{12e9};    // where hwloc could not read it: gen3 x16, as NCCL counts it
constexpr Bandwidth kBetweenNumaNodes{10e9};  // no file says it; what NCCL assumes where it knows no better
constexpr int kMaxObjectDepth = 64;
constexpr std::int64_t kMaxMatrixObjects = 2048, kMaxMatrixValue = 1'000'000;  // MB/s
constexpr double kMegabyte = 1e6;
// Of NVML, ROCm SMI and Level Zero: MB/s of one direction.
constexpr std::array<std::string_view, 3> kBandwidthMatrices = {"NVLinkBandwidth", "XGMIBandwidth", "XeLinkBandwidth"};
// How hwloc names an accelerator, after the library that found it. The first that there is becomes the device's name.
constexpr std::array<std::string_view, 5> kAcceleratorNames = {"cuda", "rsmi", "ze", "nvml", "opencl"};

// "cuda0" by "cuda" but not "zeta" by "ze".
bool is_numbered(std::string_view name, std::string_view prefix) {
  return name.size() > prefix.size() && name.starts_with(prefix) && name[prefix.size()] >= '0' &&
         name[prefix.size()] <= '9';
}

// The class of a PCI device and its vendor, from "0302 [10de:1db8] [10de:131d] a1 00".
struct PciIdentity {
  std::string device_class, vendor;
};
PciIdentity pci_identity(const XmlElement& device) {
  const std::string type = device.has("pci_type") ? device.text("pci_type") : "";
  PciIdentity identity{type.substr(0, 4), ""};
  if (type.size() >= 10 && type[5] == '[') identity.vendor = type.substr(6, 4);
  return identity;
}

// Cards that only show pictures (class 0300) are accelerators where a library says so.
bool is_accelerator_class(const PciIdentity& identity) {
  const std::string& c = identity.device_class;
  return c == "0302" || c == "1200" || (c == "0380" && identity.vendor == "1002");
}

class HwlocReader {
 public:
  explicit HwlocReader(const std::string& file_name) : topology_{file_name, {}, {}} {}

  Topology read(const XmlElement& root) {
    check_version(root);
    for (const XmlElement& child : root.all_children()) {
      if (child.tag() == "object") read_object(child, kNoHost, 0);
    }
    for (const XmlElement& child : root.all_children()) {
      if (child.tag() == "distances2" || child.tag() == "distances2hetero") read_matrix(child);
    }
    const std::size_t devices = topology_.devices().size();
    if (devices < 2) {
      root.complain(
          fmt::format("has {} GPUs or other accelerators; at least 2 are needed. lstopo writes them only "
                      "where it may see PCI devices (whole system, not a container's part)",
                      devices));
    }
    if (!joins_all_devices(topology_)) join_hosts();
    if (!joins_all_devices(topology_)) {
      for (const TopologyLink& link : pci_) topology_.connect(link.from, link.to, link.bandwidth, link.latency);
    }
    drop_unconnected(topology_);
    validate(topology_);
    return std::move(topology_);
  }

 private:
  static constexpr std::int32_t kNoHost = -1;

  void check_version(const XmlElement& root) {
    if (!root.has("version")) {
      root.complain("attribute 'version' is missing: hwloc 1 wrote it; write it again with hwloc 2 or later");
    }
    const std::string version = root.text("version");
    if (!version.starts_with("2.") && !version.starts_with("3.")) root.reject("version", "2.x or 3.x");
    network_types_are_bits_ = version.starts_with("3.");
  }

  std::int32_t add_vertex(const XmlElement& object, const std::string& name, VertexKind kind) {
    if (!names_.insert(name).second) object.complain(fmt::format("'{}' is the name of another object too", name));
    const std::int32_t vertex = topology_.add({name, kind, 0});
    remember(object, vertex);
    return vertex;
  }

  // Matrices name objects by this number.
  void remember(const XmlElement& object, std::int32_t vertex) {
    if (object.has("gp_index")) vertex_of_[object.integer("gp_index", 0, std::int64_t{1} << 62)] = vertex;
  }

  // Packages are hosts. So is what holds a NUMA node and is not the whole machine: a part of a package.
  std::int32_t host_of(const XmlElement& object, const std::string& type, std::int32_t around) {
    if (type == "Package") {
      return add_vertex(object, fmt::format("package{}", packages_++), VertexKind::host);
    }
    if (type == "Machine") return kNoHost;
    for (const XmlElement& child : object.all_children()) {
      if (child.tag() != "object" || child.text("type") != "NUMANode" || !child.has("os_index")) continue;
      return add_vertex(object, fmt::format("numa{}", child.text("os_index")), VertexKind::host);
    }
    return around;
  }

  void read_object(const XmlElement& object, std::int32_t host, int depth) {
    if (depth == kMaxObjectDepth) object.complain(fmt::format("is more than {} levels deep", kMaxObjectDepth));
    const std::string type = object.text("type");
    if (type == "PU" || type == "NUMANode" || type == "Misc") return;
    if (type == "Bridge" || type == "PCIDev") {
      read_io(object, type, io_host(host), depth);
      return;
    }
    const std::int32_t own = host_of(object, type, host);
    for (const XmlElement& child : object.all_children()) {
      if (child.tag() == "object") read_object(child, own, depth + 1);
    }
  }

  // Devices of which nobody knows the NUMA node hang below the machine itself.
  std::int32_t io_host(std::int32_t host) {
    if (host != kNoHost) return host;
    if (machine_ == kNoHost) machine_ = topology_.add({"machine", VertexKind::host, 0});
    return machine_;
  }

  void read_io(const XmlElement& object, const std::string& type, std::int32_t above, int depth) {
    if (depth == kMaxObjectDepth) object.complain(fmt::format("is more than {} levels deep", kMaxObjectDepth));
    if (type == "PCIDev") return read_pci_device(object, above);
    if (type != "Bridge") return;
    // The bridge from a processor to its PCI has no link of its own.
    const bool from_host = object.text("bridge_type").starts_with("0-");
    const std::int32_t own =
        from_host ? above : add_vertex(object, object.text("pci_busid"), VertexKind::network_switch);
    const std::size_t links_before = pci_.size();
    for (const XmlElement& child : object.all_children()) {
      if (child.tag() == "object") read_io(child, child.text("type"), own, depth + 1);
    }
    const bool leads_somewhere = pci_.size() > links_before;
    if (!from_host && leads_somewhere) add_pci_link(object, own, above);
  }

  void add_pci_link(const XmlElement& object, std::int32_t own, std::int32_t above) {
    Bandwidth rate = kUnknownPciRate;
    if (object.has("pci_link_speed")) {
      const std::string text = object.text("pci_link_speed");
      double gigabytes = 0;
      const auto [stop, status] = std::from_chars(text.data(), text.data() + text.size(), gigabytes);
      const bool read = status == std::errc{} && stop == text.data() + text.size();
      if (!read || !(gigabytes >= 0 && gigabytes <= 1000)) object.reject("pci_link_speed", "a number from 0 to 1000");
      if (gigabytes >= 1e-3) rate = {gigabytes * 1e9};
    }
    pci_.push_back({own, above, rate, kPciHop});
    if (topology_.vertices[above].kind == VertexKind::host) hosts_.insert(above);
  }

  // The OS devices below a PCI device, and what they say that it is.
  struct OsDevices {
    std::string accelerator, network;
    std::vector<XmlElement> all;
  };
  OsDevices os_devices(const XmlElement& device) const {
    OsDevices found;
    std::size_t best = kAcceleratorNames.size();
    bool fabric = false;
    for (const XmlElement& child : device.all_children()) {
      if (child.tag() != "object" || child.text("type") != "OSDev" || !child.has("name")) continue;
      const std::string name = child.text("name");
      for (std::size_t i = 0; i < best; ++i) {
        if (!is_numbered(name, kAcceleratorNames[i])) continue;
        found.accelerator = name;
        best = i;
      }
      const std::int64_t type = child.has("osdev_type") ? child.integer("osdev_type", 0, 1 << 20) : 0;
      constexpr std::int64_t kFabricBit = 32, kNetworkBit = 16, kOldFabric = 3, kOldNetwork = 2;
      const bool is_fabric = network_types_are_bits_ ? (type & kFabricBit) != 0 : type == kOldFabric;
      const bool is_network = network_types_are_bits_ ? (type & kNetworkBit) != 0 : type == kOldNetwork;
      // The name that collectives go by (mlx5_0) rather than the interface's (ib0).
      if (is_fabric ? !fabric : is_network && found.network.empty()) found.network = name;
      fabric = fabric || is_fabric;
      found.all.push_back(child);
    }
    return found;
  }

  void read_pci_device(const XmlElement& device, std::int32_t above) {
    const PciIdentity identity = pci_identity(device);
    const std::string bus = device.text("pci_busid");
    const bool nvlink_switch = device.has("subtype") && device.text("subtype") == "NVSwitch";
    if (nvlink_switch || (identity.device_class == "0680" && identity.vendor == "10de")) {
      add_vertex(device, bus, VertexKind::network_switch);  // its PCIe link carries no data
      return;
    }
    const OsDevices known = os_devices(device);
    const bool accelerator = !known.accelerator.empty() || is_accelerator_class(identity);
    if (!accelerator && known.network.empty()) return;
    const std::string& name = accelerator ? known.accelerator : known.network;
    const std::int32_t vertex = add_vertex(device, name.empty() ? bus : fmt::format("{} ({})", name, bus),
                                           accelerator ? VertexKind::device : VertexKind::nic);
    for (const XmlElement& part : known.all) remember(part, vertex);
    add_pci_link(device, vertex, above);
  }

  // Numbers of a matrix, which stand in several elements.
  static std::vector<std::string> words_of(const XmlElement& matrix, std::string_view tag, std::size_t count) {
    std::vector<std::string> words;
    for (const XmlElement& child : matrix.all_children()) {
      if (child.tag() != tag) continue;
      std::istringstream text(child.content());
      for (std::string word; text >> word && words.size() <= count;) words.push_back(word);
    }
    if (words.size() != count) {
      matrix.complain(fmt::format("has {} <{}>; 'nbobjs' says {}",
                                  words.size() > count ? "more" : std::to_string(words.size()), tag, count));
    }
    return words;
  }

  static std::int64_t number_in(const XmlElement& matrix, std::string_view word, std::int64_t max) {
    std::int64_t number = 0;
    const auto [stop, status] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (status != std::errc{} || stop != word.data() + word.size() || number < 0 || number > max) {
      matrix.complain(fmt::format("'{}' is not a number from 0 to {}", word.substr(0, 40), max));
    }
    return number;
  }

  // Row i, column j: from object i to object j. Objects that are neither devices, NVSwitches nor packages are skipped.
  void read_matrix(const XmlElement& matrix) {
    if (!matrix.has("name")) return;
    const std::string name = matrix.text("name");
    if (std::find(kBandwidthMatrices.begin(), kBandwidthMatrices.end(), name) == kBandwidthMatrices.end()) return;
    const auto count = static_cast<std::size_t>(matrix.integer("nbobjs", 1, kMaxMatrixObjects));
    std::vector<std::int32_t> vertices;
    for (const std::string& word : words_of(matrix, "indexes", count)) {
      const std::size_t colon = word.find(':');  // "OSDev:802", or "802" where all are of one type
      const std::string_view number = std::string_view(word).substr(colon == std::string::npos ? 0 : colon + 1);
      const auto found = vertex_of_.find(number_in(matrix, number, std::int64_t{1} << 62));
      vertices.push_back(found == vertex_of_.end() ? kNoHost : found->second);
    }
    const std::vector<std::string> values = words_of(matrix, "u64values", count * count);
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = 0; j < count; ++j) {
        if (i == j || vertices[i] == vertices[j] || vertices[i] == kNoHost || vertices[j] == kNoHost) continue;
        const std::int64_t megabytes = number_in(matrix, values[i * count + j], kMaxMatrixValue);
        if (megabytes == 0) continue;
        const Bandwidth rate{static_cast<double>(megabytes) * kMegabyte};
        topology_.connect_one_way(vertices[i], vertices[j], rate, kDeviceLinkHop);
        for (const std::int32_t end : {vertices[i], vertices[j]}) {
          if (topology_.vertices[end].kind == VertexKind::host) hosts_.insert(end);
        }
      }
    }
  }

  // Processors that have devices below them.
  void join_hosts() {
    for (auto a = hosts_.begin(); a != hosts_.end(); ++a) {
      for (auto b = std::next(a); b != hosts_.end(); ++b) topology_.connect(*a, *b, kBetweenNumaNodes, kPciHop);
    }
  }

  Topology topology_;
  bool network_types_are_bits_ = true;
  int packages_ = 0;
  std::int32_t machine_ = kNoHost;
  std::set<std::string> names_{"machine"};
  std::set<std::int32_t> hosts_;                    // with devices below them
  std::map<std::int64_t, std::int32_t> vertex_of_;  // by gp_index
  std::vector<TopologyLink> pci_;                   // both directions
};

}  // namespace

Topology read_hwloc_topology(const XmlElement& root, const std::string& file_name) {
  return HwlocReader(file_name).read(root);
}

}  // namespace weft
