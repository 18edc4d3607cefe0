#include "io/topology/simulator_topologies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <sstream>

#include "base/error.hpp"
#include "base/text.hpp"

namespace weft {
namespace {

constexpr double kBinaryGigabyte = 1 << 30;
constexpr double kMaxLatencyNanos = 1e12;
constexpr std::size_t kMaxDimensions = 16;

std::string without_blanks(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1));
}

double number_in(const std::string& text, double least, double most, const std::string& what) {
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size() || !(value >= least && value <= most)) {
    fail("{}: '{}' is not a number in {}..{}", what, text.substr(0, 40), least, most);
  }
  return value;
}

std::int64_t integer_in(const std::string& text, std::int64_t least, std::int64_t most, const std::string& what) {
  const std::int64_t value = parse_integer(text, what);
  if (value < least || value > most) fail("{}: {} is not in {}..{}", what, value, least, most);
  return value;
}

std::int64_t count_of_devices(const std::string& text, const std::string& what) {
  return integer_in(text, 1, static_cast<std::int64_t>(kMaxTopologyDevices), what);
}

Bandwidth bandwidth_of(const std::string& gigabytes, const std::string& what) {
  return {kBinaryGigabyte * number_in(gigabytes, kBandwidthUnit / 1e9, kMaxLinkBandwidth / kBinaryGigabyte, what)};
}

Nanos latency_of(const std::string& nanos, const std::string& what) {
  return {std::llround(number_in(nanos, 0, kMaxLatencyNanos, what))};
}

// The lines "key: [a, b]" of a YAML file; comments are left out.
std::map<std::string, std::vector<std::string>> lists_of(const std::string& text) {
  std::map<std::string, std::vector<std::string>> lists;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line = line.substr(0, line.find('#'));
    const auto colon = line.find(':'), open = line.find('['), close = line.find(']');
    if (colon == std::string::npos || open == std::string::npos || close == std::string::npos || close < open) continue;
    std::vector<std::string>& items = lists[without_blanks(line.substr(0, colon))];
    for (const std::string& item : split(line.substr(open + 1, close - open - 1), ',')) {
      items.push_back(without_blanks(item));
    }
  }
  return lists;
}

// One dimension: devices that differ in nothing but this coordinate are joined.
struct Dimension {
  std::string shape;
  std::int64_t size = 1, stride = 1;
  Bandwidth bandwidth;
  Nanos latency;
};

void join_members(Topology& topology, const Dimension& dimension, const std::vector<std::int32_t>& members,
                  const std::string& switch_name) {
  const std::size_t count = members.size();
  const auto connect = [&](std::int32_t a, std::int32_t b) {
    topology.connect(a, b, dimension.bandwidth, dimension.latency);
  };
  if (dimension.shape == "Switch") {
    const std::int32_t hub = topology.add({switch_name, VertexKind::network_switch});
    for (const std::int32_t member : members) connect(member, hub);
  } else if (dimension.shape == "Ring") {
    for (std::size_t i = 0; i + 1 < count; ++i) connect(members[i], members[i + 1]);
    if (count > 2) connect(members[count - 1], members[0]);
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = 0; j < i; ++j) connect(members[i], members[j]);
    }
  }
}

std::vector<Dimension> dimensions_of(const std::string& text, const std::string& file_name) {
  const std::map<std::string, std::vector<std::string>> lists = lists_of(text);
  const auto list = [&](const std::string& key) {
    const auto found = lists.find(key);
    if (found == lists.end()) fail("{}: key '{}' is missing; a list such as [ 8 ] is needed", file_name, key);
    return found->second;
  };
  const std::vector<std::string> shapes = list("topology"), sizes = list("npus_count"), rates = list("bandwidth"),
                                 latencies = list("latency");
  for (const auto& [key, length] : {std::pair{"npus_count", sizes.size()}, std::pair{"bandwidth", rates.size()},
                                    std::pair{"latency", latencies.size()}}) {
    if (length != shapes.size() || length > kMaxDimensions) {
      fail("{}: key '{}': {} entries; 'topology' has {}, of at most {}", file_name, key, length, shapes.size(),
           kMaxDimensions);
    }
  }
  static const std::vector<std::string> kShapes = {"Ring", "FullyConnected", "Switch"};
  std::vector<Dimension> dimensions;
  std::int64_t stride = 1;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    if (std::ranges::find(kShapes, shapes[i]) == kShapes.end()) {
      fail("{}: key 'topology': '{}' is not known{}", file_name, shapes[i], suggestion(shapes[i], kShapes));
    }
    const std::int64_t size = count_of_devices(sizes[i], file_name + ": key 'npus_count'");
    dimensions.push_back({shapes[i], size, stride, bandwidth_of(rates[i], file_name + ": key 'bandwidth'"),
                          latency_of(latencies[i], file_name + ": key 'latency'")});
    stride *= size;
    if (stride > static_cast<std::int64_t>(kMaxTopologyDevices)) {
      fail("{}: key 'npus_count': there are more than {} devices", file_name, kMaxTopologyDevices);
    }
  }
  return dimensions;
}

}  // namespace

Topology read_astra_sim_network(const std::string& text, const std::string& file_name) {
  const std::vector<Dimension> dimensions = dimensions_of(text, file_name);
  const auto count = static_cast<std::int32_t>(dimensions.back().stride * dimensions.back().size);
  Topology topology{file_name, {}, {}};
  for (std::int32_t i = 0; i < count; ++i) topology.add({fmt::format("npu{}", i), VertexKind::device});
  for (std::size_t d = 0; d < dimensions.size(); ++d) {
    const Dimension& dimension = dimensions[d];
    for (std::int32_t first = 0; first < count; ++first) {
      if (first / dimension.stride % dimension.size != 0) continue;
      std::vector<std::int32_t> members;
      for (std::int64_t i = 0; i < dimension.size; ++i) {
        members.push_back(static_cast<std::int32_t>(first + i * dimension.stride));
      }
      join_members(topology, dimension, members, fmt::format("switch{}.{}", d, first));
    }
  }
  validate(topology);
  return topology;
}

Topology read_tacos_links(const std::string& text, const std::string& file_name) {
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  const std::int64_t count = count_of_devices(without_blanks(line), file_name + ":1: the number of devices");
  Topology topology{file_name, {}, {}};
  for (std::int64_t i = 0; i < count; ++i) topology.add({fmt::format("npu{}", i), VertexKind::device});
  std::getline(lines, line);  // titles
  for (int number = 3; std::getline(lines, line); ++number) {
    if (without_blanks(line).empty()) continue;
    const std::string where = fmt::format("{}:{}", file_name, number);
    std::vector<std::string> cells;
    for (const std::string& cell : split(line, ',')) cells.push_back(without_blanks(cell));
    if (cells.size() != 4)
      fail("{}: has {} cells; source, destination, latency and bandwidth are needed", where, cells.size());
    const auto end = [&](const std::string& cell, const char* what) {
      return static_cast<std::int32_t>(integer_in(cell, 0, count - 1, fmt::format("{}: {}", where, what)));
    };
    topology.connect_one_way(end(cells[0], "source"), end(cells[1], "destination"),
                             bandwidth_of(cells[3], where + ": bandwidth"), latency_of(cells[2], where + ": latency"));
  }
  validate(topology);
  return topology;
}

}  // namespace weft
