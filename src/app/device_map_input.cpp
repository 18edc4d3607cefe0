#include "app/device_map_input.hpp"

#include <nlohmann/json.hpp>

#include "app/inputs.hpp"
#include "base/error.hpp"
#include "base/input_file.hpp"
#include "base/text.hpp"
#include "cluster/validate.hpp"
#include "io/json/json_reader.hpp"

namespace weft {

bool chooses_device_map(const Flags& flags) {
  return flags.text("device-map") == "auto";
}

DeviceMap read_device_map(const Flags& flags) {
  const auto text = flags.text("device-map");
  if (!text || chooses_device_map(flags)) return {};
  if (names_a_file(*text)) {
    const nlohmann::json file = parse_json(read_text_file(*text), *text);
    const JsonObject object(file, *text);
    object.allow_only(std::vector<std::string>{"device_map"});
    return object.integers("device_map", 0, kMaxDevices - 1);
  }
  DeviceMap map;
  for (const std::string& part : split(*text, ',')) map.push_back(parse_integer(part, "--device-map"));
  return map;
}

}  // namespace weft
