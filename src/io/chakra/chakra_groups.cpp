#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "io/chakra/chakra_file.hpp"
#include "io/json/json_reader.hpp"

namespace weft {

std::vector<ChakraGroup> read_chakra_groups(const std::string& text, const std::string& file_name) {
  const nlohmann::json json = parse_json(text, file_name);
  const JsonObject object(json, file_name);
  std::vector<ChakraGroup> groups;
  for (const auto& [name, unused] : json.items()) {
    ChakraGroup group{name, {}};
    for (const std::int64_t rank : object.integers(name, 0, INT32_MAX)) {
      group.members.push_back(Rank{static_cast<std::int32_t>(rank)});
    }
    std::sort(group.members.begin(), group.members.end());
    const auto twice = std::adjacent_find(group.members.begin(), group.members.end());
    if (twice != group.members.end()) object.reject(name, "a list of different ranks");
    if (group.members.empty()) object.reject(name, "a list of at least one rank");
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace weft
