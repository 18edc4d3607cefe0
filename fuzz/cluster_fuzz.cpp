// Bytes as a cluster file and as a preset: the readers answer with a spec or an Error, never anything else,
// and what they accept can be built, walked and written so that it reads back the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "cluster/cluster.hpp"
#include "cluster/presets.hpp"
#include "io/cluster_json.hpp"

namespace {

// Large clusters are legal and only slow the search for mistakes.
constexpr std::int64_t kMaxDevices = 4096;

void exercise(const weft::ClusterSpec& spec) {
  if (weft::read_cluster_json(weft::write_cluster_json(spec), "written") != spec) std::abort();
  if (spec.nodes * spec.devices_per_node > kMaxDevices) return;
  const weft::Cluster cluster(spec);
  const auto last = weft::make_id<weft::Rank>(static_cast<std::size_t>(cluster.device_count() - 1));
  static_cast<void>(cluster.device(last));
  for (const weft::LevelId fabric : cluster.fabrics()) {
    for (const weft::LinkId link : cluster.path(fabric, last)) static_cast<void>(cluster.links().at(link.index()));
  }
  if (!cluster.fabrics().empty()) static_cast<void>(cluster.common_fabric(weft::Rank{0}, last));
}

// Outside the catch: what a reader has accepted must not fail later.
template <class Read>
void try_reading(Read read) {
  std::optional<weft::ClusterSpec> spec;
  try {
    spec = read();
  } catch (const weft::Error&) {
    return;
  }
  exercise(*spec);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try_reading([&] { return weft::read_cluster_json(text, "fuzz.json"); });
  try_reading([&] { return weft::parse_cluster(text); });
  return 0;
}
