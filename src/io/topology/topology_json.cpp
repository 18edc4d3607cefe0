#include "io/topology/topology_json.hpp"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/text.hpp"
#include "io/json/enum_names.hpp"
#include "io/json/json_reader.hpp"

namespace weft {
namespace {

using VertexNumbers = std::map<std::string, std::int32_t>;

const std::vector<std::string> kDirectionNames = {"both", "one"};

std::int32_t read_end(const JsonObject& object, const std::string& key, const VertexNumbers& numbers) {
  const auto found = numbers.find(object.string(key));
  if (found != numbers.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [name, number] : numbers) names.push_back(name);
  object.reject(key, "the name of a vertex" + suggestion(object.string(key), names));
}

void read_link(const JsonObject& object, const VertexNumbers& numbers, Topology& topology) {
  object.allow_only(std::vector<std::string>{"from", "to", "bandwidth", "latency", "directions"});
  const std::int32_t from = read_end(object, "from", numbers), to = read_end(object, "to", numbers);
  const std::string where = object.where();
  const Bandwidth bandwidth = parse_bandwidth(object.string("bandwidth"), where + ": key 'bandwidth'");
  const Nanos latency = parse_time(object.string_or("latency", "0us"), where + ": key 'latency'");
  const bool one_way = object.has("directions") && object.one_of("directions", kDirectionNames) == 1;
  if (one_way) {
    topology.connect_one_way(from, to, bandwidth, latency);
  } else {
    topology.connect(from, to, bandwidth, latency);
  }
}

}  // namespace

Topology topology_from_json(const nlohmann::json& value, const std::string& file_name) {
  const JsonObject object(value, file_name);
  object.allow_only(std::vector<std::string>{"topology", "vertices", "links"});
  Topology topology{object.string("topology"), {}, {}};
  VertexNumbers numbers;
  const std::vector<std::string> kinds = names_up_to(VertexKind::host);
  for (const JsonObject& vertex : object.objects("vertices")) {
    vertex.allow_only(std::vector<std::string>{"name", "kind", "node", "multicasts", "reduces"});
    const std::string name = vertex.string("name");
    TopologyVertex read{name, static_cast<VertexKind>(vertex.one_of("kind", kinds)),
                        vertex.integer_or("node", -1, -1, 1'000'000), vertex.boolean_or("multicasts", false),
                        vertex.boolean_or("reduces", false)};
    numbers.emplace(name, topology.add(std::move(read)));
  }
  for (const JsonObject& link : object.objects("links")) read_link(link, numbers, topology);
  try {
    validate(topology);
  } catch (const Error& error) {
    fail("{}: {}", file_name, error.what());
  }
  return topology;
}

nlohmann::ordered_json topology_to_json(const Topology& topology) {
  nlohmann::ordered_json json;
  json["topology"] = topology.name;
  json["vertices"] = nlohmann::ordered_json::array();
  for (const TopologyVertex& vertex : topology.vertices) {
    nlohmann::ordered_json entry{{"name", vertex.name}, {"kind", name_of(vertex.kind)}};
    if (vertex.node >= 0) entry["node"] = vertex.node;
    if (vertex.multicasts) entry["multicasts"] = true;
    if (vertex.reduces) entry["reduces"] = true;
    json["vertices"].push_back(std::move(entry));
  }
  json["links"] = nlohmann::ordered_json::array();
  for (const TopologyLink& link : topology.links) {
    json["links"].push_back({{"from", topology.vertices[link.from].name},
                             {"to", topology.vertices[link.to].name},
                             {"bandwidth", fmt::format("{}B/s", link.bandwidth.bytes_per_second)},
                             {"latency", fmt::format("{}ns", link.latency.value)},
                             {"directions", "one"}});
  }
  return json;
}

std::string write_topology_json(const Topology& topology) {
  return json_text(topology_to_json(topology), 2) + "\n";
}

}  // namespace weft
