#include "app/against/error_words.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace weft {

std::vector<std::string> summary_cells(const std::string& name, const ErrorSummary& summary) {
  return {name,
          std::to_string(summary.rows),
          fmt::format("{:.1f} %", summary.median_pct),
          fmt::format("{:.1f} %", summary.mean_pct),
          fmt::format("{:.1f} %", summary.worst_pct),
          fmt::format("{:+.1f} %", summary.bias_pct)};
}

nlohmann::ordered_json summary_json(const ErrorSummary& summary) {
  return {{"rows", summary.rows},
          {"median_pct", summary.median_pct},
          {"mean_pct", summary.mean_pct},
          {"worst_pct", summary.worst_pct},
          {"bias_pct", summary.bias_pct}};
}

}  // namespace weft
