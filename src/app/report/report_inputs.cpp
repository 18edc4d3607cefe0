#include "app/report/report_inputs.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <ostream>

#include "app/analyze/analyze_report.hpp"
#include "app/files.hpp"
#include "app/page/page_sources.hpp"
#include "app/plan/plan_json_report.hpp"
#include "app/progress_bars.hpp"
#include "app/terminal.hpp"
#include "io/json/json_reader.hpp"
#include "io/timeline_json.hpp"

namespace weft {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

enum class ReportInput : std::uint8_t { page, timeline, summary, trace };

// The name of the first key of a JSON object, or "".
std::string first_key(const std::string& text) {
  std::size_t at = text.find_first_not_of(" \t\r\n");
  if (at == std::string::npos || text[at] != '{') return "";
  at = text.find_first_not_of(" \t\r\n", at + 1);
  if (at == std::string::npos || text[at] != '"') return "";
  const std::size_t end = text.find('"', at + 1);
  return end == std::string::npos ? "" : text.substr(at + 1, end - at - 1);
}

// What a file is, by how it begins: our own files begin with their version.
ReportInput input_of(const std::string& path) {
  constexpr std::size_t kBegin = 4096;
  InputFile file(path);
  std::string begin(kBegin, '\0');
  begin.resize(file.read(std::as_writable_bytes(std::span(begin))));
  const std::string key = first_key(begin);
  if (begin.starts_with("<!doctype html>")) return ReportInput::page;
  if (key == "weft_timeline") return ReportInput::timeline;
  if (key == "version") return ReportInput::summary;
  if (key == "weft_plan")
    fail("{}: is a plan, which a page does not show; weft simulate {} --out DIR does", path, path);
  return ReportInput::trace;
}

// A folder's own page, or the timelines in it where it has none.
std::vector<std::string> files_of_folder(const fs::path& folder) {
  if (fs::is_regular_file(folder / "report.html")) return {(folder / "report.html").string()};
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("timeline") && name.ends_with(".json")) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  if (files.empty())
    fail("{}: has neither report.html nor timeline.json; weft plan --out DIR writes both", folder.string());
  return files;
}

ReportSource read_timeline_source(const std::string& path) {
  const TimelineFile file = read_timeline_json(read_text_file(path), path);
  const Accounting accounting = account(file.timeline);
  PageTimeline drawn = page_timeline(file.timeline, accounting);
  const auto policy = file.about.find("policy");
  drawn.policy = policy == file.about.end() ? "timeline" : policy->second;
  drawn.title = drawn.policy + (file.timeline.measured ? ", measured" : ", predicted");
  Json summary;
  summary["policies"][drawn.policy] = accounting_json(file.timeline, accounting);
  summary["best"] = drawn.policy;
  return {path, std::move(summary), {pack(drawn)}};
}

ReportSource read_summary_source(const std::string& path) {
  const std::string text = read_text_file(path);
  parse_json(text, path);  // says where a mistake is
  return {path, Json::parse(text), {}};
}

ReportSource read_trace_source(const std::vector<std::string>& paths, std::ostream& err) {
  AnalyzeReport report;
  report.study = study_traces(read_analyzed_traces(paths, progress_bars(terminal_of(err))));
  report.why = explain_traces(report.study);
  report.verdicts = judge(report.study, report.why);
  for (const std::string& warning : report.study.warnings) err << "weft: " << warning << "\n";
  ReportSource source = source_of_traces(report.why, analyze_json(report));
  source.name = paths.size() == 1 ? paths.front() : std::to_string(paths.size()) + " traces";
  return source;
}

// Two pages of one model and cluster are told apart by where they were found.
void tell_apart(std::vector<ReportSource>& sources, const std::vector<std::string>& found_in) {
  std::map<std::string, int> count;
  for (const ReportSource& source : sources) ++count[source.name];
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (count[sources[i].name] > 1 && sources[i].name != found_in[i]) sources[i].name += " (" + found_in[i] + ")";
  }
}

}  // namespace

std::vector<ReportSource> read_report_sources(const std::vector<std::string>& paths, std::ostream& err) {
  std::vector<std::string> files, traces, found_in;
  for (const std::string& path : paths) {
    const std::vector<std::string> own = fs::is_directory(path) ? files_of_folder(path) : std::vector{path};
    files.insert(files.end(), own.begin(), own.end());
  }
  std::vector<ReportSource> sources;
  const auto add = [&](ReportSource source, const std::string& file) {
    sources.push_back(std::move(source));
    found_in.push_back(file);
  };
  for (const std::string& file : files) {
    switch (input_of(file)) {
      case ReportInput::page:
        for (ReportSource& source : read_report_page(read_text_file(file), file).sources) add(std::move(source), file);
        break;
      case ReportInput::timeline:
        add(read_timeline_source(file), file);
        break;
      case ReportInput::summary:
        add(read_summary_source(file), file);
        break;
      case ReportInput::trace:
        traces.push_back(file);
        break;
    }
  }
  if (!traces.empty()) add(read_trace_source(traces, err), traces.front());
  tell_apart(sources, found_in);
  return sources;
}

}  // namespace weft
