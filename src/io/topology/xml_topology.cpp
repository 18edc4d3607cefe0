#include "io/topology/xml_topology.hpp"

#include "io/msccl/xml_reader.hpp"
#include "io/topology/hwloc_topology.hpp"
#include "io/topology/nccl_topology.hpp"

namespace weft {

Topology read_xml_topology(const std::string& text, const std::string& file_name, std::optional<Bandwidth> nvlink) {
  const XmlFile file(text, file_name);
  const XmlElement root = file.root();
  if (root.tag() == "system") return read_nccl_topology(root, file_name, nvlink);
  if (root.tag() == "topology") return read_hwloc_topology(root, file_name);
  root.complain("is neither <system>, with which NCCL's topologies begin, nor hwloc's <topology>");
}

}  // namespace weft
