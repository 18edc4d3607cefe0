#include "io/topology/taccl_sketch.hpp"

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "io/json/json_reader.hpp"

namespace weft {
namespace {

constexpr std::int64_t kMostPlaces = 1024, kMostChunks = 64;

using Places = std::map<std::int64_t, std::vector<std::int64_t>>;

// {"1": [0], "3": [2]}: by the number of a GPU in its node.
Places places(const nlohmann::json& value, const JsonObject& parent, const std::string& key) {
  Places result;
  const JsonObject object = parent.object(key);
  for (const auto& [name, list] : value.items()) {
    std::int64_t place = -1;
    const auto [end, fault] = std::from_chars(name.data(), name.data() + name.size(), place);
    if (fault != std::errc{} || end != name.data() + name.size() || place < 0 || place >= kMostPlaces) {
      fail("{}: key '{}': is not the number of a GPU in its node", object.where(), name);
    }
    result[place] = object.integers(name, 0, kMostPlaces - 1);
  }
  if (result.empty()) parent.reject(key, "a map that names at least one GPU");
  return result;
}

void read_inside(const JsonObject& inside, Sketch& sketch) {
  inside.allow_only(std::vector<std::string>{"strategy", "switches", "switch_hyperedge_strategy"});
  const std::vector<std::string> strategies{"none", "switch"};
  if (inside.one_of("strategy", strategies) == 0 || !inside.has("switch_hyperedge_strategy")) return;
  const std::vector<std::string> named = inside.strings("switch_hyperedge_strategy");
  if (named.empty() || (named.front() != "uc-min" && named.front() != "uc-max" && named.front() != "none")) {
    inside.reject("switch_hyperedge_strategy", R"(a list that begins with "uc-min", "uc-max" or "none")");
  }
  if (named.front() == "uc-min") sketch.switch_connections = SwitchConnections::few;
  if (named.front() == "uc-max") sketch.switch_connections = SwitchConnections::many;
}

void read_between(const nlohmann::json& value, const JsonObject& between, Sketch& sketch) {
  between.allow_only(
      std::vector<std::string>{"strategy", "internode_conn", "gpus_to_sender_rev_map", "enforce_ordering"});
  if (between.string("strategy") != "relay") between.reject("strategy", R"("relay")");
  if (value.contains("internode_conn") && value["internode_conn"].is_string()) {
    const std::vector<std::string> named{"direct-map", "fully-connected"};
    sketch.crosses_to_same_place = between.one_of("internode_conn", named) == 0;
  } else {
    sketch.crossings = places(value.value("internode_conn", nlohmann::json()), between, "internode_conn");
  }
  if (between.has("gpus_to_sender_rev_map")) {
    sketch.sends_for = places(value["gpus_to_sender_rev_map"], between, "gpus_to_sender_rev_map");
  }
  between.boolean_or("enforce_ordering", false);
}

}  // namespace

Sketch read_taccl_sketch(const std::string& text, const std::string& file_name) {
  const nlohmann::json value = parse_json(text, file_name);
  const JsonObject object(value, file_name);
  object.allow_only(std::vector<std::string>{"nnodes", "intranode_sketch", "internode_sketch", "symmetry_offsets",
                                             "hyperparameters"});
  Sketch sketch;
  sketch.name = file_name.substr(file_name.find_last_of('/') + 1);
  sketch.nodes = object.integer("nnodes", 1, kMostPlaces);
  read_inside(object.object("intranode_sketch"), sketch);
  if (object.has("internode_sketch")) {
    read_between(value["internode_sketch"], object.object("internode_sketch"), sketch);
  } else if (sketch.nodes > 1) {
    object.reject("internode_sketch", "an object that says how nodes are joined");
  }
  const nlohmann::json& offsets = object.array("symmetry_offsets");
  for (const nlohmann::json& offset : offsets) {
    const bool is_pair = offset.is_array() && offset.size() == 2 && offset[0].is_number_integer() &&
                         offset[1].is_number_integer() && offset[0] >= 1 && offset[1] >= 1 &&
                         offset[0] <= kMostPlaces && offset[1] <= kMostPlaces;
    if (!is_pair) object.reject("symmetry_offsets", "a list of pairs [offset, ranks of a block], such as [[8, 16]]");
    sketch.rotations.push_back({offset[0].get<std::int64_t>(), offset[1].get<std::int64_t>()});
  }
  sketch.chunks = object.object("hyperparameters").integer("input_chunkup", 1, kMostChunks);
  return sketch;
}

}  // namespace weft
