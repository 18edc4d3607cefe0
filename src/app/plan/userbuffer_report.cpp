#include "app/plan/userbuffer_report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/table.hpp"
#include "base/text.hpp"

namespace weft {

std::string userbuffer_text(const std::string& policy, const std::vector<UserbufferRow>& rows) {
  TextTable table({"product", "method", "SMs", "copies by", "parts", "of", "alone", "compute"});
  for (const UserbufferRow& row : rows) {
    table.add_row({row.product, row.method, fmt::format("{} of {}", row.thread_blocks, row.device_units),
                   row.copy_engine ? "copy engine" : "SMs", fmt::format("{}", row.parts), format_bytes(row.bytes),
                   format_time(row.time), fmt::format("+{:.1f} %", 100 * row.slowdown)});
  }
  return fmt::format(
      "\nUserbuffers of {}: SMs that transfers take beside each product of a layer, the time of a part\nalone, and "
      "what "
      "compute beside it is slowed down by\n{}",
      policy, table.to_string());
}

nlohmann::ordered_json userbuffer_json(const std::vector<UserbufferRow>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const UserbufferRow& row : rows) {
    list.push_back({{"product", row.product},
                    {"method", row.method},
                    {"collective", row.collective},
                    {"thread_blocks", row.thread_blocks},
                    {"of_device", row.device_units},
                    {"copy_engine", row.copy_engine},
                    {"parts", row.parts},
                    {"bytes", row.bytes.value},
                    {"time_s", seconds(row.time)},
                    {"compute_slowdown", row.slowdown}});
  }
  return list;
}

}  // namespace weft
