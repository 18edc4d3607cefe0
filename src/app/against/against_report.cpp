#include "app/against/against_report.hpp"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "app/against/error_words.hpp"
#include "base/table.hpp"
#include "base/text.hpp"

namespace weft {
namespace {

constexpr double kGib = 1 << 30;

struct NamedTerm {
  std::string name;
  double seconds = 0;
};
// The terms of a step, which add up to it.
std::vector<NamedTerm> terms_of(const RankAccount& account) {
  std::vector<NamedTerm> terms{{"compute", account.compute_s},
                               {"slowdown", account.slowdown_s},
                               {"bubble", account.bubble_s},
                               {"idle", account.idle_s}};
  for (int kind = 0; kind < kTrafficKinds; ++kind) {
    const auto traffic = static_cast<TrafficKind>(kind);
    terms.push_back({fmt::format("exposed {}", name_of(traffic)), account.exposed_by[traffic]});
  }
  return terms;
}

std::string percent(double share) {
  return fmt::format("{:+.1f} %", 100 * share);
}

std::string fits_line(const char* what, std::size_t right, std::size_t all, const char* said) {
  if (all == 0) return "";
  return fmt::format("{}: {} of {} are said {} ({:.1f} %)\n", what, right, all, said,
                     100.0 * static_cast<double>(right) / static_cast<double>(all));
}

std::string worst_table(const std::vector<ComparedRun>& runs, std::size_t top) {
  std::vector<const ComparedRun*> worst;
  for (const ComparedRun& run : runs) {
    if (run.step_error()) worst.push_back(&run);
  }
  std::stable_sort(worst.begin(), worst.end(), [](const ComparedRun* a, const ComparedRun* b) {
    return std::abs(*a->step_error()) > std::abs(*b->step_error());
  });
  if (worst.empty() || top == 0) return "";
  TextTable table({"line", "error", "measured", "predicted", "compute", "exposed", "bubble", "idle"});
  const auto time = [](double s) { return format_time(nanos_from_seconds(s)); };
  for (std::size_t i = 0; i < std::min(top, worst.size()); ++i) {
    const RankAccount& account = worst[i]->prediction->account;
    table.add_row({std::to_string(worst[i]->line), percent(*worst[i]->step_error()), time(*worst[i]->step_s),
                   time(worst[i]->prediction->step_s), time(account.compute_s + account.slowdown_s),
                   time(account.exposed_s), time(account.bubble_s), time(account.idle_s)});
  }
  return fmt::format("\nFurthest off:\n{}\nline {}: weft plan {}\n", table.to_string(), worst.front()->line,
                     worst.front()->flags);
}

}  // namespace

std::optional<double> ComparedRun::step_error() const {
  if (!prediction || !step_s) return std::nullopt;
  return prediction->step_s / *step_s - 1;
}

std::optional<double> ComparedRun::memory_error() const {
  if (!prediction || !reserved_gib) return std::nullopt;
  return static_cast<double>(prediction->first_stage.value) / kGib / *reserved_gib - 1;
}

AgainstStudy study_against(const std::vector<ComparedRun>& runs) {
  AgainstStudy study;
  std::vector<double> step, memory;
  std::map<std::string, std::vector<double>> by_term;
  for (const ComparedRun& run : runs) {
    if (!run.prediction) {
      ++study.without_plan;
      continue;
    }
    if (const auto error = run.memory_error()) memory.push_back(*error);
    if (const auto error = run.step_error()) {
      step.push_back(*error);
      const std::vector<NamedTerm> terms = terms_of(run.prediction->account);
      const auto largest = std::max_element(
          terms.begin(), terms.end(), [](const NamedTerm& a, const NamedTerm& b) { return a.seconds < b.seconds; });
      by_term[largest->name].push_back(*error);
    }
    ++(run.out_of_memory ? study.out_of_memory : study.finished);
    if (!run.out_of_memory && run.prediction->fits) ++study.finished_fit;
    if (run.out_of_memory && !run.prediction->fits) ++study.out_of_memory_unfit;
  }
  study.step = summarize(step);
  study.memory = summarize(memory);
  for (const auto& [name, errors] : by_term) study.by_largest_term.push_back({name, summarize(errors)});
  return study;
}

std::string words_of(const Flags& flags) {
  std::string words;
  for (const auto& [name, value] : flags.values()) {
    if (name == "against" || name == "where" || name == "csv" || name == "json" || name == "top" || name == "jobs") {
      continue;
    }
    words += fmt::format("{}--{}", words.empty() ? "" : " ", name);
    if (value != "true" || name == "tied") words += " " + value;
  }
  return words;
}

std::string against_text(const AgainstStudy& study, const std::vector<ComparedRun>& runs, std::size_t top) {
  std::string text;
  if (study.step.rows + study.memory.rows > 0) {
    TextTable table({"predicted / measured - 1", "rows", "median", "mean", "worst", "bias"});
    if (study.step.rows > 0) table.add_row(summary_cells("step", study.step));
    for (const AgainstStudy::Term& term : study.by_largest_term) {
      table.add_row(summary_cells("  mostly " + term.name, term.step));
    }
    if (study.memory.rows > 0) table.add_row(summary_cells("reserved memory of rank 0", study.memory));
    text += table.to_string() + "\n";
  }
  text += fits_line("Runs that finished", study.finished_fit, study.finished, "to fit");
  text += fits_line("Runs that ran out of memory", study.out_of_memory_unfit, study.out_of_memory, "not to fit");
  return text + worst_table(runs, top);
}

nlohmann::ordered_json against_json(const AgainstStudy& study, const std::vector<ComparedRun>& runs) {
  nlohmann::ordered_json json{
      {"step", summary_json(study.step)},
      {"reserved_memory", summary_json(study.memory)},
      {"finished", {{"rows", study.finished}, {"said_to_fit", study.finished_fit}}},
      {"out_of_memory", {{"rows", study.out_of_memory}, {"said_not_to_fit", study.out_of_memory_unfit}}},
      {"without_plan", study.without_plan},
      {"rows", nlohmann::ordered_json::array()}};
  for (const ComparedRun& run : runs) {
    nlohmann::ordered_json row{{"line", run.line}, {"flags", run.flags}, {"policy", run.policy}};
    if (!run.prediction) {
      row["reason"] = run.reason;
    } else {
      row["step_s"] = run.prediction->step_s;
      row["fits"] = run.prediction->fits;
      row["share_of_memory"] = run.prediction->fullest_share;
      if (run.prediction->chance_of_fit) row["chance_of_fit"] = *run.prediction->chance_of_fit;
      row["first_stage_gib"] = static_cast<double>(run.prediction->first_stage.value) / kGib;
      if (run.step_error()) row["step_error"] = *run.step_error();
      if (run.memory_error()) row["memory_error"] = *run.memory_error();
      for (const NamedTerm& term : terms_of(run.prediction->account)) row["terms_s"][term.name] = term.seconds;
    }
    json["rows"].push_back(std::move(row));
  }
  return json;
}

void write_against_csv(std::ostream& out, const std::vector<ComparedRun>& runs) {
  out << "line,policy,measured_step_s,predicted_step_s,step_error,measured_reserved_gib,predicted_gib,memory_error,"
         "out_of_memory,fits,share_of_memory,chance_of_fit";
  for (const NamedTerm& term : terms_of({})) out << "," << term.name << " s";
  for (const char* term : {"weights", "gradients", "optimizer state", "activations", "scratch"}) {
    out << "," << term << " GiB";
  }
  out << "\n";
  const auto cell = [](const std::optional<double>& number) { return number ? fmt::format("{:.6g}", *number) : ""; };
  for (const ComparedRun& run : runs) {
    if (!run.prediction) continue;
    const RunPrediction& predicted = *run.prediction;
    fmt::print(out, "{},{},{},{:.6g},{},{},{:.6g},{},{},{},{:.6g},{}", run.line, run.policy, cell(run.step_s),
               predicted.step_s, cell(run.step_error()), cell(run.reserved_gib),
               static_cast<double>(predicted.first_stage.value) / kGib, cell(run.memory_error()), run.out_of_memory,
               predicted.fits, predicted.fullest_share, cell(predicted.chance_of_fit));
    for (const NamedTerm& term : terms_of(predicted.account)) fmt::print(out, ",{:.6g}", term.seconds);
    for (const char* name : {"weights", "gradients", "optimizer state", "activations", "scratch"}) {
      double gib = 0;
      for (const MemoryTerm& term : predicted.memory.front().terms) {
        if (term.name == name) gib += static_cast<double>(term.bytes.value) / kGib;
      }
      fmt::print(out, ",{:.6g}", gib);
    }
    out << "\n";
  }
}

}  // namespace weft
