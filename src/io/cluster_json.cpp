// Reader and writer of docs/cluster-format.md.
#include "io/cluster_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/text.hpp"
#include "cluster/device_kind.hpp"
#include "cluster/validate.hpp"
#include "cost/power_cap.hpp"
#include "io/json/enum_names.hpp"
#include "io/json/json_reader.hpp"
#include "io/topology/topology_json.hpp"

namespace weft {
namespace {

using nlohmann::json;

// Those with a name, in this order: a hop has no "joins" key, and of parts it is a number.
constexpr Domain kNamedDomains[] = {Domain::node, Domain::leaf, Domain::cluster};
std::vector<std::string> domain_names() {
  return {"node", "leaf", "cluster"};
}
// In the order of the enum.
std::vector<std::string> duplex_names() {
  return {"full", "half"};
}

// A reader of an object, and the JSON itself for values that may have two types.
struct Place {
  const json& value;
  JsonObject object;

  Place(const json& json_value, std::string where) : value(json_value), object(json_value, std::move(where)) {}

  bool is_text(const std::string& key) const { return object.has(key) && value.at(key).is_string(); }
  std::string name_of(const std::string& key) const { return fmt::format("{}: key '{}'", object.where(), key); }
};

Bandwidth read_bandwidth(const Place& place, const std::string& key) {
  if (place.is_text(key)) return parse_bandwidth(place.object.string(key), place.name_of(key));
  if (place.object.has(key) && !place.value.at(key).is_number()) {
    place.object.reject(key, "a bandwidth such as \"200Gb/s\" or a number of bytes per second");
  }
  return {place.object.number(key, 0)};
}

Nanos read_latency(const Place& place, const std::string& key) {
  if (place.is_text(key)) return parse_time(place.object.string(key), place.name_of(key));
  if (place.object.has(key) && !place.value.at(key).is_number()) {
    place.object.reject(key, "a time such as \"5us\" or a number of nanoseconds");
  }
  return {place.object.integer(key, 0)};
}

Bytes read_bytes(const Place& place, const std::string& key) {
  if (place.is_text(key)) return parse_bytes(place.object.string(key), place.name_of(key));
  if (place.object.has(key) && !place.value.at(key).is_number()) {
    place.object.reject(key, "a size such as \"80GiB\" or a number of bytes");
  }
  return {place.object.integer(key, 1)};
}

// Returns the device at a share of its speed, and at the clock that a power cap allows. Compute and memory are both as
// much slower; a cap slows products and attention alone, as --power-cap does.
Device slowed_device(Device device, const JsonObject& object) {
  constexpr double kLeastSpeed = 0.01, kMostSpeed = 2, kMostWatts = 10'000;
  std::string label = object.has("name") ? object.string("name") : "";
  const auto describe = [&](const std::string& words) {
    if (!object.has("name")) label += (label.empty() ? "" : ",") + words;
  };
  if (object.has("speed")) {
    const double speed = object.number("speed", kLeastSpeed, kMostSpeed);
    for (double* rate :
         {&device.matrix_tflops_16, &device.matrix_tflops_32, &device.matrix_tflops_8, &device.matrix_tflops_4,
          &device.vector_tflops_32, &device.memory_bandwidth.bytes_per_second}) {
      *rate *= speed;
    }
    describe(fmt::format("{:g}", speed));
  }
  if (object.has("power_cap")) {
    const double watts = object.number("power_cap", 1, kMostWatts);
    double clock = 1;
    try {
      clock = clock_under_cap(device.name, watts);
    } catch (const Error& error) {
      fail("{}: key 'power_cap': value {:g}: {}", object.where(), watts, error.what());
    }
    for (double* rate :
         {&device.matrix_tflops_16, &device.matrix_tflops_32, &device.matrix_tflops_8, &device.matrix_tflops_4}) {
      *rate *= clock;
    }
    describe(fmt::format("{:g}W", watts));
  }
  device.name = name_of_device_like(device.name, label.empty() ? "own" : label);
  return device;
}

// A device like a known one: its figures where the file gives no others, its efficiencies in any case.
Device read_device_like(const Place& place) {
  const JsonObject& object = place.object;
  object.allow_only(std::vector<std::string>{"like", "speed", "power_cap", "name", "matrix_tflops_16",
                                             "matrix_tflops_32", "matrix_tflops_8", "matrix_tflops_4",
                                             "vector_tflops_32", "memory", "memory_bandwidth", "compute_units",
                                             "compute_slowdown", "transfer_slowdown"});
  const std::vector<std::string> names = device_names();
  Device device = device_profile(names[object.one_of("like", names)]);
  device.matrix_tflops_16 = object.number_or("matrix_tflops_16", device.matrix_tflops_16, 0);
  device.matrix_tflops_32 = object.number_or("matrix_tflops_32", device.matrix_tflops_32, 0);
  device.matrix_tflops_8 = object.number_or("matrix_tflops_8", device.matrix_tflops_8, 0);
  device.matrix_tflops_4 = object.number_or("matrix_tflops_4", device.matrix_tflops_4, 0);
  device.vector_tflops_32 = object.number_or("vector_tflops_32", device.vector_tflops_32, 0);
  if (object.has("memory")) device.memory = read_bytes(place, "memory");
  if (object.has("memory_bandwidth")) device.memory_bandwidth = read_bandwidth(place, "memory_bandwidth");
  device.compute_units = static_cast<int>(object.integer_or("compute_units", device.compute_units, 1, 1'000'000));
  device.compute_slowdown = object.number_or("compute_slowdown", device.compute_slowdown, 0);
  device.transfer_slowdown = object.number_or("transfer_slowdown", device.transfer_slowdown, 0);
  return slowed_device(std::move(device), object);
}

Device read_device(const Place& parent) {
  if (parent.is_text("device")) {
    const std::vector<std::string> names = device_names();
    return device_profile(names[parent.object.one_of("device", names)]);
  }
  if (!parent.object.has("device") || !parent.value.at("device").is_object()) {
    parent.object.reject("device", "the name of a device or an object");
  }
  const Place place(parent.value.at("device"), parent.object.where() + ": device");
  const JsonObject& object = place.object;
  if (object.has("like")) return read_device_like(place);
  object.allow_only(std::vector<std::string>{"name", "like", "matrix_tflops_16", "matrix_tflops_32", "matrix_tflops_8",
                                             "matrix_tflops_4", "vector_tflops_32", "memory", "memory_bandwidth",
                                             "compute_units", "compute_slowdown", "transfer_slowdown"});
  return {.name = object.string("name"),
          .matrix_tflops_16 = object.number("matrix_tflops_16", 0),
          .matrix_tflops_32 = object.number("matrix_tflops_32", 0),
          .matrix_tflops_8 = object.number_or("matrix_tflops_8", 0, 0),
          .matrix_tflops_4 = object.number_or("matrix_tflops_4", 0, 0),
          .vector_tflops_32 = object.number("vector_tflops_32", 0),
          .memory = read_bytes(place, "memory"),
          .memory_bandwidth = read_bandwidth(place, "memory_bandwidth"),
          .compute_units = static_cast<int>(object.integer("compute_units", 1, 1'000'000)),
          .compute_slowdown = object.number_or("compute_slowdown", 0, 0),
          .transfer_slowdown = object.number_or("transfer_slowdown", 0, 0)};
}

// A number of devices of a node, or the name of a domain.
void read_joins(const Place& place, LevelSpec& level) {
  if (!place.is_text("joins") && !place.value.at("joins").is_number()) {
    place.object.reject("joins", "\"node\", \"leaf\", \"cluster\" or a number of devices of a node");
  }
  if (place.value.at("joins").is_number()) {
    level.joins = Domain::part;
    level.part = place.object.integer("joins", 2, kMaxDevices);
    return;
  }
  level.joins = kNamedDomains[place.object.one_of("joins", domain_names())];
}

LevelSpec read_level(const Place& place) {
  const JsonObject& object = place.object;
  object.allow_only(std::vector<std::string>{"name", "joins", "via", "bandwidth", "latency", "duplex", "shared_by",
                                             "burst", "oversubscription"});
  LevelSpec level;
  level.name = object.string("name");
  if (object.has("joins")) read_joins(place, level);
  if (object.has("via")) level.via = object.strings("via");
  const double oversubscription = object.number_or("oversubscription", 1, 1, 1e6);
  level.bandwidth = {read_bandwidth(place, "bandwidth").bytes_per_second / oversubscription};
  level.latency = read_latency(place, "latency");
  if (object.has("duplex")) level.duplex = static_cast<Duplex>(object.one_of("duplex", duplex_names()));
  level.shared_by = object.integer_or("shared_by", 1, 1, kMaxDevices);
  if (object.has("burst")) level.burst = read_bytes(place, "burst");
  return level;
}

// One entry may name several nodes; the spec has one override for each.
std::vector<NodeOverride> read_override(const Place& place, const Device& of_others) {
  const JsonObject& object = place.object;
  object.allow_only(
      std::vector<std::string>{"node", "nodes", "level", "bandwidth", "latency", "device", "speed", "power_cap"});
  if (object.has("node") == object.has("nodes")) fail("{}: one of 'node' and 'nodes' is needed", object.where());
  NodeOverride change;
  change.level = object.string_or("level", "");
  if (object.has("bandwidth")) change.bandwidth = read_bandwidth(place, "bandwidth");
  if (object.has("latency")) change.latency = read_latency(place, "latency");
  if (object.has("device")) change.device = read_device(place);
  if (object.has("speed") || object.has("power_cap")) {
    if (object.has("device")) fail("{}: 'speed' and 'power_cap' stand in 'device' where there is one", object.where());
    change.device = slowed_device(of_others, object);
  }
  const std::vector<std::int64_t> nodes = object.has("nodes") ? object.integers("nodes", 0, kMaxNodes - 1)
                                                              : std::vector{object.integer("node", 0, kMaxNodes - 1)};
  if (nodes.empty()) fail("{}: 'nodes' names no node", object.where());
  std::vector<NodeOverride> overrides(nodes.size(), change);
  for (std::size_t i = 0; i < nodes.size(); ++i) overrides[i].node = nodes[i];
  return overrides;
}

// Calls `read` with every object of the array under `key`, if there is one.
template <class Read>
void for_each(const Place& parent, const std::string& key, Read read) {
  if (!parent.object.has(key)) return;
  const json& list = parent.object.array(key);
  for (std::size_t i = 0; i < list.size(); ++i) {
    read(Place(list[i], fmt::format("{}: {}[{}]", parent.object.where(), key, i)));
  }
}

// Writes text as people do where that reads back exactly, otherwise a number.
json bandwidth_to_json(Bandwidth bandwidth) {
  const std::string text = fmt::format("{}GB/s", bandwidth.bytes_per_second / 1e9);
  if (bandwidth.bytes_per_second >= 1e6 && parse_bandwidth(text, "bandwidth") == bandwidth) return text;
  return bandwidth.bytes_per_second;
}

json latency_to_json(Nanos latency) {
  if (latency.value <= 0 || latency.value % 1000 != 0) return latency.value;
  return fmt::format("{}us", latency.value / 1000);
}

json bytes_to_json(Bytes bytes) {
  constexpr std::int64_t kGibibyte = std::int64_t{1} << 30;
  if (bytes.value <= 0 || bytes.value % kGibibyte != 0) return bytes.value;
  return fmt::format("{}GiB", bytes.value / kGibibyte);
}

json device_to_json(const Device& device) {
  const std::vector<std::string> names = device_names();
  const bool named = std::find(names.begin(), names.end(), device.name) != names.end();
  if (named && device_profile(device.name) == device) return device.name;
  json result{{"name", device.name},
              {"matrix_tflops_16", device.matrix_tflops_16},
              {"matrix_tflops_32", device.matrix_tflops_32},
              {"vector_tflops_32", device.vector_tflops_32},
              {"memory", bytes_to_json(device.memory)},
              {"memory_bandwidth", bandwidth_to_json(device.memory_bandwidth)},
              {"compute_units", device.compute_units},
              {"compute_slowdown", device.compute_slowdown},
              {"transfer_slowdown", device.transfer_slowdown}};
  if (device.matrix_tflops_8 > 0) result["matrix_tflops_8"] = device.matrix_tflops_8;
  if (device.matrix_tflops_4 > 0) result["matrix_tflops_4"] = device.matrix_tflops_4;
  return result;
}

json level_to_json(const LevelSpec& level) {
  json result{{"name", level.name},
              {"bandwidth", bandwidth_to_json(level.bandwidth)},
              {"latency", latency_to_json(level.latency)},
              {"duplex", duplex_names()[static_cast<std::size_t>(level.duplex)]},
              {"shared_by", level.shared_by}};
  if (level.joins == Domain::part) result["joins"] = level.part;
  const auto named = std::find(std::begin(kNamedDomains), std::end(kNamedDomains), level.joins);
  if (named != std::end(kNamedDomains)) result["joins"] = domain_names()[named - std::begin(kNamedDomains)];
  if (!level.via.empty()) result["via"] = level.via;
  if (level.burst.value > 0) result["burst"] = bytes_to_json(level.burst);
  return result;
}

// Joins neighbouring entries that differ only in their node, as a person would write them.
json overrides_to_json(const std::vector<NodeOverride>& overrides) {
  json result = json::array();
  for (std::size_t begin = 0, end = 0; begin < overrides.size(); begin = end) {
    const NodeOverride& change = overrides[begin];
    json entry{{"nodes", json::array()}};
    for (end = begin; end < overrides.size(); ++end) {
      NodeOverride moved = overrides[end];
      moved.node = change.node;
      if (moved != change) break;
      entry["nodes"].push_back(overrides[end].node);
    }
    if (!change.level.empty()) entry["level"] = change.level;
    if (change.bandwidth) entry["bandwidth"] = bandwidth_to_json(*change.bandwidth);
    if (change.latency) entry["latency"] = latency_to_json(*change.latency);
    if (change.device) entry["device"] = device_to_json(*change.device);
    result.push_back(std::move(entry));
  }
  return result;
}

template <class Enum>
void read_fact(const JsonObject& object, const std::string& key, Enum last, Enum& fact) {
  if (object.has(key)) fact = static_cast<Enum>(object.one_of(key, names_up_to(last)));
}

// "emulated" sets all facts at once; a fact that is named overrides it.
Execution read_execution(const JsonObject& object) {
  Execution execution = object.boolean_or("emulated", false) ? kEmulation : Execution{};
  read_fact(object, "links", LinkTiming::measured, execution.links);
  read_fact(object, "collectives", CollectiveMaker::programs, execution.collectives);
  read_fact(object, "runtime", Runtime::cuda, execution.runtime);
  return execution;
}

void put_execution(const Execution& execution, json& result) {
  const bool emulated = execution.runtime == Runtime::cpu;
  if (emulated) result["emulated"] = true;
  const Execution said = emulated ? kEmulation : Execution{};
  if (execution.links != said.links) result["links"] = name_of(execution.links);
  if (execution.collectives != said.collectives) result["collectives"] = name_of(execution.collectives);
  if (execution.runtime != said.runtime) result["runtime"] = name_of(execution.runtime);
}

}  // namespace

ClusterSpec cluster_from_json(const json& value, const std::string& where) {
  const Place place(value, where);
  const JsonObject& object = place.object;
  object.allow_only(std::vector<std::string>{"name", "device", "nodes", "devices_per_node", "nodes_per_leaf", "levels",
                                             "overrides", "emulated", "links", "collectives", "runtime", "device_map",
                                             "topology"});
  ClusterSpec spec;
  spec.name = object.string("name");
  spec.device = read_device(place);
  spec.nodes = object.integer("nodes", 1, kMaxNodes);
  spec.devices_per_node = object.integer("devices_per_node", 1, kMaxDevices);
  spec.nodes_per_leaf = object.integer_or("nodes_per_leaf", 0, 0, kMaxNodes);
  for_each(place, "levels", [&](const Place& level) { spec.levels.push_back(read_level(level)); });
  for_each(place, "overrides", [&](const Place& entry) {
    for (NodeOverride& change : read_override(entry, spec.device)) spec.overrides.push_back(std::move(change));
  });
  spec.execution = read_execution(object);
  if (object.has("device_map")) spec.device_map = object.integers("device_map", 0, kMaxDevices - 1);
  if (object.has("topology")) spec.topology = SharedTopology(topology_from_json(value.at("topology"), where));
  try {
    validate(spec);
  } catch (const Error& error) {
    fail("{}: {}", where, error.what());
  }
  return spec;
}

ClusterSpec read_cluster_json(const std::string& text, const std::string& file_name) {
  return cluster_from_json(parse_json(text, file_name), file_name);
}

json cluster_to_json(const ClusterSpec& spec) {
  json levels = json::array();
  for (const LevelSpec& level : spec.levels) levels.push_back(level_to_json(level));
  json result{{"name", spec.name},
              {"device", device_to_json(spec.device)},
              {"nodes", spec.nodes},
              {"devices_per_node", spec.devices_per_node},
              {"levels", std::move(levels)}};
  if (spec.nodes_per_leaf > 0) result["nodes_per_leaf"] = spec.nodes_per_leaf;
  if (!spec.overrides.empty()) result["overrides"] = overrides_to_json(spec.overrides);
  if (!spec.device_map.empty()) result["device_map"] = spec.device_map;
  put_execution(spec.execution, result);
  if (spec.topology) result["topology"] = topology_to_json(*spec.topology);
  return result;
}

std::string write_cluster_json(const ClusterSpec& spec) {
  // A name that is not UTF-8 cannot come from a JSON file; it is written with replacement characters.
  return json_text(cluster_to_json(spec), 2) + "\n";
}

}  // namespace weft
