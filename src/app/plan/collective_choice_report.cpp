#include "app/plan/collective_choice_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.hpp"

namespace weft {
namespace {

constexpr std::size_t kMostLines = 12, kMostCandidates = 3;

std::string reason_of(const CollectiveChoice& choice) {
  std::string others;
  std::size_t shown = 0;
  for (const auto& [name, time] : choice.candidates) {
    if (name == choice.chosen || shown++ == kMostCandidates) continue;
    if (shown > kMostCandidates) break;
    others += fmt::format("{}{} {}", others.empty() ? "" : ", ", name, format_time(time));
  }
  if (choice.wanted) return fmt::format("because --program names it; alone {}", others);
  if (others.empty()) return "the only candidate";
  // The search for generators' programs stops at one that is nearly as fast as any can be.
  const Nanos fastest = choice.candidates.front().second, nearly = fastest + Nanos{fastest.value / 10'000};
  const auto own = std::ranges::find(choice.candidates, choice.chosen, &std::pair<std::string, Nanos>::first);
  const bool is_fastest = own != choice.candidates.end() && own->second <= nearly;
  if (is_fastest) return fmt::format("the fastest; the others: {}", others);
  return choice.spans_classes
             ? fmt::format("one program for members whose links differ; on these links others take: {}", others)
             : fmt::format("not the fastest alone; others take: {}", others);
}

}  // namespace

std::string collective_choice_text(const std::vector<CollectiveChoice>& choices) {
  std::string text = "\nWhat carries out the collectives (times of candidates alone on their links)\n";
  for (std::size_t i = 0; i < choices.size() && i < kMostLines; ++i) {
    const CollectiveChoice& c = choices[i];
    const std::string whose = c.classes.empty() ? "" : fmt::format(" of {}", fmt::join(c.classes, ", "));
    text += fmt::format("  {} of {}, {}{} ({} ranks), {} x: {}, {}\n      {}\n", c.collective, format_bytes(c.bytes),
                        c.group, whose, c.members, c.transfers, c.chosen, format_time(c.time), reason_of(c));
  }
  if (choices.size() > kMostLines)
    text += fmt::format("  and {} more sizes; --json has all\n", choices.size() - kMostLines);
  return text;
}

nlohmann::ordered_json collective_choice_json(const std::vector<CollectiveChoice>& choices) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const CollectiveChoice& c : choices) {
    nlohmann::ordered_json line{{"collective", c.collective}, {"group", c.group},         {"members", c.members},
                                {"bytes", c.bytes.value},     {"transfers", c.transfers}, {"chosen", c.chosen},
                                {"time_s", seconds(c.time)},  {"named_by_user", c.wanted}};
    if (!c.classes.empty()) line["classes"] = c.classes;
    for (const auto& [name, time] : c.candidates) {
      line["candidates"].push_back({{"program", name}, {"time_s", seconds(time)}});
    }
    list.push_back(std::move(line));
  }
  return list;
}

}  // namespace weft
