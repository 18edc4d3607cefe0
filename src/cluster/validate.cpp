// Each rule in a function of its own; validate() at the end calls them in the order a reader would check.
#include "cluster/validate.hpp"

#include <algorithm>
#include <cctype>
#include <set>
#include <tuple>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/text.hpp"

namespace weft {
namespace {

template <class Number>
void check_range(Number value, Number low, Number high, std::string_view prefix, std::string_view what) {
  // Written so that NaN fails too.
  if (!(value >= low && value <= high)) fail("{}{} {} is not in {}..{}", prefix, what, value, low, high);
}

void check_bandwidth(Bandwidth bandwidth, std::string_view prefix) {
  check_range(bandwidth.bytes_per_second, 1e3, 1e15, prefix, "bandwidth (bytes/s)");
}

void check_latency(Nanos latency, std::string_view prefix) {
  check_range<std::int64_t>(latency.value, 0, 100'000'000'000, prefix, "latency (ns)");
}

void check_sizes(const ClusterSpec& spec) {
  check_range<std::int64_t>(spec.nodes, 1, kMaxNodes, "", "nodes");
  check_range<std::int64_t>(spec.devices_per_node, 1, kMaxDevices, "", "devices_per_node");
  check_range<std::int64_t>(spec.nodes_per_leaf, 0, kMaxNodes, "", "nodes_per_leaf");
  const std::int64_t devices = checked_product({spec.nodes, spec.devices_per_node}, "device count");
  if (devices > kMaxDevices) {
    fail("{} nodes of {} devices are {} devices, at most {} are allowed", spec.nodes, spec.devices_per_node, devices,
         kMaxDevices);
  }
}

// Level names are typed in flags and files, so they hold no spaces or quotes.
void check_level_name(std::string_view name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
  if (name.empty() || name.size() > 32 || !plain) {
    fail("level name '{}' is not 1 to 32 letters, digits, '-', '_' or '.'", name);
  }
}

std::int64_t devices_of_a_leaf(const ClusterSpec& spec) {
  const std::int64_t nodes = spec.nodes_per_leaf > 0 ? spec.nodes_per_leaf : spec.nodes;
  return checked_product({nodes, spec.devices_per_node}, "devices of a leaf");
}

void check_part(const ClusterSpec& spec, const LevelSpec& level, std::string_view prefix) {
  if (level.joins != Domain::part) return;
  const std::int64_t per_node = spec.devices_per_node;
  if (level.part < 2 || level.part >= per_node || per_node % level.part != 0) {
    fail(
        "{}joins {} devices, which are no equal parts of the {} of a node; a level that joins all of them joins "
        "\"node\"",
        prefix, level.part, per_node);
  }
}

void check_sharing(const ClusterSpec& spec, const LevelSpec& level, std::string_view prefix) {
  check_range<std::int64_t>(level.shared_by, 1, kMaxDevices, prefix, "shared_by");
  const std::int64_t per_node = spec.devices_per_node;
  if (level.joins == Domain::part && level.part % level.shared_by != 0) {
    fail("{}shared_by {} does not divide the {} devices that it joins", prefix, level.shared_by, level.part);
  }
  if (level.shared_by <= per_node) return;
  if (level.joins != Domain::leaf && level.joins != Domain::cluster) {
    fail(
        "{}shared_by {} is more than the {} devices of a node; only a level that joins leaf or cluster may "
        "share a link among nodes",
        prefix, level.shared_by, per_node);
  }
  if (level.shared_by % per_node != 0) {
    fail("{}shared_by {} is neither at most the {} devices of a node nor a multiple of them", prefix, level.shared_by,
         per_node);
  }
  if (level.shared_by > devices_of_a_leaf(spec)) {
    fail("{}shared_by {} is more than the {} devices of a leaf", prefix, level.shared_by, devices_of_a_leaf(spec));
  }
}

void check_via(const ClusterSpec& spec, std::size_t index, std::string_view prefix) {
  const LevelSpec& level = spec.levels[index];
  if (level.joins == Domain::none && !level.via.empty()) {
    fail("{}a level that joins nothing is a hop and has no via of its own", prefix);
  }
  std::set<std::string> seen;
  for (const std::string& name : level.via) {
    const auto found = std::find_if(spec.levels.begin(), spec.levels.end(),
                                    [&](const LevelSpec& other) { return other.name == name; });
    if (found == spec.levels.end()) {
      std::vector<std::string> others;
      for (const LevelSpec& other : spec.levels) {
        if (&other != &level) others.push_back(other.name);
      }
      fail("{}via names '{}', which is no level{}", prefix, name, suggestion(name, others));
    }
    const std::size_t position = found - spec.levels.begin();
    if (position == index) fail("{}via names the level itself", prefix);
    if (position > index && found->joins != Domain::none) {
      fail("{}via names '{}', which comes later; only hops and earlier levels are allowed", prefix, name);
    }
    if (!seen.insert(name).second) fail("{}via names '{}' twice", prefix, name);
  }
}

void check_levels(const ClusterSpec& spec) {
  if (spec.levels.size() > kMaxLevels) fail("{} levels, at most {} are allowed", spec.levels.size(), kMaxLevels);
  std::set<std::string> names;
  for (const LevelSpec& level : spec.levels) {
    check_level_name(level.name);
    if (!names.insert(level.name).second) fail("two levels are named '{}'", level.name);
  }
  std::set<std::string> crossed;
  const LevelSpec* inner = nullptr;
  for (std::size_t i = 0; i < spec.levels.size(); ++i) {
    const LevelSpec& level = spec.levels[i];
    const std::string prefix = fmt::format("level '{}': ", level.name);
    check_bandwidth(level.bandwidth, prefix);
    check_latency(level.latency, prefix);
    check_range<std::int64_t>(level.burst.value, 0, std::int64_t{1} << 30, prefix, "burst (bytes)");
    check_part(spec, level, prefix);
    check_sharing(spec, level, prefix);
    check_via(spec, i, prefix);
    crossed.insert(level.via.begin(), level.via.end());
    if (level.joins == Domain::none) continue;
    if (inner != nullptr && level.joins < inner->joins) {
      fail("{}joins less than '{}' before it; levels are listed inner to outer", prefix, inner->name);
    }
    if (inner != nullptr && level.joins == Domain::part && level.part % inner->part != 0) {
      fail("{}joins {} devices, which are no multiple of the {} that '{}' before it joins", prefix, level.part,
           inner->part, inner->name);
    }
    inner = &level;
  }
  for (const LevelSpec& level : spec.levels) {
    if (level.joins == Domain::none && !crossed.contains(level.name)) {
      fail("level '{}': joins nothing and no level names it in via", level.name);
    }
  }
}

// Any two devices must be able to talk. Fabrics are ordered, so the outermost one decides.
void check_joined(const ClusterSpec& spec) {
  const std::int64_t devices = spec.nodes * spec.devices_per_node;
  if (devices == 1) return;
  const LevelSpec* outermost = nullptr;
  for (const LevelSpec& level : spec.levels) {
    if (level.joins != Domain::none) outermost = &level;
  }
  std::int64_t stranger = 1;  // the first device that device 0 cannot reach
  std::string reason = "no level joins anything";
  if (outermost != nullptr) {
    const Domain domain = effective_domain(spec, *outermost);
    stranger = devices;
    if (domain == Domain::part) stranger = outermost->part;
    if (domain == Domain::node) stranger = spec.devices_per_node;
    if (domain == Domain::leaf) stranger = devices_of_a_leaf(spec);
    const std::string joined = domain == Domain::part   ? fmt::format("{} devices", outermost->part)
                               : domain == Domain::node ? "a node"
                                                        : "a leaf";
    reason = fmt::format("the outermost level that joins any, '{}', joins {}", outermost->name, joined);
  }
  if (stranger >= devices) return;
  fail("devices 0 and {} (node {}) cannot talk: {}; add a level that joins the cluster", stranger,
       stranger / spec.devices_per_node, reason);
}

void check_override(const ClusterSpec& spec, const NodeOverride& change, const std::vector<std::string>& levels) {
  const std::string prefix = fmt::format("override of node {}: ", change.node);
  if (change.node < 0 || change.node >= spec.nodes) {
    fail("override: node {} is not in 0..{}", change.node, spec.nodes - 1);
  }
  const bool changes_link = change.bandwidth.has_value() || change.latency.has_value();
  if (change.level.empty() && changes_link) fail("{}has a bandwidth or latency but names no level", prefix);
  if (!change.level.empty()) {
    if (std::find(levels.begin(), levels.end(), change.level) == levels.end()) {
      fail("{}level '{}' is not known{}", prefix, change.level, suggestion(change.level, levels));
    }
    if (!changes_link) fail("{}names level '{}' but no bandwidth or latency", prefix, change.level);
  }
  if (change.level.empty() && !change.device) fail("{}changes nothing", prefix);
  if (change.bandwidth) check_bandwidth(*change.bandwidth, prefix);
  if (change.latency) check_latency(*change.latency, prefix);
  if (change.device) validate(*change.device);
}

void check_overrides(const ClusterSpec& spec) {
  std::vector<std::string> levels;
  for (const LevelSpec& level : spec.levels) levels.push_back(level.name);
  // Remembers what was set as (node, what), so that no node is overridden twice.
  std::set<std::tuple<std::int64_t, std::string>> set;
  for (const NodeOverride& change : spec.overrides) {
    check_override(spec, change, levels);
    const auto once = [&](const std::string& what) {
      if (!set.insert({change.node, what}).second) fail("override of node {}: sets {} twice", change.node, what);
    };
    if (change.bandwidth) once(fmt::format("the bandwidth of '{}'", change.level));
    if (change.latency) once(fmt::format("the latency of '{}'", change.level));
    if (change.device) once("the device");
  }
}

void check_device_map(const ClusterSpec& spec) {
  if (spec.device_map.empty()) return;
  const std::int64_t devices = spec.nodes * spec.devices_per_node;
  if (std::ssize(spec.device_map) != devices) {
    fail("device_map: {} devices, but the cluster has {}; each must be there once", spec.device_map.size(), devices);
  }
  std::vector<bool> taken(spec.device_map.size());
  for (const std::int64_t device : spec.device_map) {
    if (device < 0 || device >= devices) fail("device_map: {} is not a device from 0 to {}", device, devices - 1);
    if (taken[static_cast<std::size_t>(device)]) fail("device_map: device {} is there twice", device);
    taken[static_cast<std::size_t>(device)] = true;
  }
}

}  // namespace

Domain effective_domain(const ClusterSpec& spec, const LevelSpec& level) {
  const bool one_leaf = spec.nodes_per_leaf == 0 || spec.nodes_per_leaf >= spec.nodes;
  return level.joins == Domain::leaf && one_leaf ? Domain::cluster : level.joins;
}

void validate(const Device& device) {
  if (device.name.empty() || device.name.size() > 64) fail("device: name '{}' is not 1 to 64 characters", device.name);
  const std::string prefix = fmt::format("device '{}': ", device.name);
  check_range(device.matrix_tflops_16, 1e-6, 1e6, prefix, "matrix_tflops_16");
  check_range(device.matrix_tflops_32, 1e-6, 1e6, prefix, "matrix_tflops_32");
  check_range(device.matrix_tflops_8, 0.0, 1e6, prefix, "matrix_tflops_8");
  check_range(device.matrix_tflops_4, 0.0, 1e6, prefix, "matrix_tflops_4");
  check_range(device.vector_tflops_32, 1e-6, 1e6, prefix, "vector_tflops_32");
  check_range<std::int64_t>(device.memory.value, 1, std::int64_t{1} << 50, prefix, "memory (bytes)");
  check_range(device.memory_bandwidth.bytes_per_second, 1e6, 1e15, prefix, "memory_bandwidth (bytes/s)");
  check_range(device.compute_units, 1, 1'000'000, prefix, "compute_units");
  check_range(device.compute_slowdown, 0.0, 100.0, prefix, "compute_slowdown");
  check_range(device.transfer_slowdown, 0.0, 100.0, prefix, "transfer_slowdown");
}

void validate(const ClusterSpec& spec) {
  if (spec.name.empty() || spec.name.size() > 256) fail("cluster: name '{}' is not 1 to 256 characters", spec.name);
  try {
    validate(spec.device);
    check_sizes(spec);
    check_levels(spec);
    check_joined(spec);
    check_overrides(spec);
    check_device_map(spec);
  } catch (const Error& error) {
    fail("cluster '{}': {}", spec.name, error.what());
  }
}

}  // namespace weft
