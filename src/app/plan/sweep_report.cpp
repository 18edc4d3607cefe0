#include "app/plan/sweep_report.hpp"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/table.hpp"
#include "base/text.hpp"
#include "study/plan/plan_study.hpp"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

std::string time(double s) {
  return s == 0 ? "0" : format_time(nanos_from_seconds(s));
}

std::string fastest_table(const Sweep& sweep, const std::vector<std::size_t>& ranking, std::size_t top,
                          std::size_t columns) {
  std::vector<std::string> header{"#"};
  for (const SweepKey& key : sweep.spec.keys) header.push_back(key.name);
  for (const char* name : {"step", "tokens/s", "TFLOP/s/GPU", "MFU", "exposed", "hidden", "bubble", "memory"}) {
    header.emplace_back(name);
  }
  TextTable table(header);
  for (std::size_t place = 0; place < std::min(top, ranking.size()); ++place) {
    const SweepRow& row = sweep.rows[ranking[place]];
    const SweepFigures& f = *row.figures;
    std::vector<std::string> cells{std::to_string(place + 1)};
    for (std::size_t k = 0; k < sweep.spec.keys.size(); ++k) cells.push_back(sweep.spec.keys[k].values[row.choice[k]]);
    cells.insert(cells.end(),
                 {time(f.step_s), format_count(static_cast<std::int64_t>(f.tokens_per_s)),
                  fmt::format("{:.1f}", f.tflops_per_gpu), fmt::format("{:.1f} %", 100 * f.mfu), time(f.exposed_comm_s),
                  std::isnan(f.hidden_pct) ? "-" : fmt::format("{:.1f} %", f.hidden_pct), time(f.bubble_s),
                  format_bytes(*row.memory_peak) + (row.tight ? " !" : "")});
    table.add_row(cells);
  }
  return table.to_string(columns);
}

// Most frequent first; the example is the first combination of its kind.
std::string reasons(const Sweep& sweep) {
  struct Kind {
    std::size_t count = 0;
    const SweepRow* example = nullptr;
    bool alike = false;  // other numbers in other rows
  };
  std::map<std::string, Kind> kinds;
  for (const SweepRow& row : sweep.rows) {
    if (row.figures) continue;
    Kind& kind = kinds[kind_of_reason(row.reason)];
    if (kind.count++ == 0) kind.example = &row;
    kind.alike = kind.alike || row.reason != kind.example->reason;
  }
  std::vector<Kind> ordered;
  for (const auto& [text, kind] : kinds) ordered.push_back(kind);
  std::stable_sort(ordered.begin(), ordered.end(), [](const Kind& a, const Kind& b) { return a.count > b.count; });
  std::string text;
  for (const Kind& kind : ordered) {
    text +=
        fmt::format("{:>7} x  {}{}\n           e.g. {}\n", format_count(static_cast<std::int64_t>(kind.count)),
                    kind.example->reason, kind.alike ? ", or another such number" : "", sweep.describe(*kind.example));
  }
  return text;
}

// Quoted where a comma, a quote or a line's end is inside.
std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    quoted += c;
    if (c == '"') quoted += c;
  }
  return quoted + "\"";
}

std::string csv_number(double value) {
  return std::isnan(value) ? "" : fmt::format("{}", value);
}

Json row_json(const Sweep& sweep, const SweepRow& row) {
  Json json;
  for (std::size_t k = 0; k < sweep.spec.keys.size(); ++k) {
    json["keys"][sweep.spec.keys[k].name] = sweep.spec.keys[k].values[row.choice[k]];
  }
  if (row.figures) {
    const SweepFigures& f = *row.figures;
    json["step_s"] = f.step_s;
    json["tokens_per_s"] = f.tokens_per_s;
    json["tflops_per_gpu"] = f.tflops_per_gpu;
    json["mfu"] = f.mfu;
    json["exposed_comm_s"] = f.exposed_comm_s;
    json["hidden_pct"] = std::isnan(f.hidden_pct) ? Json(nullptr) : Json(f.hidden_pct);
    json["bubble_s"] = f.bubble_s;
  }
  if (!row.decided.empty()) json["decided"] = row.decided;
  if (row.memory_peak) json["memory_peak_bytes"] = row.memory_peak->value;
  if (row.fits) json["fits"] = *row.fits;
  if (row.figures) json["tight"] = row.tight;
  if (!row.figures) json["reason"] = row.reason;
  return json;
}

}  // namespace

std::string kind_of_reason(const std::string& reason) {
  std::string kind;
  for (std::size_t i = 0; i < reason.size(); ++i) {
    const bool digit = std::isdigit(static_cast<unsigned char>(reason[i])) != 0;
    const bool point = reason[i] == '.' && i + 1 < reason.size() &&
                       std::isdigit(static_cast<unsigned char>(reason[i + 1])) != 0 && kind.ends_with('N');
    if (!digit && !point) {
      kind += reason[i];
    } else if (!kind.ends_with('N')) {
      kind += 'N';
    }
  }
  // How many bytes are too many is no kind of its own.
  for (const char* unit : {"N KiB", "N MiB", "N TiB", "N PiB", "N B"}) {
    for (std::size_t at = kind.find(unit); at != std::string::npos; at = kind.find(unit)) {
      kind.replace(at, std::string_view(unit).size(), "N GiB");
    }
  }
  return kind;
}

std::string sweep_text_report(const Sweep& sweep, std::size_t top, std::size_t columns) {
  const std::vector<std::size_t> ranking = sweep.ranking();
  const std::size_t infeasible = sweep.rows.size() - ranking.size();
  std::string text = fmt::format("{} combinations, {} feasible, in {:.2f} s\n",
                                 format_count(static_cast<std::int64_t>(sweep.rows.size())),
                                 format_count(static_cast<std::int64_t>(ranking.size())), sweep.seconds);
  if (!ranking.empty()) text += fmt::format("\n{}", fastest_table(sweep, ranking, top, columns));
  const auto shown = ranking.begin() + static_cast<std::ptrdiff_t>(std::min(top, ranking.size()));
  if (std::any_of(ranking.begin(), shown, [&](std::size_t row) { return sweep.rows[row].tight; })) {
    text += fmt::format("! above {:.0f} % of a device's memory: the allocator's fragmentation decides\n",
                        100 * kTightMemory);
  }
  if (infeasible > 0) {
    text += fmt::format("\nInfeasible: {}\n", format_count(static_cast<std::int64_t>(infeasible))) + reasons(sweep);
  }
  return text;
}

void write_sweep_csv(std::ostream& out, const Sweep& sweep) {
  for (const SweepKey& key : sweep.spec.keys) out << key.name << ",";
  const bool decides = std::ranges::any_of(sweep.rows, [](const SweepRow& row) { return !row.decided.empty(); });
  if (decides) out << "decided,";
  out << "step_s,tokens_per_s,tflops_per_gpu,mfu,exposed_comm_s,hidden_pct,bubble_s,memory_peak_bytes,fits,reason\n";
  for (const SweepRow& row : sweep.rows) {
    for (std::size_t k = 0; k < sweep.spec.keys.size(); ++k) {
      out << csv_cell(sweep.spec.keys[k].values[row.choice[k]]) << ",";
    }
    if (decides) out << csv_cell(row.decided) << ",";
    const std::string memory = row.memory_peak ? std::to_string(row.memory_peak->value) : "";
    if (row.figures) {
      const SweepFigures& f = *row.figures;
      fmt::print(out, "{},{},{},{},{},{},{},{},true,\n", f.step_s, f.tokens_per_s, f.tflops_per_gpu, f.mfu,
                 f.exposed_comm_s, csv_number(f.hidden_pct), f.bubble_s, memory);
    } else {
      fmt::print(out, ",,,,,,,{},{},{}\n", memory, row.fits ? (*row.fits ? "true" : "false") : "",
                 csv_cell(row.reason));
    }
  }
}

nlohmann::ordered_json sweep_json(const Sweep& sweep) {
  const std::vector<std::size_t> ranking = sweep.ranking();
  Json json;
  json["combinations"] = sweep.rows.size();
  json["feasible"] = ranking.size();
  json["seconds"] = sweep.seconds;
  json["rows"] = Json::array();
  for (const std::size_t row : ranking) json["rows"].push_back(row_json(sweep, sweep.rows[row]));
  json["infeasible"] = Json::array();
  for (const SweepRow& row : sweep.rows) {
    if (!row.figures) json["infeasible"].push_back(row_json(sweep, row));
  }
  return json;
}

}  // namespace weft
