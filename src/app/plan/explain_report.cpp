#include "app/plan/explain_report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/plan/explain_words.hpp"
#include "base/table.hpp"
#include "base/text.hpp"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxNamed = 3;  // operations that hide a transfer, or reasons

class ExplanationText {
 public:
  ExplanationText(const PolicyStudy& study, const PlanExplanation& explanation, std::size_t columns)
      : study_(study), e_(explanation), columns_(columns) {}

  std::string write() const {
    std::string text = heading() + "\n" + table();
    text += "\n";
    for (const ExplainedTransfer& transfer : e_.mean) text += details(transfer);
    text.append("\n").append(summary());
    return text;
  }

 private:
  const OperationKind& kind(std::int32_t id) const { return e_.kinds[id]; }

  std::string heading() const {
    std::int64_t ranks = 0;
    for (const StageExplanation& stage : e_.stages) ranks += stage.ranks;
    return wrapped(0, 2,
                   fmt::format("Communication of {}, a step of {}: means over {} ranks{}", study_.policy,
                               time(study_.step_s), ranks, e_.stages.size() > 1 ? " (--json has each stage)" : ""));
  }

  std::string table() const {
    TextTable table({"communication", "over", "calls", "bytes", "alone", "busy", "hidden", "exposed"});
    ExplainedTransfer sum;
    for (const ExplainedTransfer& t : e_.mean) {
      const auto calls = static_cast<double>(t.instances);
      table.add_row({kind(t.kind).name, kind(t.kind).group, std::to_string(t.instances),
                     format_bytes(Bytes{t.bytes.value / t.instances}), time(t.alone_s / calls), time(t.busy_s),
                     time(t.hidden_s), time(t.exposed_s)});
      sum.busy_s += t.busy_s;
      sum.hidden_s += t.hidden_s;
      sum.exposed_s += t.exposed_s;
    }
    table.add_row({"all", "", "", "", "", time(sum.busy_s), time(sum.hidden_s), time(sum.exposed_s)});
    return table.to_string(columns_);
  }

  std::string title(std::int32_t id) const {
    const OperationKind& k = kind(id);
    std::string text = fmt::format("{}: {} ({} over {}", k.words, k.name, k.collective, k.group);
    if (k.first_layer >= 0) {
      text += k.first_layer == k.last_layer ? fmt::format(", layer {}", k.first_layer)
                                            : fmt::format(", layers {}-{}", k.first_layer, k.last_layer);
    }
    return text + ")";
  }

  std::string details(const ExplainedTransfer& t) const {
    std::string text = wrapped(0, 2, title(t.kind));
    if (t.hidden_s > 0) {
      std::string behind = fmt::format("{} hidden behind ", percent(t.hidden_s, t.hidden_s + t.exposed_s));
      for (std::size_t i = 0; i < t.hidden_behind.size() && i < kMaxNamed; ++i) {
        behind += fmt::format("{}{} {}", i > 0 ? ", " : "",
                              kind_words(e_, t.hidden_behind[i].kind, "waiting for other things"),
                              percent(t.hidden_behind[i].seconds, t.hidden_s));
      }
      if (t.hidden_behind.size() > kMaxNamed) behind += fmt::format(", {} more", t.hidden_behind.size() - kMaxNamed);
      text += wrapped(2, 4, behind);
    }
    // Time that another transfer covers is counted there.
    if (t.beside_s > 0.01 * t.busy_s) text += wrapped(2, 4, fmt::format("{} beside other transfers", time(t.beside_s)));
    for (std::size_t i = 0; i < t.exposures.size() && i < kMaxNamed; ++i) {
      const Exposure& e = t.exposures[i];
      text += wrapped(2, 4, fmt::format("exposed {}: {}", percent(e.seconds, t.exposed_s), reason_words(e_, e)));
    }
    if (t.exposures.size() > kMaxNamed) {
      double rest = 0;
      for (std::size_t i = kMaxNamed; i < t.exposures.size(); ++i) rest += t.exposures[i].seconds;
      text +=
          wrapped(2, 4, fmt::format("exposed {}: {} more", percent(rest, t.exposed_s), t.exposures.size() - kMaxNamed));
    }
    return text + choices(t.kind);
  }

  // Of every branch of the tree its cheapest leaf.
  std::string choices(std::int32_t id) const {
    const auto found = e_.choices.find(id);
    if (found == e_.choices.end() || found->second.under.size() * found->second.under.front().under.size() < 2)
      return "";
    std::string text;
    for (const ChoiceNode& branch : found->second.under) {
      const std::string rule(branch.rule == Substitution::none ? "as it is" : in_words(branch.rule));
      text += fmt::format("{}{}{} {}", text.empty() ? "" : ", ", rule,
                          branch.parts > 1 ? fmt::format(" in {} parts", branch.parts) : "", time(branch.cost_s()));
    }
    return wrapped(
        2, 4,
        fmt::format("one of them left alone {}; {}", time(found->second.under.front().under.front().transfer_s), text));
  }

  std::string summary() const {
    std::string text = e_.largest.empty() ? "Nothing is exposed.\n" : "The largest exposures\n";
    int number = 0;
    for (const LargestExposure& x : e_.largest) {
      text += wrapped(0, 3,
                      fmt::format("{}. {}: {}, {} of the step; {} {}. At no cost it would leave a step of {} ({}).",
                                  ++number, kind(x.kind).words, time(x.exposed_s), percent(x.exposed_s, study_.step_s),
                                  percent(x.reason_s, x.exposed_s), short_words(x.reason), time(x.step_without_s),
                                  change(x.step_without_s)));
      text += wrapped(3, 5, shorter_with(x.remedies));
    }
    if (!e_.against_bubble.empty()) text += wrapped(0, 2, "Against the bubble: " + shorter_with(e_.against_bubble));
    if (!e_.against_recomputation.empty()) {
      text += wrapped(0, 2, "Against recomputation: " + shorter_with(e_.against_recomputation));
    }
    return text;
  }
  std::string shorter_with(const std::vector<Remedy>& remedies) const {
    if (remedies.empty()) return "Nothing that was tried shortens the step.";
    std::string text;
    for (const Remedy& r : remedies) {
      text += fmt::format("{}{} ({}, {}{})", text.empty() ? "Shorter with " : "; ", r.change, time(r.step_s),
                          change(r.step_s), r.fits ? "" : ", does not fit");
    }
    return text;
  }
  std::string change(double step_s) const { return relative_change(step_s, study_.step_s); }

  const PolicyStudy& study_;
  const PlanExplanation& e_;
  std::size_t columns_;  // of the table
};

Json kind_name(const PlanExplanation& e, std::int32_t id) {
  return id < 0 ? Json(nullptr) : Json(e.kinds[id].name);
}

Json choice_json(const ChoiceNode& node) {
  Json json{{"rule", in_words(node.rule)}, {"parts", node.parts},   {"transfer_s", node.transfer_s},
            {"left_s", node.left_s},       {"loss_s", node.loss_s}, {"cost_s", node.cost_s()}};
  if (!node.under.empty()) json["choices"] = Json::array();
  for (const ChoiceNode& below : node.under) json["choices"].push_back(choice_json(below));
  return json;
}

Json transfer_json(const PlanExplanation& e, const ExplainedTransfer& t) {
  const OperationKind& kind = e.kinds[static_cast<std::size_t>(t.kind)];
  Json json{{"name", kind.name},
            {"framework_name", kind.words},
            {"collective", kind.collective},
            {"group", kind.group},
            {"traffic", std::string(name_of(kind.traffic))},
            {"calls", t.instances},
            {"bytes", t.bytes.value},
            {"alone_s", t.alone_s},
            {"busy_s", t.busy_s},
            {"hidden_s", t.hidden_s},
            {"exposed_s", t.exposed_s},
            {"beside_transfers_s", t.beside_s}};
  json["layers"] = kind.first_layer < 0 ? Json(nullptr) : Json::array({kind.first_layer, kind.last_layer});
  json["hidden_behind"] = Json::array();
  for (const HiddenBehind& h : t.hidden_behind) {
    json["hidden_behind"].push_back({{"compute", kind_name(e, h.kind)}, {"seconds", h.seconds}});
  }
  json["exposed_because"] = Json::array();
  for (const Exposure& x : t.exposures) {
    json["exposed_because"].push_back(
        {{"reason", std::string(name_of(x.reason))},
         {"seconds", x.seconds},
         {"cause", kind_name(e, x.cause)},
         {"cause_stage", x.cause_rank < 0 ? Json(nullptr) : Json(e.stages[x.cause_rank].name)},
         {"waiting", kind_name(e, x.waiting)}});
  }
  return json;
}

Json remedies_json(const std::vector<Remedy>& remedies) {
  Json list = Json::array();
  for (const Remedy& r : remedies) list.push_back({{"change", r.change}, {"step_s", r.step_s}, {"fits", r.fits}});
  return list;
}

Json transfers_json(const PlanExplanation& e, const std::vector<ExplainedTransfer>& transfers) {
  Json json = Json::array();
  for (const ExplainedTransfer& transfer : transfers) json.push_back(transfer_json(e, transfer));
  return json;
}

}  // namespace

std::string explanation_text(const PolicyStudy& study, const PlanExplanation& explanation, std::size_t columns) {
  return ExplanationText(study, explanation, columns).write();
}

Json explanation_json(const PolicyStudy& study, const PlanExplanation& e) {
  Json json;
  json["communication"] = transfers_json(e, e.mean);
  json["choices"] = Json::object();
  for (const auto& [kind, tree] : e.choices) {
    const OperationKind& k = e.kinds[static_cast<std::size_t>(kind)];
    json["choices"][fmt::format("{} ({} over {})", k.name, k.collective, k.group)] = choice_json(tree);
  }
  json["stages"] = Json::array();
  for (const StageExplanation& stage : e.stages) {
    json["stages"].push_back(
        {{"stage", stage.name}, {"ranks", stage.ranks}, {"communication", transfers_json(e, stage.transfers)}});
  }
  json["largest"] = Json::array();
  for (const LargestExposure& x : e.largest) {
    json["largest"].push_back({{"name", e.kinds[static_cast<std::size_t>(x.kind)].name},
                               {"framework_name", e.kinds[static_cast<std::size_t>(x.kind)].words},
                               {"exposed_s", x.exposed_s},
                               {"of_step_pct", 100 * x.exposed_s / study.step_s},
                               {"reason", std::string(name_of(x.reason))},
                               {"reason_s", x.reason_s},
                               {"step_without_s", x.step_without_s},
                               {"remedies", remedies_json(x.remedies)}});
  }
  json["against_bubble"] = remedies_json(e.against_bubble);
  json["against_recomputation"] = remedies_json(e.against_recomputation);
  return json;
}

}  // namespace weft
