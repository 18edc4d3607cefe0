#include "app/plan/mover_report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/text.hpp"

namespace weft {
namespace {

constexpr std::size_t kMostMoverLines = 12;

std::string figures_text(const MoverFigures& figures) {
  return fmt::format("{} {}, compute +{:.1f} %", figures.mover, format_time(figures.time), 100 * figures.slowdown);
}

nlohmann::ordered_json figures_json(const MoverFigures& figures) {
  return {{"mover", figures.mover}, {"time_s", seconds(figures.time)}, {"compute_slowdown", figures.slowdown}};
}

}  // namespace

std::string mover_text(const std::vector<MovedTransfers>& rows) {
  std::string text =
      "\nWho moves the collectives inside nodes (time alone; what compute beside it is slowed down by)\n";
  for (std::size_t i = 0; i < rows.size() && i < kMostMoverLines; ++i) {
    const MovedTransfers& row = rows[i];
    std::string others;
    for (const MoverFigures& other : row.others) {
      others += fmt::format("{}{}", others.empty() ? "" : "; ", figures_text(other));
    }
    text +=
        fmt::format("  {} of {}, {} ({} ranks), {} x, {}: {}\n      the others: {}\n", row.collective,
                    format_bytes(row.bytes), row.group, row.members, row.transfers,
                    row.beside_compute ? "beside compute" : "compute waits for it", figures_text(row.chosen), others);
  }
  if (rows.size() > kMostMoverLines)
    text += fmt::format("  and {} more; --json has all\n", rows.size() - kMostMoverLines);
  return text;
}

nlohmann::ordered_json mover_json(const std::vector<MovedTransfers>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const MovedTransfers& row : rows) {
    nlohmann::ordered_json line{
        {"collective", row.collective},      {"group", row.group},         {"members", row.members},
        {"bytes", row.bytes.value},          {"transfers", row.transfers}, {"beside_compute", row.beside_compute},
        {"chosen", figures_json(row.chosen)}};
    for (const MoverFigures& other : row.others) line["others"].push_back(figures_json(other));
    list.push_back(std::move(line));
  }
  return list;
}

}  // namespace weft
