#include "app/plan/plan_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "app/files.hpp"
#include "base/text.hpp"
#include "io/gzip_output.hpp"
#include "io/plan_json.hpp"
#include "io/step_svg.hpp"
#include "io/timeline_json.hpp"
#include "io/trace/chrome_trace.hpp"
#include "sim/memory_curve.hpp"
#include "timeline/folded_spans.hpp"

namespace weft {
namespace {

constexpr std::int64_t kAllSpans = std::numeric_limits<std::int64_t>::max();
// About 7 MB of text, which viewers open at once; larger traces are compressed, to a fifteenth.
constexpr std::int64_t kMaxPlainSpans = 20'000;

struct WrittenTrace {
  std::filesystem::path path;
  std::int64_t spans = 0, left_out = 0;
};

const char* links_in_words(const ClusterSpec& cluster) {
  switch (cluster.execution.links) {
    case LinkTiming::nominal:
      return "modelled";
    case LinkTiming::paced:
      return "emulated";
    case LinkTiming::measured:
      return "measured";
  }
  return "?";
}

// One whole steady period; the counters and arrows of a longer one add nothing.
WrittenTrace write_trace(const PlanStudy& study, const PolicyStudy& policy, const std::filesystem::path& path,
                         std::int64_t max_spans) {
  TraceOptions options;
  const Timeline& timeline = policy.timeline;
  options.first_iteration = timeline.steady_first;
  options.last_iteration = options.first_iteration + timeline.periods - 1;
  options.max_spans = max_spans;
  options.how_to_get_all = "weft plan --trace-spans all";
  options.metadata = {{"title", study.inputs.model.name + " on " + study.inputs.cluster.name},
                      {"policy", policy.policy},
                      {"links", links_in_words(study.inputs.cluster)}};
  WrittenTrace written;
  written.spans = std::ssize(timeline.operations) * timeline.periods;
  const auto write = [&](std::ostream& out) {
    written.left_out = write_chrome_trace(out, timeline, policy.accounting, options);
  };
  const std::filesystem::path compressed = path.string() + ".gz";
  const bool compress = std::min(written.spans, max_spans) > kMaxPlainSpans;
  written.path = compress ? compressed : path;
  write_text_file(written.path, [&](std::ostream& file) { compress ? write_gzip(file, write) : write(file); });
  // Removes the other form, which would be an older trace beside this one.
  std::error_code ignored;
  std::filesystem::remove(compress ? path : compressed, ignored);
  return written;
}

// About 6 MB; a plan of more operations than that has its trace alone.
constexpr std::int64_t kMaxTimelineSpans = 100'000;

std::int64_t timeline_spans(const Timeline& timeline) {
  return std::ssize(timeline.operations) * (timeline.periods + 2);
}

// Writes the steady period with an iteration before and after it, which show what it waits for and what follows its
// last gap. Returns false and writes nothing where that is too much.
bool write_timeline(const PlanStudy& study, const PolicyStudy& policy, const std::filesystem::path& path) {
  const Timeline& timeline = policy.timeline;
  if (timeline_spans(timeline) > kMaxTimelineSpans) {
    // Removes an older file, which would be taken for that of this plan.
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
    return false;
  }
  TimelineFile file;
  file.timeline = expanded(timeline, timeline.steady_first - 1, timeline.steady_first + timeline.periods);
  file.timeline.memory.clear();  // the trace shows it
  file.about = {{"model", study.inputs.model.name},
                {"cluster", study.inputs.cluster.name},
                {"policy", policy.policy},
                {"links", links_in_words(study.inputs.cluster)}};
  write_text_file(path, [&](std::ostream& out) { write_timeline_json(out, file); });
  return true;
}

// The step of the first policy and of the best one, on one scale of time.
std::filesystem::path write_picture(const PlanStudy& study, const std::filesystem::path& folder) {
  std::vector<StepPanel> panels;
  const auto add = [&](const PolicyStudy& policy) {
    panels.push_back({policy.policy, policy.timeline, policy.accounting});
  };
  add(study.policies.front());
  if (study.best != 0) add(study.policies[study.best]);
  const Layout& layout = study.inputs.layout;
  const std::string title = fmt::format("{} on {}: tp {}, pp {}, dp {}", study.inputs.model.name,
                                        study.inputs.cluster.name, layout.tp, layout.pp, layout.dp);
  const std::filesystem::path path = folder / "step.svg";
  write_text_file(path, [&](std::ostream& out) { write_step_svg(out, title, panels); });
  return path;
}

// "trace.json" of the best policy, "trace-ddp.json" of another.
std::string file_name(const PlanStudy& study, std::size_t policy, const std::string& what) {
  return what + (policy == study.best ? "" : "-" + study.policies[policy].policy) + ".json";
}

}  // namespace

void declare_plan_file_flags(Flags& flags) {
  flags.value("traces", "best|all", "with --out: of which policies a trace is written (default: best)");
  flags.value("trace-spans", "N|all",
              "with --out: a step of more operations is traced in part, its begin, middle and end (default: 100000)");
}

PlanFileOptions read_plan_file_options(const Flags& flags) {
  for (const char* flag : {"traces", "trace-spans"}) {
    if (flags.given(flag) && !flags.given("out")) fail("--{}: says what --out writes; give --out", flag);
  }
  PlanFileOptions options;
  options.all_traces = flags.one_of("traces", {"best", "all"}).value_or(0) == 1;
  constexpr std::int64_t kMinSpans = 3, kMaxSpans = 1'000'000'000;
  if (flags.text("trace-spans") == "all") {
    options.trace_spans = kAllSpans;
  } else if (const auto spans = flags.integer("trace-spans", kMinSpans, kMaxSpans)) {
    options.trace_spans = *spans;
  }
  return options;
}

void WrittenFiles::add(const WrittenFiles& others) {
  names.insert(names.end(), others.names.begin(), others.names.end());
  notes.insert(notes.end(), others.notes.begin(), others.notes.end());
}

WrittenFiles write_timeline_files(PlanStudy& study, const std::filesystem::path& folder,
                                  const PlanFileOptions& options) {
  make_folder(folder);
  WrittenFiles written;
  for (std::size_t i = 0; i < study.policies.size(); ++i) {
    PolicyStudy& policy = study.policies[i];
    if (i == study.best || options.all_traces) {
      policy.timeline.memory = memory_curve(policy.plan(), policy.timeline);
      const WrittenTrace trace = write_trace(study, policy, folder / file_name(study, i, "trace"), options.trace_spans);
      written.names.push_back(trace.path.string());
      if (trace.left_out > 0) {
        written.notes.push_back(
            fmt::format("{} shows the begin, the middle and the end of the step: {} of its {} operations. "
                        "--trace-spans all writes them all.",
                        trace.path.string(), format_count(trace.spans - trace.left_out), format_count(trace.spans)));
      }
    }
    const std::filesystem::path timeline = folder / file_name(study, i, "timeline");
    if (write_timeline(study, policy, timeline)) {
      written.names.push_back(timeline.string());
    } else if (i == study.best) {
      written.notes.push_back(fmt::format("{} is not written: it would have {} spans, and has at most {}.",
                                          timeline.string(), format_count(timeline_spans(policy.timeline)),
                                          format_count(kMaxTimelineSpans)));
    }
  }
  written.names.push_back(write_picture(study, folder).string());
  if (study.policies.size() > 1 && !options.all_traces) {
    written.notes.push_back(fmt::format("The trace is that of {}; --traces all writes one for every policy.",
                                        study.policies[study.best].policy));
  }
  return written;
}

WrittenFiles write_plan_files(PlanStudy& study, const std::filesystem::path& folder, const PlanFileOptions& options) {
  make_folder(folder);
  WrittenFiles written;
  const PlanConditions conditions = conditions_of(study);
  for (std::size_t i = 0; i < study.policies.size(); ++i) {
    const std::filesystem::path plan = folder / file_name(study, i, "plan");
    write_text_file(plan, [&](std::ostream& file) { write_plan_json(file, study.policies[i].plan(), &conditions); });
    written.names.push_back(plan.string());
  }
  written.add(write_timeline_files(study, folder, options));
  return written;
}

std::string written_line(const std::vector<std::string>& files) {
  if (files.empty()) return "";
  std::string text = "\nWritten:";
  for (const std::string& name : files) text += " " + name;
  return text + "\n";
}

std::string written_line(const WrittenFiles& files) {
  std::string text = written_line(files.names);
  for (const std::string& note : files.notes) text += note + "\n";
  return text;
}

}  // namespace weft
