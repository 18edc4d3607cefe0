#include "app/analyze_command.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/analyze_breakdown.hpp"
#include "app/analyze_compare.hpp"
#include "app/analyze_study.hpp"
#include "app/analyze_why.hpp"
#include "app/cli.hpp"
#include "app/files.hpp"
#include "app/flags.hpp"
#include "app/terminal.hpp"
#include "app/version.hpp"
#include "base/error.hpp"
#include "base/text.hpp"

namespace weft {
namespace {

using nlohmann::ordered_json;

// What is reported: the breakdown first, then why communication is exposed, then the comparison where one is asked for.
// Each has files of its own.
struct AnalyzeReport {
  AnalyzeStudy study;
  WhyReport why;
  std::optional<TraceComparison> comparison;
};

std::vector<std::string> comma_separated(const std::string& text) {
  std::vector<std::string> files;
  for (std::string& file : split(text, ',')) {
    if (!file.empty()) files.push_back(std::move(file));
  }
  return files;
}

TraceComparison compare_with(const std::string& against, const WhyReport& after, std::ostream& err) {
  const std::vector<std::string> files = comma_separated(against);
  if (files.empty()) fail("--against '{}': name the traces to compare with, separated by commas", against);
  const AnalyzeStudy before = study_traces(read_analyzed_traces(files, terminal_of(err)));
  for (const std::string& warning : before.warnings) err << "weft: " << warning << "\n";
  return compare_reports(explain_traces(before), after);
}

std::vector<std::string> write_files(const Flags& flags, const AnalyzeReport& report) {
  std::vector<std::string> written;
  const auto csv = [&](const std::string& file) {
    write_text_file(file, [&](std::ostream& stream) { write_kernels_csv(report.study, stream); });
    written.push_back(file);
  };
  const auto trace = [&](const std::string& file) {
    write_text_file(file, [&](std::ostream& stream) { write_why_trace(report.why, stream); });
    written.push_back(file);
  };
  if (const auto file = flags.text("csv")) csv(*file);
  if (const auto file = flags.text("trace")) trace(*file);
  if (const auto folder = flags.text("out")) {
    make_folder(*folder);
    csv((std::filesystem::path(*folder) / "kernels.csv").string());
    trace((std::filesystem::path(*folder) / "trace.json").string());
  }
  return written;
}

void print_json(const AnalyzeReport& report, std::ostream& out) {
  ordered_json json;
  json["version"] = kVersion;
  add_breakdown_json(report.study, json);
  add_why_json(report.why, json);
  if (report.comparison) add_comparison_json(*report.comparison, json);
  json["warnings"] = report.study.warnings;
  // Names in foreign traces may be no UTF-8.
  out << json.dump(2, ' ', false, ordered_json::error_handler_t::replace) << "\n";
}

void print_text(const AnalyzeReport& report, const std::vector<std::string>& written, std::ostream& out) {
  print_breakdown(report.study, out);
  out << "\n";
  print_why(report.why, out);
  if (report.comparison) {
    out << "\n";
    print_comparison(*report.comparison, out);
  }
  for (const std::string& file : written) out << fmt::format("\nwritten: {}\n", file);
}

}  // namespace

int run_analyze_command(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  Flags flags(
      "analyze",
      "Where a trace's time went: overlap, idle, compute, communication; which communication was exposed and why; "
      "late ranks; the critical path. Takes PyTorch (Kineto) traces, one file per rank, and weft's own; .json or "
      ".json.gz.",
      "weft analyze rank0.json.gz rank1.json.gz");
  flags.positionals("files", "the traces");
  flags.value("csv", "FILE", "write a row per rank and kernel there");
  flags.value("trace", "FILE",
              "write a Chrome trace there, exposed stretches and the critical path on tracks of their own");
  flags.value("out", "DIR", "write kernels.csv and trace.json there");
  flags.value("against", "FILES", "compare with these traces, separated by commas: what was before, or predicted");
  flags.value("step", "N", "the critical path of ProfilerStep#N only (default: of all that counts)");
  flags.value("link", "RATE",
              "what a rank's links carry per direction, e.g. 400Gb/s (default: NVLink of known devices)");
  flags.value("config", "FILE", "a JSON object with flags as keys; the command line wins");
  flags.toggle("json", "one JSON object instead of tables");
  flags.parse(arguments);
  if (flags.texts().empty()) fail("weft analyze: name a trace, e.g. weft analyze trace.json.gz");

  WhyOptions options;
  if (const auto text = flags.text("link")) options.link = parse_bandwidth(*text, "--link");
  options.step =
      flags.integer("step", std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max());

  AnalyzeReport report;
  report.study = study_traces(read_analyzed_traces(flags.texts(), terminal_of(err)));
  report.why = explain_traces(report.study, options);
  if (const auto against = flags.text("against")) {
    report.comparison = compare_with(*against, report.why, err);
  } else {
    report.comparison = compare_labels(report.why);
  }
  const std::vector<std::string> written = write_files(flags, report);
  for (const std::string& warning : report.study.warnings) err << "weft: " << warning << "\n";
  if (flags.on("json")) {
    print_json(report, out);
  } else {
    print_text(report, written, out);
  }
  return kOk;
}

}  // namespace weft
