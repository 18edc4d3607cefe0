#include "io/topology/taccl_topology.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cluster/topology_presets.hpp"
#include "io/json/json_reader.hpp"

namespace weft {
namespace {

constexpr double kSlowestChunk = 1e9, kFastestChunk = 1e-3;  // microseconds

// TACCL's chunks are binary: 1MB is 2^20 bytes.
Bytes chunk_of(const JsonObject& object, const std::string& name) {
  const auto underscore = name.find('_');
  if (underscore == std::string::npos || !name.ends_with("B")) {
    object.reject("name", "the machine and the size of a chunk, such as NDv2_1MB");
  }
  std::string size = name.substr(underscore + 1);
  size.insert(size.size() - 1, "i");
  return parse_bytes(size, object.where() + ": key 'name'");
}

}  // namespace

Topology topology_from_taccl(const nlohmann::json& value, const std::string& file_name) {
  const JsonObject object(value, file_name);
  const std::string name = object.string("name");
  const Bytes chunk = chunk_of(object, name);
  const auto rate = [&](double microseconds) {
    return Bandwidth{static_cast<double>(chunk.value) / (microseconds * 1e-6)};
  };
  const std::vector<double> times = object.numbers("node_invbws_list", kFastestChunk, kSlowestChunk);
  const Nanos latency = nanos_from_seconds(object.number("alpha", 0, kSlowestChunk) * 1e-6);
  const std::int64_t devices = object.integer("gpus_per_node", 2, static_cast<std::int64_t>(kMaxTopologyDevices));
  if (name.starts_with("NDv2")) {
    if (devices != 8) object.reject("gpus_per_node", "8, which an NDv2 has");
    if (times.size() != 2) object.reject("node_invbws_list", "a list of 2: pairs with two NVLinks, and with one");
    Topology topology = parse_topology("dgx1-v100");
    topology.name = name;
    for (TopologyLink& link : topology.links) {
      link.bandwidth = rate(link.bandwidth.bytes_per_second > 25e9 ? times[0] : times[1]);
      link.latency = latency;
    }
    validate(topology);
    return topology;
  }
  if (!name.starts_with("DGX2"))
    object.reject("name", "NDv2_SIZE or DGX2_SIZE; the wiring of others is not in the file");
  if (times.size() != 1) object.reject("node_invbws_list", "a list of 1");
  Topology topology{name, {}, {}};
  const std::int32_t hub = topology.add({"nvswitch", VertexKind::network_switch, 0});
  for (std::int64_t i = 0; i < devices; ++i) {
    const std::int32_t device = topology.add({fmt::format("gpu{}", i), VertexKind::device, 0});
    topology.connect(device, hub, rate(times[0]), latency);
  }
  validate(topology);
  return topology;
}

}  // namespace weft
