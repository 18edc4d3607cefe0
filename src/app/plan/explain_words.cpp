#include "app/plan/explain_words.hpp"

#include <fmt/format.h>

#include "base/text.hpp"

namespace weft {

std::string time(double seconds) {
  return seconds == 0 ? "0" : format_time(nanos_from_seconds(seconds));
}

std::string percent(double part, double whole) {
  return fmt::format("{:.1f} %", whole > 0 ? 100 * part / whole : 0.0);
}

std::string relative_change(double step_s, double before_s) {
  return fmt::format("{:+.1f} %", 100 * (step_s / before_s - 1));
}

std::string wrapped(std::size_t first, std::size_t rest, const std::string& text) {
  constexpr std::size_t kUnit = 4;  // room for " %);" at the end of a line
  std::string result, line(first, ' ');
  bool empty = true;
  for (const std::string& word : split(text, ' ')) {
    if (empty && word.empty()) continue;      // of two spaces, at the beginning of a line
    const bool unit = word.starts_with('%');  // stays with its number
    if (!empty && !unit && line.size() + 1 + word.size() > kExplanationColumns - kUnit) {
      result += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
      line.assign(rest, ' ');
      empty = true;
    }
    line += empty ? word : " " + word;
    empty = false;
  }
  return result + line + "\n";
}

std::string kind_words(const PlanExplanation& explanation, std::int32_t kind, std::string_view none) {
  return kind < 0 ? std::string(none) : explanation.kinds[static_cast<std::size_t>(kind)].words;
}

std::string_view short_words(ExposureReason reason) {
  constexpr std::string_view kWords[] = {"dependency",
                                         "order (ready compute is held back)",
                                         "order (it is issued late)",
                                         "queue busy",
                                         "link busy",
                                         "memory",
                                         "latency",
                                         "late peer"};
  static_assert(std::size(kWords) == kExposureReasons);
  return kWords[static_cast<std::size_t>(reason)];
}

std::string reason_words(const PlanExplanation& explanation, const Exposure& e) {
  const auto cause = [&](std::string_view none) { return kind_words(explanation, e.cause, none); };
  const std::string waiting = kind_words(explanation, e.waiting, "nothing");
  switch (e.reason) {
    case ExposureReason::dependency:
      return fmt::format("dependency; {} makes its data, {} waits for it", cause("nothing"), waiting);
    case ExposureReason::latency:
      return fmt::format("latency; mostly no bytes move, {} makes its data, {} waits", cause("nothing"), waiting);
    case ExposureReason::held_back:
      return fmt::format("order; {} was ready to compute beside it", cause("other compute"));
    case ExposureReason::issue_order:
      return fmt::format("order; issued behind {}, {} waits", cause("something else"), waiting);
    case ExposureReason::queue_busy:
      return fmt::format("queue busy; behind {}, {} waits", cause("another transfer"), waiting);
    case ExposureReason::link_busy:
      return fmt::format("link busy; shared with {}, {} waits", cause("transfers of other ranks"), waiting);
    case ExposureReason::memory:
      return fmt::format("memory; {} still used what it fills, {} waits", cause("something"), waiting);
    case ExposureReason::late_peer:
      return fmt::format("late peer; {} of {} ended later, {} waits", cause("something"),
                         e.cause_rank < 0 ? "another rank" : explanation.stages[e.cause_rank].name, waiting);
  }
  return "";
}

}  // namespace weft
