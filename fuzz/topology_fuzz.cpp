// Bytes as a topology, in any of its formats: the reader answers with a topology or an Error, never anything else, and
// what it accepts can be drawn, cut and written so that it reads back the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>

#include "base/error.hpp"
#include "cluster/topology_cuts.hpp"
#include "io/topology/topology_file.hpp"
#include "io/topology/topology_json.hpp"
#include "io/topology/topology_svg.hpp"

namespace {

// Large ones are legal and only slow the search for mistakes.
constexpr std::size_t kMaxVertices = 40;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(data, data + size);
  std::optional<weft::Topology> topology;
  try {
    topology = weft::read_topology_file(text, "input", std::nullopt);
  } catch (const weft::Error&) {
    return 0;
  }
  if (topology->vertices.size() > kMaxVertices) return 0;
  const std::string written = weft::write_topology_json(*topology);
  if (weft::write_topology_json(weft::read_topology_file(written, "written", std::nullopt)) != written) std::abort();
  std::ostringstream picture;
  weft::write_topology_svg(picture, *topology);
  const weft::GatherCut cut = weft::slowest_gather_cut(*topology);
  if (cut.weight <= 0 || cut.out_bandwidth <= 0) std::abort();
  return 0;
}
