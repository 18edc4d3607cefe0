// Bars of a summary: the steps of policies by their terms, and the memory of stages by what it is for.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "io/figure/figure_sheet.hpp"
#include "io/figure/figure_views.hpp"
#include "io/figure/summary_numbers.hpp"
#include "timeline/timeline.hpp"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kBarHeight = 22, kRowHeight = 34, kThinBar = 10, kThinRow = 20, kNameWidth = 150, kValueWidth = 120;
constexpr double kBarsLeft = kNameWidth, kBarsWidth = kSheetWidth - kNameWidth - kValueWidth - 10;

struct BarTerm {
  std::string colour, words;
  double length = 0;
};

struct BarRow {
  std::string name, remark, value, remark_of_value;
  std::vector<BarTerm> terms;
  double limit = 0;  // drawn as a line; 0: none
  bool thin = false;
};

double length_of(const BarRow& row) {
  double sum = 0;
  for (const BarTerm& term : row.terms) sum += term.length;
  return sum;
}

void draw_row(FigureSheet& sheet, const BarRow& row, double scale) {
  const double height = row.thin ? kThinBar : kBarHeight, middle = sheet.top() + height / 2;
  const TextLook right{.anchor = TextAnchor::end},
      small{.anchor = TextAnchor::end, .colour = figure_colour::kMuted, .size = 9};
  if (row.thin) {
    sheet.text({kBarsLeft - 10, middle + 3}, row.remark, small);
  } else {
    sheet.text({kBarsLeft - 10, middle + (row.remark.empty() ? 4 : -1)}, fitted_text(row.name, kNameWidth - 20), right);
    sheet.text({kBarsLeft - 10, middle + 10}, row.remark, small);
  }
  double x = kBarsLeft;
  for (const BarTerm& term : row.terms) {
    if (term.length <= 0) continue;
    sheet.box({x, sheet.top(), term.length * scale, height}, term.colour, term.words);
    x += term.length * scale;
  }
  const double edge = kSheetWidth - 14;
  if (row.thin) {
    sheet.text({edge, middle + 3}, row.value + ", " + row.remark_of_value, small);
  } else {
    sheet.text({edge, middle + (row.remark_of_value.empty() ? 4 : -1)}, row.value, right);
    sheet.text({edge, middle + 10}, row.remark_of_value, small);
  }
  if (row.limit > 0) {
    const double at = kBarsLeft + row.limit * scale;
    sheet.line({at, sheet.top() - 4}, {at, sheet.top() + height + 4}, figure_colour::kInk);
  }
  sheet.move_down(row.thin ? kThinRow : kRowHeight);
}

// `limit_words` stands above the line of the first row.
void draw_rows(FigureSheet& sheet, const std::vector<BarRow>& rows, const std::string& limit_words) {
  double longest = 0;
  for (const BarRow& row : rows) longest = std::max({longest, length_of(row), row.limit});
  const double scale = longest > 0 ? kBarsWidth / longest : 0;
  if (rows.front().limit > 0) {
    const double half = text_width(limit_words, 9) / 2;
    const double at = std::clamp(kBarsLeft + rows.front().limit * scale, kBarsLeft + half, kSheetWidth - 14 - half);
    sheet.text({at, sheet.top() + 8}, limit_words, {.anchor = TextAnchor::middle, .size = 9});
    sheet.move_down(16);
  }
  for (const BarRow& row : rows) draw_row(sheet, row, scale);
  std::vector<LegendEntry> legend;
  std::map<std::string, bool> seen;
  for (const BarRow& row : rows) {
    for (const BarTerm& term : row.terms) {
      if (term.length > 0.0005 * longest && !seen[term.words]) legend.push_back({term.colour, term.words});
      if (term.length > 0.0005 * longest) seen[term.words] = true;
    }
  }
  sheet.move_down(4);
  sheet.legend(kBarsLeft, legend);
}

std::string change_words(double value, double before) {
  return fmt::format("{:+.1f} %", 100 * (value / before - 1));
}

std::string traffic_words(TrafficKind kind) {
  constexpr EnumArray<TrafficKind, std::string_view, kTrafficKinds> kWords = {
      "DP gradients", "parameter gathers", "TP", "PP", "CP", "EP", "other"};
  return std::string(kWords[kind]);
}

std::vector<BarTerm> terms_of_step(const Json& account) {
  using namespace figure_colour;
  std::vector<BarTerm> terms = {{std::string(kCompute), "compute", length_in(account, "compute_s")},
                                {std::string(kSlowdown), "slowed down", length_in(account, "slowdown_s")}};
  for (int i = 0; i < kTrafficKinds; ++i) {
    const auto kind = static_cast<TrafficKind>(i);
    terms.push_back({std::string(kExposedBy[i]), "exposed: " + traffic_words(kind),
                     length_in(member_of(account, "exposed_by_kind"), std::string(name_of(kind)))});
  }
  terms.push_back({std::string(kBubble), "bubble", length_in(account, "bubble_s")});
  terms.push_back({std::string(kIdle), "idle", length_in(account, "idle_s")});
  return terms;
}

std::string remark_of_policy(const Json& policy, bool measured) {
  if (measured) return "measured";
  if (member_of(policy, "fits") == false) return "does not fit";
  return member_of(policy, "tight") == true ? "memory is tight" : "";
}

std::vector<BarRow> rows_of_policies(const Json& summary) {
  std::vector<BarRow> rows;
  const double bound = length_in(summary, "bound_s");
  for (const auto& [name, policy] : member_of(summary, "policies").items()) {
    const double step = length_in(policy, "step_s"), predicted = length_in(policy, "predicted_step_s");
    if (step <= 0) continue;
    rows.push_back({name, remark_of_policy(policy, predicted > 0), seconds_words(step),
                    bound > 0 ? change_words(step, bound) + " over bound" : "", terms_of_step(policy), bound});
    if (member_of(policy, "predicted").is_object() && predicted > 0) {
      rows.push_back({"", "predicted", seconds_words(predicted), change_words(predicted, step),
                      terms_of_step(policy["predicted"]), bound, true});
    }
  }
  return rows;
}

std::vector<BarTerm> terms_of_memory(const Json& stage, const std::vector<std::string>& order) {
  std::vector<BarTerm> terms;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::size_t colour = std::min(i, std::size(figure_colour::kSeries) - 1);
    terms.push_back(
        {std::string(figure_colour::kSeries[colour]), order[i], length_in(member_of(stage, "terms"), order[i])});
  }
  return terms;
}

// The terms of all stages, the usual ones first, in their order.
std::vector<std::string> order_of_terms(const Json& stages) {
  std::vector<std::string> order = {"weights", "gradients", "optimizer state", "activations", "scratch"};
  for (const Json& stage : stages) {
    for (const auto& [name, bytes] : member_of(stage, "terms").items()) {
      if (std::ranges::find(order, name) == order.end()) order.push_back(name);
    }
  }
  return order;
}

}  // namespace

std::string draw_headline(const FigureSubject& subject) {
  const std::vector<BarRow> rows = rows_of_policies(subject.summary);
  if (rows.empty()) fail("{}: there are no policies to draw", subject.title);
  FigureSheet sheet(subject.title, "Where the step goes");
  draw_rows(sheet, rows, "bound " + seconds_words(length_in(subject.summary, "bound_s")));
  return sheet.svg();
}

std::string draw_memory(const FigureSubject& subject) {
  const Json& stages = member_of(member_of(member_of(subject.summary, "policies"), subject.policy), "memory");
  if (!stages.is_array() || stages.empty()) fail("{}: there is no memory to draw", subject.title);
  const std::vector<std::string> order = order_of_terms(stages);
  std::vector<BarRow> rows;
  for (const Json& stage : stages) {
    const double bytes = length_in(stage, "bytes"), room = length_in(stage, "device_bytes");
    rows.push_back({string_in(stage, "stage"), "", bytes_words(bytes),
                    room > 0 ? fmt::format("{:.0f} % used", 100 * bytes / room) : "", terms_of_memory(stage, order),
                    room});
  }
  FigureSheet sheet(subject.title, "Memory of a device under " + subject.policy);
  draw_rows(sheet, rows, "for plans " + bytes_words(rows.front().limit));
  return sheet.svg();
}

}  // namespace weft
