#include "io/measured_links.hpp"

#include <array>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "io/json/enum_names.hpp"
#include "io/json/json_reader.hpp"

namespace weft {
namespace {

constexpr std::int64_t kLinksVersion = 1;
constexpr std::int64_t kMostMembers = 1'000'000'000;
constexpr double kMostGigabytes = 1e6;  // a second

MeasuredCollective read_measured_collective(const JsonObject& entry) {
  entry.allow_only(std::array<std::string, 5>{"collective", "members", "per_node", "bytes", "bus_gb_per_s"});
  MeasuredCollective measured;
  measured.collective = static_cast<Collective>(entry.one_of("collective", names_up_to(Collective::send_recv)));
  measured.members = entry.integer("members", 2, kMostMembers);
  measured.per_node = entry.integer_or("per_node", 0, 1, kMostMembers);
  const std::vector<std::int64_t> bytes = entry.integers("bytes", 1);
  const std::vector<double> rates = entry.numbers("bus_gb_per_s", 1e-9, kMostGigabytes);
  if (bytes.size() != rates.size() || bytes.empty()) {
    fail("{}: 'bytes' has {} entries and 'bus_gb_per_s' {}; both need the same number, at least one", entry.where(),
         bytes.size(), rates.size());
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0 && bytes[i] <= bytes[i - 1]) entry.reject("bytes", "a list in ascending order");
    measured.points.push_back({Bytes{bytes[i]}, {rates[i] * 1e9}});
  }
  return measured;
}

}  // namespace

std::vector<MeasuredCollective> read_measured_links(const std::string& text, const std::string& file_name) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) fail("{}: is empty", file_name);
  if (text[first] != '{') return {read_nccl_tests(text, file_name)};
  const nlohmann::json value = parse_json(text, file_name);
  const JsonObject object(value, file_name);
  object.allow_only(std::array<std::string, 3>{"weft_links", "collectives", "origin"});
  object.integer("weft_links", kLinksVersion, kLinksVersion);
  std::vector<MeasuredCollective> measured;
  for (const JsonObject& entry : object.objects("collectives")) {
    measured.push_back(read_measured_collective(entry));
    for (std::size_t i = 0; i + 1 < measured.size(); ++i) {
      if (measured[i].collective == measured.back().collective && measured[i].members == measured.back().members &&
          measured[i].per_node == measured.back().per_node) {
        fail("{}: {} of {} members is listed twice, once is allowed", entry.where(),
             name_of(measured.back().collective), measured.back().members);
      }
    }
  }
  if (measured.empty()) fail("{}: key 'collectives': has no entry, at least one is needed", file_name);
  return measured;
}

}  // namespace weft
