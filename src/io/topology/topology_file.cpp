#include "io/topology/topology_file.hpp"

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "io/cluster_json.hpp"
#include "io/json/json_reader.hpp"
#include "io/topology/nvidia_smi_matrix.hpp"
#include "io/topology/simulator_topologies.hpp"
#include "io/topology/taccl_topology.hpp"
#include "io/topology/topology_json.hpp"
#include "io/topology/xml_topology.hpp"

namespace weft {
namespace {

constexpr Bandwidth kUsualNvlink{25e9};  // NVLink2 to NVLink4, per direction

Topology read_json_file(const std::string& text, const std::string& file_name) {
  const nlohmann::json json = parse_json(text, file_name);
  if (!json.is_object()) fail("{}: is not a JSON object", file_name);
  if (json.contains("vertices")) return topology_from_json(json, file_name);
  if (json.contains("gpus_per_node")) return topology_from_taccl(json, file_name);
  if (json.contains("levels")) {
    const ClusterSpec spec = cluster_from_json(json, file_name);
    if (spec.nodes * spec.devices_per_node > static_cast<std::int64_t>(kMaxTopologyDevices)) {
      fail("{}: {} nodes of {} devices are more than {} devices, the most of a topology", file_name, spec.nodes,
           spec.devices_per_node, kMaxTopologyDevices);
    }
    return topology_of(Cluster(spec));
  }
  fail("{}: has none of the keys 'vertices' (a topology), 'levels' (a cluster) and 'gpus_per_node' (TACCL)", file_name);
}

}  // namespace

Topology read_topology_file(const std::string& text, const std::string& file_name, std::optional<Bandwidth> nvlink) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) fail("{}: is empty", file_name);
  if (text[first] == '{') return read_json_file(text, file_name);
  if (text[first] == '<') return read_xml_topology(text, file_name, nvlink);
  if (text.find("npus_count") != std::string::npos) return read_astra_sim_network(text, file_name);
  if (text[first] >= '0' && text[first] <= '9') return read_tacos_links(text, file_name);
  return read_nvidia_smi_matrix(text, file_name, nvlink.value_or(kUsualNvlink));
}

}  // namespace weft
