#include "base/error.hpp"
#include "io/topology/xml_topology.hpp"

namespace weft {

Topology read_xml_topology(const std::string&, const std::string& file_name, std::optional<Bandwidth>) {
  fail("{}: this build cannot read XML; install pugixml (Debian: libpugixml-dev) and build again", file_name);
}

}  // namespace weft
