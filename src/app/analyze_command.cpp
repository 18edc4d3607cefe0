#include "app/analyze_command.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/analyze_breakdown.hpp"
#include "app/analyze_study.hpp"
#include "app/cli.hpp"
#include "app/files.hpp"
#include "app/flags.hpp"
#include "app/terminal.hpp"
#include "app/version.hpp"
#include "base/error.hpp"

namespace weft {
namespace {

using nlohmann::ordered_json;

// The report, in this order. A section prints itself and adds its keys to the JSON object; each has files of its own.
struct AnalyzeSection {
  void (*print)(const AnalyzeStudy& study, std::ostream& out);
  void (*add_json)(const AnalyzeStudy& study, ordered_json& json);
};

constexpr AnalyzeSection kSections[] = {
    {print_breakdown, add_breakdown_json},
};

std::vector<std::string> write_files(const Flags& flags, const AnalyzeStudy& study) {
  std::vector<std::string> written;
  const auto csv = [&](const std::string& file) {
    write_text_file(file, [&](std::ostream& stream) { write_kernels_csv(study, stream); });
    written.push_back(file);
  };
  if (const auto file = flags.text("csv")) csv(*file);
  if (const auto folder = flags.text("out")) {
    make_folder(*folder);
    csv((std::filesystem::path(*folder) / "kernels.csv").string());
  }
  return written;
}

void print_json(const AnalyzeStudy& study, std::ostream& out) {
  ordered_json json;
  json["version"] = kVersion;
  for (const AnalyzeSection& section : kSections) section.add_json(study, json);
  json["warnings"] = study.warnings;
  // Names in foreign traces may be no UTF-8.
  out << json.dump(2, ' ', false, ordered_json::error_handler_t::replace) << "\n";
}

void print_text(const AnalyzeStudy& study, const std::vector<std::string>& written, std::ostream& out) {
  const char* separator = "";
  for (const AnalyzeSection& section : kSections) {
    out << separator;
    section.print(study, out);
    separator = "\n";
  }
  for (const std::string& file : written) out << fmt::format("\nwritten: {}\n", file);
}

}  // namespace

int run_analyze_command(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  Flags flags("analyze",
              "Where a trace's time went: overlap, idle, compute, communication. Takes PyTorch (Kineto) traces, "
              "one file per rank, and weft's own; .json or .json.gz.",
              "weft analyze rank0.json.gz rank1.json.gz");
  flags.positionals("files", "the traces");
  flags.value("csv", "FILE", "write a row per rank and kernel there");
  flags.value("out", "DIR", "write kernels.csv there");
  flags.value("config", "FILE", "a JSON object with flags as keys; the command line wins");
  flags.toggle("json", "one JSON object instead of tables");
  flags.parse(arguments);
  if (flags.texts().empty()) fail("weft analyze: name a trace, e.g. weft analyze trace.json.gz");

  const AnalyzeStudy study = study_traces(read_analyzed_traces(flags.texts(), terminal_of(err)));
  const std::vector<std::string> written = write_files(flags, study);
  for (const std::string& warning : study.warnings) err << "weft: " << warning << "\n";
  if (flags.on("json")) {
    print_json(study, out);
  } else {
    print_text(study, written, out);
  }
  return kOk;
}

}  // namespace weft
