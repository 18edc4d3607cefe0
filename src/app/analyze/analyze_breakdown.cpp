#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/analyze/analyze_sections.hpp"
#include "app/terminal.hpp"
#include "base/table.hpp"
#include "base/text.hpp"

namespace weft {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMaxRows = 32;

std::string percent_text(const std::optional<double>& value) {
  return value ? fmt::format("{:.2f} %", *value) : "-";
}

ordered_json percent_json(const std::optional<double>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

// Whole microseconds as an integer: that is how most traces have them.
ordered_json micros_json(Nanos t) {
  if (t.value % 1000 == 0) return t.value / 1000;
  return static_cast<double>(t.value) / 1000.0;
}

std::string time_text(Nanos t) {
  if (t.value < 0) return fmt::format("-{}", format_time(Nanos{-t.value}));
  return t.value == 0 ? "0" : format_time(t);
}

std::string rank_text(const DeviceTrace& trace) {
  return trace.label.empty() ? fmt::format("{}", trace.rank.value)
                             : fmt::format("{} {}", trace.label, trace.rank.value);
}

ordered_json kernel_types_json(const std::vector<KernelTypeTime>& types) {
  ordered_json list = ordered_json::array();
  for (const KernelTypeTime& type : types) {
    list.push_back({{"kernel_type", kernel_type_name(type.kinds)},
                    {"sum_us", micros_json(type.time)},
                    {"percentage", type.percentage}});
  }
  return list;
}

ordered_json rank_json(const DeviceTrace& trace, const RankBreakdown& rank) {
  ordered_json json;
  json["rank"] = trace.rank.value;
  json["file"] = trace.file;
  if (!trace.label.empty()) json["label"] = trace.label;
  json["overlap_pct"] = percent_json(rank.overlap_pct);
  json["idle_us"] = micros_json(rank.idle);
  json["compute_us"] = micros_json(rank.compute);
  json["non_compute_us"] = micros_json(rank.non_compute);
  json["kernel_us"] = micros_json(rank.kernel);
  json["idle_pct"] = percent_json(rank.idle_pct);
  json["compute_pct"] = percent_json(rank.compute_pct);
  json["non_compute_pct"] = percent_json(rank.non_compute_pct);
  json["communication_us"] = micros_json(rank.communication);
  json["overlapped_us"] = micros_json(rank.overlapped);
  json["kernels"] = rank.activities;
  json["kernel_types"] = kernel_types_json(rank.kernel_types);
  return json;
}

// As RFC 4180 wants it: kernel names have commas.
std::string csv_cell(const std::string& text) {
  std::string cell = "\"";
  for (const char c : text) {
    if (c == '"') cell += '"';
    cell += c;
  }
  return cell + '"';
}

}  // namespace

void print_breakdown(const AnalyzeStudy& study, std::ostream& out) {
  TextTable table({"rank", "kernel time", "idle", "compute", "non-compute", "communication", "overlapped"});
  const std::size_t shown = std::min(study.traces.size(), kMaxRows);
  for (std::size_t i = 0; i < shown; ++i) {
    const RankBreakdown& rank = study.ranks[i];
    table.add_row({rank_text(study.traces[i]), time_text(rank.kernel), percent_text(rank.idle_pct),
                   percent_text(rank.compute_pct), percent_text(rank.non_compute_pct), time_text(rank.communication),
                   percent_text(rank.overlap_pct)});
  }
  out << table.to_string(columns_of(out));
  if (shown < study.traces.size()) {
    out << fmt::format("and {} more ranks: --json has them all\n", study.traces.size() - shown);
  }
  if (study.types.empty()) return;
  TextTable types({"kernels that ran", "time", "share"});
  for (const KernelTypeTime& type : study.types) {
    types.add_row({kernel_type_name(type.kinds), time_text(type.time), fmt::format("{:.1f} %", type.percentage)});
  }
  out << "\n" << types.to_string(columns_of(out));
}

void add_breakdown_json(const AnalyzeStudy& study, ordered_json& json) {
  json["ranks"] = ordered_json::array();
  for (std::size_t i = 0; i < study.traces.size(); ++i) {
    json["ranks"].push_back(rank_json(study.traces[i], study.ranks[i]));
  }
  json["kernel_types"] = kernel_types_json(study.types);
}

void write_kernels_csv(const AnalyzeStudy& study, std::ostream& out) {
  const auto micros = [](Nanos t) { return static_cast<double>(t.value) / 1000.0; };
  out << "rank,label,kind,name,count,total_us,mean_us,min_us,max_us\n";
  for (const DeviceTrace& trace : study.traces) {
    for (const KernelSummary& kernel : summarize_kernels(trace, study.without_last_step)) {
      out << fmt::format("{},{},{},{},{},{:.3f},{:.3f},{:.3f},{:.3f}\n", trace.rank.value, trace.label,
                         name_of(kernel.kind), csv_cell(trace.names[kernel.name]), kernel.count, micros(kernel.total),
                         micros(kernel.total) / static_cast<double>(kernel.count), micros(kernel.shortest),
                         micros(kernel.longest));
    }
  }
}

}  // namespace weft
