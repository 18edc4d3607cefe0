#include "app/cluster/topology_inputs.hpp"

#include <algorithm>
#include <filesystem>

#include "app/files.hpp"
#include "base/text.hpp"
#include "cluster/presets.hpp"
#include "cluster/topology_presets.hpp"
#include "io/topology/topology_file.hpp"

namespace weft {
namespace {

bool is_cluster_preset(const std::string& name) {
  const std::vector<std::string> known = cluster_preset_names();
  return std::ranges::find(known, name.substr(0, name.find(':'))) != known.end();
}

}  // namespace

void declare_topology_flags(Flags& flags) {
  flags.value("nvlink", "RATE",
              "of one NVLink, for files that only count them (default: 25GB/s, or what NCCL assumes)");
}

Topology find_topology(const Flags& flags, const std::string& name) {
  if (std::filesystem::exists(name)) {
    std::optional<Bandwidth> nvlink;
    if (const auto rate = flags.text("nvlink")) nvlink = parse_bandwidth(*rate, "--nvlink");
    return read_topology_file(read_text_file(name), name, nvlink);
  }
  if (flags.given("nvlink")) fail("--nvlink: belongs to a file, and '{}' is none", name);
  if (is_topology_preset(name)) return parse_topology(name);
  if (is_cluster_preset(name)) return topology_of(Cluster(parse_cluster(name)));
  std::vector<std::string> names = topology_preset_names();
  for (std::string& preset : cluster_preset_names()) names.push_back(std::move(preset));
  fail("'{}' is neither a file nor a topology{}", name, suggestion(name, names));
}

}  // namespace weft
