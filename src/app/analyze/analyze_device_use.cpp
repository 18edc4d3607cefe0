#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/analyze/analyze_sections.hpp"
#include "app/terminal.hpp"
#include "base/table.hpp"
#include "base/text.hpp"

namespace weft {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMaxRows = 32;

std::string time_text(Nanos t) {
  return t.value == 0 ? "0" : format_time(t);
}
std::string percent_of(Nanos part, Nanos whole) {
  if (whole.value <= 0) return "-";
  return fmt::format("{:.1f} %", 100.0 * static_cast<double>(part.value) / static_cast<double>(whole.value));
}
double micros(Nanos t) {
  return static_cast<double>(t.value) / 1000.0;
}

Nanos time_of(const IdleTime& idle, IdleReason reason) {
  return idle.time[reason];
}

const QueueLength* queue_of(const DeviceUse& use, const IdleTime& idle) {
  const auto found = std::find_if(use.queues.begin(), use.queues.end(), [&](const QueueLength& queue) {
    return queue.device == idle.device && queue.stream == idle.stream;
  });
  return idle.stream == kAbsent || found == use.queues.end() ? nullptr : &*found;
}

bool has_launches(const AnalyzeStudy& study) {
  return std::any_of(study.use.begin(), study.use.end(),
                     [](const DeviceUse& use) { return use.launches.launches > 0; });
}

void print_idle(const AnalyzeStudy& study, std::ostream& out) {
  out << "Why devices and streams were idle, and launches that waited in a stream's queue\n\n";
  TextTable table({"rank", "stream", "idle", "", "host wait", "kernel wait", "other", "queue max", "mean", "full"});
  std::size_t rows = 0, left = 0;
  for (std::size_t i = 0; i < study.traces.size(); ++i) {
    for (const IdleTime& idle : study.use[i].idle) {
      // Of many ranks, only devices as a whole.
      if (study.traces.size() > 1 && idle.stream != kAbsent) continue;
      if (rows++ >= kMaxRows) {
        ++left;
        continue;
      }
      const QueueLength* queue = queue_of(study.use[i], idle);
      const Nanos total = idle.total();
      table.add_row({fmt::format("{}", study.traces[i].rank.value),
                     idle.stream == kAbsent ? "all" : fmt::format("{}", idle.stream), time_text(total),
                     percent_of(total, study.ranks[i].kernel), percent_of(time_of(idle, IdleReason::host_wait), total),
                     percent_of(time_of(idle, IdleReason::kernel_wait), total),
                     percent_of(time_of(idle, IdleReason::other), total),
                     queue == nullptr ? "-" : fmt::format("{}", queue->longest),
                     queue == nullptr ? "-" : fmt::format("{:.1f}", queue->mean),
                     queue == nullptr ? "-" : percent_of(queue->full, study.ranks[i].kernel)});
    }
  }
  out << table.to_string(columns_of(out));
  if (left > 0) out << fmt::format("{} more with --json\n", left);
}

void print_launches(const AnalyzeStudy& study, std::ostream& out) {
  out << fmt::format(
      "\nLaunches: calls, kernels and delays between them in the median, and the longest. Short: the "
      "kernel\nis shorter than its call; long calls take over {}, long delays over {}\n\n",
      format_time(kLongCall), format_time(kLongDelay));
  TextTable table(
      {"rank", "launches", "call", "longest", "kernel", "delay", "longest", "short", "long calls", "long delays"});
  for (std::size_t i = 0; i < study.traces.size() && i < kMaxRows; ++i) {
    const LaunchStatistics& launches = study.use[i].launches;
    if (launches.launches == 0) continue;
    const auto share = [&](std::int64_t count) {
      return fmt::format("{:.1f} %", 100.0 * static_cast<double>(count) / static_cast<double>(launches.launches));
    };
    table.add_row({fmt::format("{}", study.traces[i].rank.value), fmt::format("{}", launches.launches),
                   time_text(launches.call.median), time_text(launches.call.longest), time_text(launches.kernel.median),
                   time_text(launches.delay.median), time_text(launches.delay.longest), share(launches.short_kernels),
                   fmt::format("{}", launches.long_calls), share(launches.long_delays)});
  }
  out << table.to_string(columns_of(out));
}

ordered_json distribution_json(const Distribution& distribution) {
  return {{"median_us", micros(distribution.median)}, {"max_us", micros(distribution.longest)}};
}

ordered_json idle_json(const IdleTime& idle) {
  ordered_json json;
  json["device"] = idle.stream == kAbsent ? ordered_json(nullptr) : ordered_json(idle.device);
  json["stream"] = idle.stream == kAbsent ? ordered_json(nullptr) : ordered_json(idle.stream);
  for (int i = 0; i < kIdleReasons; ++i) {
    const std::size_t index = i;
    const std::string name(name_of(static_cast<IdleReason>(i)));
    json[name + "_us"] = micros(idle.time[index]);
    json[name + "_gaps"] = idle.gaps[index];
  }
  return json;
}

ordered_json launches_json(const LaunchStatistics& launches) {
  return {{"count", launches.launches},
          {"short_kernels", launches.short_kernels},
          {"long_calls", launches.long_calls},
          {"long_delays", launches.long_delays},
          {"call", distribution_json(launches.call)},
          {"kernel", distribution_json(launches.kernel)},
          {"delay", distribution_json(launches.delay)}};
}

ordered_json queue_json(const QueueLength& queue, Nanos whole) {
  const double share = whole.value > 0 ? static_cast<double>(queue.full.value) / static_cast<double>(whole.value) : 0;
  return {{"device", queue.device},
          {"stream", queue.stream},
          {"max", queue.longest},
          {"mean", queue.mean},
          {"mean_of_changes", queue.mean_of_changes},
          {"full_us", micros(queue.full)},
          {"full_pct", 100 * share}};
}

}  // namespace

void print_device_use(const AnalyzeStudy& study, std::ostream& out) {
  if (!has_launches(study)) return;
  print_idle(study, out);
  print_launches(study, out);
  out << "\n";
}

void add_device_use_json(const AnalyzeStudy& study, ordered_json& json) {
  for (std::size_t i = 0; i < study.traces.size(); ++i) {
    const DeviceUse& use = study.use[i];
    ordered_json& rank = json.at("ranks").at(i);
    rank["idle"] = ordered_json::array();
    for (const IdleTime& idle : use.idle) rank["idle"].push_back(idle_json(idle));
    rank["launches"] = launches_json(use.launches);
    rank["queues"] = ordered_json::array();
    for (const QueueLength& queue : use.queues) rank["queues"].push_back(queue_json(queue, study.ranks[i].kernel));
  }
}

}  // namespace weft
