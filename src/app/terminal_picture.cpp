#include "app/terminal_picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "app/terminal.hpp"
#include "base/text.hpp"
#include "io/step_bars.hpp"

namespace weft {
namespace {

constexpr std::size_t kMostRows = 8, kNameColumns = 10, kMostColumns = 160;

// ComputeColour, then nothing.
struct BlockLook {
  std::string_view character, colour, words;
};
constexpr std::array<BlockLook, kComputeColours + 1> kBlocks = {{{"\u2592", "\x1b[94m", "forward"},
                                                                 {"\u2588", "\x1b[34m", "backward"},
                                                                 {"\u2593", "\x1b[90m", "optimizer"},
                                                                 {"!", "\x1b[33m", "waits for communication"},
                                                                 {"\u2588", "\x1b[34m", ""},  // of traces alone
                                                                 {" ", "", "idle"}}};
constexpr std::string_view kPlain = "\x1b[0m", kBold = "\x1b[1m", kRed = "\x1b[31m";

// The time of every look in every share of the step.
using TimeInShares = std::vector<std::array<double, kBlocks.size()>>;

TimeInShares time_in_shares(const std::vector<StepBar>& bars, double nanos_of_share, std::size_t shares) {
  TimeInShares times(shares);
  for (const StepBar& bar : bars) {
    const double begin = static_cast<double>(bar.begin.value) / nanos_of_share,
                 end = static_cast<double>(bar.end.value) / nanos_of_share;
    for (auto i = static_cast<std::size_t>(begin); i < shares && static_cast<double>(i) < end; ++i) {
      const double share = std::min(end, static_cast<double>(i) + 1) - std::max(begin, static_cast<double>(i));
      times[i][static_cast<std::size_t>(bar.colour)] += share * (bar.top - bar.bottom);
    }
  }
  for (auto& share : times) {
    double used = 0;
    for (const double time : share) used += time;
    share.back() = std::max(0.0, 1 - used);
  }
  return times;
}

std::string row_of_blocks(const TimeInShares& times, bool colours) {
  std::string row;
  std::string_view current;
  for (const auto& share : times) {
    const BlockLook& look = kBlocks[static_cast<std::size_t>(std::ranges::max_element(share) - share.begin())];
    if (colours && look.colour != current) {
      row += look.colour.empty() ? kPlain : look.colour;
      current = look.colour;
    }
    row += look.character;
  }
  if (!current.empty()) row += kPlain;
  return row;
}

std::string blocks_legend(bool colours) {
  std::string text(kNameColumns, ' ');
  for (const BlockLook& look : kBlocks) {
    if (look.words.empty()) continue;
    if (look.character == " ") continue;
    text += colours ? fmt::format("{}{}{} {}  ", look.colour, look.character, kPlain, look.words)
                    : fmt::format("{} {}  ", look.character, look.words);
  }
  while (text.back() == ' ') text.pop_back();
  return text + "\n";
}

std::string step_heading(const PolicyStudy& policy) {
  return fmt::format("{}: {} a step\n", policy.policy, format_time(nanos_from_seconds(policy.step_s)));
}

}  // namespace

std::string terminal_timeline(const Timeline& timeline, const Accounting& accounting, TerminalLook look) {
  const std::size_t shares = std::clamp(look.columns, kNameColumns + 10, kMostColumns) - kNameColumns;
  const double nanos_of_share =
      std::max(1.0, static_cast<double>(step_length(timeline).value)) / static_cast<double>(shares);
  const std::vector<RankBars> ranks =
      step_bars(timeline, accounting, Nanos{static_cast<std::int64_t>(nanos_of_share / 8)});
  const std::size_t rows = std::min(ranks.size(), kMostRows);
  std::string text;
  for (std::size_t row = 0; row < rows; ++row) {
    const RankBars& rank = ranks[rows < 2 ? 0 : row * (ranks.size() - 1) / (rows - 1)];
    text += fmt::format("{:<{}}", rank.name.substr(0, kNameColumns - 1), kNameColumns);
    text += row_of_blocks(time_in_shares(rank.compute, nanos_of_share, shares), look.colours) + "\n";
  }
  return text;
}

std::string terminal_steps(const PlanStudy& study, const std::ostream& out) {
  const std::size_t columns = columns_of(out);
  if (columns == kAnyWidth || study.policies.empty()) return "";
  const TerminalLook look{std::min(columns, kMostColumns), shows_colours(out)};
  const PolicyStudy &first = study.policies.front(), &best = study.policies[study.best];
  const double longest = std::max(first.step_s, best.step_s);
  std::string text = "\n";
  const auto add = [&](const PolicyStudy& policy) {
    const auto room = static_cast<double>(look.columns - kNameColumns);
    const auto shares = static_cast<std::size_t>(std::lround(room * policy.step_s / longest));
    text += step_heading(policy) +
            terminal_timeline(policy.timeline, policy.accounting, {kNameColumns + shares, look.colours});
  };
  if (study.best != 0) add(first);
  add(best);
  return text + blocks_legend(look.colours);
}

std::string with_emphasis(std::string report, std::string_view best, const std::ostream& out) {
  if (!shows_colours(out)) return report;
  std::string text;
  for (const std::string& line : split(report, '\n')) {
    const bool is_best = line.starts_with(best) && line.size() > best.size() && line[best.size()] == ' ';
    if (line.starts_with("Does not fit") || line.find("(does not fit)") != std::string::npos) {
      text += fmt::format("{}{}{}\n", kRed, line, kPlain);
    } else {
      text += is_best ? fmt::format("{}{}{}\n", kBold, line, kPlain) : line + "\n";
    }
  }
  text.pop_back();  // the report ends with a line's end, behind which split finds an empty line
  return text;
}

}  // namespace weft
