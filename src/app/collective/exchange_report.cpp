#include "app/collective/exchange_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/cluster/rank_words.hpp"
#include "app/version.hpp"

namespace weft {
namespace {

const char* method_in_words(const ExchangeFlow& flow) {
  return flow.by_solver ? "CBC, exactly" : "multiplicative weights";
}

std::size_t most_ways(const ExchangeFlow& flow) {
  std::size_t most = 0;
  for (const auto& ways : flow.ways) most = std::max(most, ways.size());
  return most;
}

}  // namespace

std::string exchange_in_words(const Topology& topology, const ExchangeFlow& flow) {
  const double share = flow.least_seconds / flow.seconds;
  return fmt::format(
      "{}: all_to_all on {} ranks as a flow of slices, split over up to {} ways; found by {}\n"
      "{} (a rank's buffer over time, large buffers), {}\n"
      "nothing is faster than {}: at the prices of the links that were found, all slices on their cheapest ways cost "
      "so "
      "much\nprograms are made for a --size\n",
      topology.name, topology.devices().size(), most_ways(flow), method_in_words(flow), rate_in_words(1 / flow.seconds),
      share > 1 - 1e-9 ? "the optimum" : fmt::format("{:.2f} % of what nothing beats", 100 * share),
      rate_in_words(1 / flow.least_seconds));
}

nlohmann::ordered_json exchange_in_json(const Topology& topology, const ExchangeFlow& flow) {
  nlohmann::ordered_json json;
  json["version"] = kVersion;
  json["topology"] = topology.name;
  json["collective"] = "all_to_all";
  json["ranks"] = topology.devices().size();
  json["found_by"] = flow.by_solver ? "cbc" : "weights";
  json["bytes_per_s"] = 1 / flow.seconds;
  json["most_bytes_per_s"] = 1 / flow.least_seconds;
  return json;
}

}  // namespace weft
