// `--explain` on one screen: the policies side by side, what one of them exposes, why, and what to do about it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "app/plan/explain_report.hpp"
#include "app/plan/explain_words.hpp"
#include "app/plan/plan_text_report.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "study/plan/bubble_use.hpp"

namespace weft {
namespace {

constexpr std::size_t kMaxKinds = 5;      // rows of what is exposed
constexpr std::size_t kMaxChanges = 6;    // of what to do
constexpr double kMinShareOfStep = 0.01;  // as a fraction

class ExplanationScreen {
 public:
  ExplanationScreen(const PlanStudy& study, std::size_t explained, const PlanExplanation& explanation,
                    std::size_t columns)
      : study_(study), policy_(study.policies[explained]), e_(explanation), columns_(columns) {}

  std::string write() const {
    std::string text;
    for (const std::string& line : split(study_heading(study_), '\n')) {
      if (!line.empty()) text += line.size() <= kExplanationColumns ? line + "\n" : wrapped(0, 2, line);
    }
    text.append("\n").append(policies()).append(bound()).append(memory()).append("\n");
    text.append(exposed()).append(waiting()).append("\n").append(reasons()).append(what_to_do()).append("\n");
    return text.append("--explain-full: every communication and what hides it; --json: every stage.\n")
        .append(failed_lines(study_));
  }

 private:
  std::string policies() const {
    TextTable table({"policy", "step", "compute", "exposed", "bubble", "idle", "hidden", "over bound", "memory"});
    for (const PolicyStudy& p : study_.policies) {
      const RankAccount& a = p.accounting.mean;
      const double hidden = hidden_pct(a);
      table.add_row({p.policy, time(p.step_s), time(a.compute_s + a.slowdown_s), time(a.exposed_s), time(a.bubble_s),
                     time(a.idle_s), std::isnan(hidden) ? "-" : fmt::format("{:.1f} %", hidden),
                     fmt::format("{:+.1f} %", p.gap_to_bound_pct), p.fits ? "fits" : "too much"});
    }
    return table.to_string(columns_);
  }

  std::string bound() const {
    const std::string& why = study_.bound_explanation;
    return wrapped(
        0, 2, fmt::format("Bound {}, which no schedule beats: {}", time(study_.bound_s), why.substr(0, why.find(':'))));
  }

  std::string memory() const {
    const StageMemory& fullest = fullest_stage(policy_);
    return wrapped(
        0, 2,
        fmt::format("Memory of {}: {} needs {} of {} ({}){}", policy_.policy, fullest.name,
                    format_bytes(fullest.needed), format_bytes(fullest.available), percent(fullest.share(), 1),
                    policy_.fits ? "" : ": does not fit; without --explain: what would"));
  }

  std::string exposed() const {
    double sum = 0;
    for (const ExplainedTransfer& t : e_.mean) sum += t.exposed_s;
    std::string text = wrapped(
        0, 2,
        fmt::format("{}: {} of {} ({}) is exposed communication, {} is hidden (means over {} ranks)", policy_.policy,
                    time(sum), time(policy_.step_s), percent(sum, policy_.step_s), time(hidden()), study_.devices));
    if (sum == 0) return text;
    TextTable table({"What is exposed", "calls", "each", "exposed", "of step"});
    double rest = 0;
    std::size_t kinds = 0;
    for (std::size_t i = 0; i < e_.mean.size(); ++i) {
      const ExplainedTransfer& t = e_.mean[i];
      if (i >= kMaxKinds || t.exposed_s == 0) {
        rest += t.exposed_s;
        kinds += t.exposed_s > 0 ? 1 : 0;
        continue;
      }
      const OperationKind& kind = e_.kinds[static_cast<std::size_t>(t.kind)];
      table.add_row({kind.words, std::to_string(t.instances), format_bytes(Bytes{t.bytes.value / t.instances}),
                     time(t.exposed_s), percent(t.exposed_s, policy_.step_s)});
    }
    if (kinds > 0) table.add_row({fmt::format("{} more", kinds), "", "", time(rest), percent(rest, policy_.step_s)});
    return text + table.to_string(columns_);
  }

  double hidden() const {
    double sum = 0;
    for (const ExplainedTransfer& t : e_.mean) sum += t.hidden_s;
    return sum;
  }

  // Names the class that computes longest, for which the others wait.
  std::string waiting() const {
    const RankAccount& mean = policy_.accounting.mean;
    if (mean.bubble_s < kMinShareOfStep * policy_.step_s) return "";
    std::string text = fmt::format("{} ({}) is bubble: waiting for other ranks.", time(mean.bubble_s),
                                   percent(mean.bubble_s, policy_.step_s));
    const std::vector<RankAccount>& ranks = policy_.accounting.ranks;
    const auto busy = [](const RankAccount& a) { return a.compute_s + a.slowdown_s; };
    const auto [least, most] = std::minmax_element(
        ranks.begin(), ranks.end(), [&](const RankAccount& a, const RankAccount& b) { return busy(a) < busy(b); });
    if (ranks.size() > 1 && busy(*most) > 1.005 * busy(*least)) {
      const auto name = [&](auto at) { return policy_.timeline.ranks[at - ranks.begin()].name; };
      text += fmt::format(" {} computes longest ({}), {} shortest ({}).", name(most), time(busy(*most)), name(least),
                          time(busy(*least)));
    }
    if (const std::optional<BubbleUse> use = bubble_use(policy_)) {
      text += fmt::format(
          " {} of {} fill such time: a device computes {} of the step, {} "
          "without them.",
          time(use->extra_s), extra_work_in_words(policy_.plan().layout), percent(use->compute_s, use->step_s),
          percent(use->compute_s - use->extra_s, use->step_s));
    }
    return wrapped(0, 2, text);
  }

  std::string reasons() const {
    if (e_.largest.empty()) return "";
    std::string text = "Why\n";
    int number = 0;
    for (const LargestExposure& x : worth_explaining()) {
      text += wrapped(
          0, 3,
          fmt::format("{}. {}: {} {}. At no cost the step would be {} ({}).", ++number,
                      e_.kinds[static_cast<std::size_t>(x.kind)].words, percent(x.reason_s, x.exposed_s),
                      main_reason(x), time(x.step_without_s), relative_change(x.step_without_s, policy_.step_s)));
    }
    return text + "\n";
  }

  // Shows the largest exposure, and others that take a noticeable part of the step.
  std::span<const LargestExposure> worth_explaining() const {
    std::size_t count = 0;
    while (count < e_.largest.size() &&
           (count == 0 || e_.largest[count].exposed_s >= kMinShareOfStep * policy_.step_s)) {
      ++count;
    }
    return std::span(e_.largest).first(count);
  }

  // The largest of the clauses with the main reason.
  std::string main_reason(const LargestExposure& x) const {
    for (const ExplainedTransfer& t : e_.mean) {
      if (t.kind != x.kind) continue;
      for (const Exposure& exposure : t.exposures) {
        if (exposure.reason == x.reason) return reason_words(e_, exposure);
      }
    }
    return std::string(short_words(x.reason));
  }

  std::string what_to_do() const {
    struct Change {
      const Remedy* remedy;
      std::string against;
    };
    std::vector<Change> changes;
    const auto add = [&](const std::vector<Remedy>& remedies, const std::string& against) {
      for (const Remedy& r : remedies) {
        const auto same =
            std::find_if(changes.begin(), changes.end(), [&](const Change& c) { return c.remedy->change == r.change; });
        if (same == changes.end()) {
          changes.push_back({&r, against});
        } else {
          same->against += ", " + against;
        }
      }
    };
    const std::span<const LargestExposure> explained = worth_explaining();
    for (std::size_t i = 0; i < explained.size(); ++i) add(explained[i].remedies, std::to_string(i + 1));
    add(e_.against_bubble, "bubble");
    add(e_.against_recomputation, "recompute");
    if (changes.empty()) return e_.largest.empty() ? "" : "What to do: nothing that was tried shortens the step.\n";
    std::stable_sort(changes.begin(), changes.end(),
                     [](const Change& a, const Change& b) { return a.remedy->step_s < b.remedy->step_s; });
    // One suggestion of faster links is enough; flags can be changed today.
    const auto is_hardware = [](const Change& c) { return c.remedy->change.find("--") == std::string::npos; };
    const auto first = std::find_if(changes.begin(), changes.end(), is_hardware);
    if (first != changes.end()) {
      changes.erase(std::remove_if(std::next(first), changes.end(), is_hardware), changes.end());
    }
    if (changes.size() > kMaxChanges) changes.resize(kMaxChanges);
    TextTable table({"What to do (each alone, planned and simulated)", "against", "step", "change", ""});
    for (const Change& c : changes) {
      table.add_row({c.remedy->change, c.against, time(c.remedy->step_s),
                     relative_change(c.remedy->step_s, policy_.step_s), c.remedy->fits ? "" : "does not fit"});
    }
    return table.to_string(columns_);
  }

  const PlanStudy& study_;
  const PolicyStudy& policy_;
  const PlanExplanation& e_;
  std::size_t columns_;  // of tables
};

}  // namespace

std::string explanation_screen(const PlanStudy& study, std::size_t explained, const PlanExplanation& explanation,
                               std::size_t columns) {
  return ExplanationScreen(study, explained, explanation, columns).write();
}

}  // namespace weft
