#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/analyze/analyze_sections.hpp"
#include "io/trace/study_trace.hpp"
#include "timeline/trace/path_entries.hpp"

namespace weft {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMaxNames = 16, kMaxEntries = 64;

double micros(Nanos t) {
  return static_cast<double>(t.value) / 1000.0;
}
ordered_json micros_json(Nanos t) {
  if (t.value % 1000 == 0) return t.value / 1000;
  return micros(t);
}

ordered_json reasons_json(const std::array<Nanos, kExposedReasons>& reasons) {
  ordered_json json = ordered_json::object();
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    json[std::string(name_of(static_cast<ExposedReason>(i)))] = micros_json(reasons[i]);
  }
  return json;
}

ordered_json row_json(const WhyReport& report, const DeviceTrace& trace, const ExposureKey& key,
                      const ExposureRow& row) {
  ordered_json json;
  json["collective"] = key.collective;
  json["group"] = key.group;
  json["group_ranks"] = row.ranks > 0 ? ordered_json(row.ranks) : ordered_json(nullptr);
  json["size"] = size_class_name(key.size);
  json["count"] = row.count;
  json["time_us"] = micros_json(row.time);
  json["exposed_us"] = micros_json(row.exposed);
  json["exposed_by_reason_us"] = reasons_json(row.reasons);
  json["hideable_us"] = micros_json(row.possible);
  std::vector<std::pair<Nanos, std::string>> beside;
  for (const auto& [name, time] : row.beside) beside.emplace_back(time, name);
  std::stable_sort(beside.begin(), beside.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  if (beside.size() > kMaxNames) beside.resize(kMaxNames);
  json["hideable_beside"] = ordered_json::array();
  for (const auto& [time, name] : beside) {
    json["hideable_beside"].push_back({{"name", name}, {"time_us", micros_json(time)}});
  }
  const bool sized = row.sized > 0;
  json["bytes"] = sized ? ordered_json(row.bytes) : ordered_json(nullptr);
  json["algorithm_gb_per_s"] = sized ? ordered_json(row.algorithm_bytes_per_s() / 1e9) : ordered_json(nullptr);
  // What links carry for a buffer depends on how many ranks there are.
  const bool bus = sized && row.ranks > 0;
  json["bus_gb_per_s"] = bus ? ordered_json(row.bus_bytes_per_s() / 1e9) : ordered_json(nullptr);
  json["best_bus_gb_per_s"] = bus ? ordered_json(row.best_bus_bytes_per_s / 1e9) : ordered_json(nullptr);
  const auto link = link_of(report, trace, row.ranks);
  json["link_gb_per_s"] = link ? ordered_json(link->bytes_per_second / 1e9) : ordered_json(nullptr);
  return json;
}

void add_rank(const WhyReport& report, const LabelledStudy& labelled, std::size_t r, ordered_json& json) {
  const RankStudy& rank = labelled.study.ranks[r];
  std::array<Nanos, kExposedReasons> reasons{};
  for (const DeviceExposure& stretch : rank.exposed.stretches) {
    reasons[static_cast<std::size_t>(stretch.reason)] += stretch.end - stretch.begin;
  }
  json["steps"] = rank.steps;
  json["exposed_us"] = micros_json(rank.exposed.total());
  json["exposed_by_reason_us"] = reasons_json(reasons);
  json["waits"] = name_of(rank.order.source);
  json["gain_bound_us"] = {{"same_order", micros_json(rank.bound.gain_same_order)},
                           {"any_order", micros_json(rank.bound.gain_any_order)}};
  if (labelled.study.ranks.size() > 1) {
    json["came_last"] = rank.lateness.last;
    json["others_waited_us"] = micros_json(rank.lateness.caused);
    json["waited_for_others_us"] = micros_json(rank.lateness.waited);
    json["clock_moved_us"] =
        labelled.study.match.aligned[r] ? micros_json(labelled.study.match.offset[r]) : ordered_json(nullptr);
  }
  json["collectives"] = ordered_json::array();
  for (const auto* row : by_exposed_time(rank.table)) {
    json["collectives"].push_back(row_json(report, *rank.trace, row->first, row->second));
  }
}

ordered_json path_json(const LabelledStudy& labelled) {
  const std::vector<PathSegment>& path = labelled.study.path;
  ordered_json json;
  json["time_us"] = path.empty() ? ordered_json(0) : micros_json(path.back().end - path.front().begin);
  const Nanos step = labelled.study.ranks.front().trace->step_time;
  if (step.value > 0) json["step_us"] = micros_json(step);
  const EnumArray<PathKind, Nanos, kPathKinds> times = path_time_by_kind(path);
  ordered_json by_kind = ordered_json::object();
  for (std::size_t i = 0; i < times.size(); ++i) {
    by_kind[std::string(name_of(static_cast<PathKind>(i)))] = micros_json(times[i]);
  }
  json["by_kind_us"] = std::move(by_kind);
  json["segments"] = path.size();
  json["longest"] = ordered_json::array();
  std::vector<PathEntry> entries = path_entries(labelled.study);
  if (entries.size() > kMaxEntries) entries.resize(kMaxEntries);
  for (const PathEntry& entry : entries) {
    json["longest"].push_back({{"kind", name_of(entry.kind)},
                               {"name", entry.name},
                               {"count", entry.count},
                               {"time_us", micros_json(entry.time)}});
  }
  return json;
}

}  // namespace

void add_why_json(const WhyReport& report, ordered_json& json) {
  json["critical_path"] = ordered_json::array();
  json["matching"] = ordered_json::array();
  for (const LabelledStudy& labelled : report.labels) {
    for (std::size_t r = 0; r < labelled.traces.size(); ++r) {
      add_rank(report, labelled, r, json.at("ranks").at(labelled.traces[r]));
    }
    ordered_json path = path_json(labelled);
    ordered_json matching;
    if (!labelled.label.empty()) path["label"] = matching["label"] = labelled.label;
    json["critical_path"].push_back(std::move(path));
    matching["collectives"] = labelled.study.match.collectives();
    matching["unmatched"] = labelled.study.match.unmatched;
    matching["remarks"] = labelled.study.match.remarks;
    json["matching"].push_back(std::move(matching));
  }
}

void write_why_trace(const WhyReport& report, std::ostream& out) {
  const auto measured = std::find_if(report.labels.begin(), report.labels.end(),
                                     [](const LabelledStudy& labelled) { return labelled.label == "measured"; });
  write_study_trace(out, (measured == report.labels.end() ? report.labels.front() : *measured).study);
}

}  // namespace weft
