#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/analyze/analyze_report.hpp"
#include "app/analyze/analyze_sections.hpp"
#include "app/cli.hpp"
#include "app/commands.hpp"
#include "app/files.hpp"
#include "app/flags.hpp"
#include "app/output_paths.hpp"
#include "app/page/page_sources.hpp"
#include "app/progress_bars.hpp"
#include "app/terminal.hpp"
#include "app/version.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/text.hpp"

namespace weft {
namespace {

std::vector<std::string> comma_separated(const std::string& text) {
  std::vector<std::string> files;
  for (std::string& file : split(text, ',')) {
    if (!file.empty()) files.push_back(std::move(file));
  }
  return files;
}

std::vector<DeviceTrace> traces_of_against(const std::string& against, const std::string& communication,
                                           std::ostream& err) {
  const std::vector<std::string> files = comma_separated(against);
  if (files.empty()) fail("--against '{}': name the traces to compare with, separated by commas", against);
  return read_analyzed_traces(files, progress_bars(terminal_of(err)), communication);
}

TraceComparison compare_with(std::vector<DeviceTrace> traces, const WhyReport& after, std::ostream& err) {
  const AnalyzeStudy before = study_traces(std::move(traces));
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
    written.push_back(write_report_file(*folder, source_of_traces(report.why, analyze_json(report))));
  }
  return written;
}

void print_text(const AnalyzeReport& report, const std::vector<std::string>& written, std::ostream& out) {
  print_verdicts(report.verdicts, out);
  print_breakdown(report.study, out);
  out << "\n";
  print_device_use(report.study, out);
  print_why(report.why, out);
  if (report.comparison) {
    out << "\n";
    print_comparison(*report.comparison, out);
  }
  for (const std::string& file : written) out << fmt::format("\nwritten: {}\n", file);
}

}  // namespace

nlohmann::ordered_json analyze_json(const AnalyzeReport& report) {
  nlohmann::ordered_json json;
  json["version"] = kVersion;
  add_verdicts_json(report.verdicts, json);
  add_breakdown_json(report.study, json);
  add_device_use_json(report.study, json);
  add_why_json(report.why, json);
  if (report.comparison) add_comparison_json(*report.comparison, json);
  json["warnings"] = report.study.warnings;
  return json;
}

int run_analyze_command(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  Flags flags(
      "analyze",
      "Where a trace's time went: overlap, idle, compute, communication; which communication was exposed and why; "
      "late ranks; the critical path. Takes PyTorch (Kineto) traces, one file per rank, and weft's own; .json or "
      ".json.gz.",
      "weft analyze rank0.json.gz rank1.json.gz");
  flags.positionals("files", "the traces, one file per rank; two files of the same rank are compared: before, after");
  flags.value("csv", "FILE", "write a row per rank and kernel there");
  flags.value("trace", "FILE",
              "write a Chrome trace there, exposed stretches and the critical path on tracks of their own");
  flags.value("out", "DIR", "write kernels.csv, trace.json and report.html (a page to look at) there");
  flags.value("against", "FILES", "compare with these traces, separated by commas: what was before, or predicted");
  flags.value("step", "N", "the critical path of ProfilerStep#N only (default: of all that counts)");
  flags.value("link", "RATE",
              "what a rank's links carry per direction, e.g. 400Gb/s (default: NVLink of known devices)");
  flags.value("group-size", "N", "ranks of the groups whose size the trace does not say, for bus bandwidth");
  flags.value("communication", "REGEX",
              "kernels with such names communicate, beside those of libraries that are known (docs/analyze.md)");
  flags.value("config", "FILE", "a JSON object with flags as keys; the command line wins");
  flags.toggle("json", "one JSON object instead of tables");
  flags.parse(arguments);
  require_outputs_can_be_written(flags, {"out"}, {"csv", "trace"});
  if (flags.texts().empty()) fail("weft analyze: name a trace, e.g. weft analyze trace.json.gz");

  WhyOptions options;
  if (const auto text = flags.text("link")) options.link = parse_bandwidth(*text, "--link");
  options.step =
      flags.integer("step", std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max());

  constexpr std::int64_t kMaxRanks = 1 << 20;
  options.group_size = flags.integer("group-size", 2, kMaxRanks).value_or(0);

  AnalyzeReport report;
  const std::string communication = flags.text("communication").value_or("");
  std::vector<DeviceTrace> traces = read_analyzed_traces(flags.texts(), progress_bars(terminal_of(err)), communication),
                           before;
  if (const auto against = flags.text("against")) {
    before = traces_of_against(*against, communication, err);
  } else {
    before = take_before(flags.texts(), traces);
  }
  report.study = study_traces(std::move(traces));
  report.why = explain_traces(report.study, options);
  report.verdicts = judge(report.study, report.why);
  if (!before.empty()) {
    report.comparison = compare_with(std::move(before), report.why, err);
  } else {
    report.comparison = compare_labels(report.why);
  }
  if (options.group_size > 0 && !has_unknown_group_size(report.study)) {
    report.study.warnings.push_back(
        fmt::format("--group-size {}: every communication of the traces says how many ranks take part; it is not used",
                    options.group_size));
  }
  const std::vector<std::string> written = write_files(flags, report);
  for (const std::string& warning : report.study.warnings) err << "weft: " << warning << "\n";
  if (flags.is_set("json")) {
    out << json_text(analyze_json(report), 2) << "\n";  // names in foreign traces may be no UTF-8
  } else {
    print_text(report, written, out);
  }
  return kOk;
}

}  // namespace weft
