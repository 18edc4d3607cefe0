#include "study/run/agreed_settings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/mix.hpp"
#include "base/text.hpp"

namespace weft {
namespace {

constexpr std::size_t kMaxShown = 5;

// Joins texts, each ended by a zero byte, which none of them contains.
std::string to_text(const AgreedSettings& settings) {
  std::string text;
  for (const AgreedSetting& setting : settings) {
    for (const std::string* part : {&setting.name, &setting.value, &setting.words}) text.append(*part).push_back('\0');
  }
  return text;
}

// Another version of Weft may use another form; its version then differs at least.
AgreedSettings from_text(const std::string& text) {
  const std::vector<std::string> parts = split(text, '\0');
  AgreedSettings settings;
  for (std::size_t i = 0; i + 2 < parts.size(); i += 3) settings.push_back({parts[i], parts[i + 1], parts[i + 2]});
  return settings;
}

const AgreedSetting* find_by_name(const AgreedSettings& settings, const std::string& name) {
  const auto found = std::ranges::find(settings, name, &AgreedSetting::name);
  return found == settings.end() ? nullptr : &*found;
}

struct RanksOfValue {
  const AgreedSetting* setting = nullptr;  // null: these ranks have none of this name
  std::vector<std::size_t> ranks;
};

std::string in_words(const RanksOfValue& group, const std::string& name) {
  constexpr std::size_t kMaxRanks = 8;
  const std::size_t shown = std::min(group.ranks.size(), kMaxRanks);
  std::string text =
      fmt::format("{} {}", group.ranks.size() == 1 ? "rank" : "ranks",
                  fmt::join(group.ranks.begin(), group.ranks.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < group.ranks.size()) text += fmt::format(" and {} more", group.ranks.size() - shown);
  const char* verb = group.ranks.size() == 1 ? "has" : "have";
  if (group.setting == nullptr) return fmt::format("{} {} no {}", text, verb, name);
  const std::string& words = group.setting->words;
  return fmt::format("{} {} {} {}", text, verb, name, words.empty() ? group.setting->value : words);
}

// Returns "" where all ranks agree. The smallest group comes first, because it is probably wrong.
std::string difference_in(const std::vector<AgreedSettings>& by_rank, const std::string& name) {
  std::vector<RanksOfValue> groups;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const AgreedSetting* own = find_by_name(by_rank[rank], name);
    const auto same = [&](const RanksOfValue& group) {
      return (group.setting == nullptr) == (own == nullptr) && (own == nullptr || group.setting->value == own->value);
    };
    const auto found = std::ranges::find_if(groups, same);
    RanksOfValue& group = found == groups.end() ? groups.emplace_back(RanksOfValue{own, {}}) : *found;
    group.ranks.push_back(rank);
  }
  if (groups.size() < 2) return "";
  std::ranges::reverse(groups);  // of groups of one size, that of the lowest rank comes last
  std::ranges::stable_sort(groups, {}, [](const RanksOfValue& group) { return group.ranks.size(); });
  std::vector<std::string> words;
  for (const RanksOfValue& group : groups) words.push_back(in_words(group, name));
  return fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace

std::string disagreement(const std::vector<AgreedSettings>& by_rank) {
  std::vector<std::string> names, lines;
  for (const AgreedSettings& settings : by_rank) {
    for (const AgreedSetting& setting : settings) {
      if (std::ranges::find(names, setting.name) == names.end()) names.push_back(setting.name);
    }
  }
  for (const std::string& name : names) {
    if (std::string line = difference_in(by_rank, name); !line.empty()) lines.push_back(std::move(line));
  }
  if (lines.size() > kMaxShown) {
    const std::size_t more = lines.size() - kMaxShown;
    lines.resize(kMaxShown);
    lines.push_back(fmt::format("and {} more", more));
  }
  return fmt::format("{}", fmt::join(lines, "; "));
}

// Compares digests first, so that little is exchanged where all agree, however many ranks there are.
void require_agreement(const AgreedSettings& mine, const Exchange& exchange) {
  const std::string own = to_text(mine);
  const std::vector<std::string> digests = exchange(digest_of(own));
  if (std::ranges::count(digests, digests.front()) == std::ssize(digests)) return;
  std::vector<AgreedSettings> by_rank;
  for (const std::string& text : exchange(own)) by_rank.push_back(from_text(text));
  const std::string words = disagreement(by_rank);
  if (!words.empty()) fail("ranks do not run the same: {}", words);
}

std::string digest_of(std::string_view text) {
  return fmt::format("{:016x}", hash_text(text));
}

}  // namespace weft
