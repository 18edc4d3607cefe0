#include "app/page/page_sources.hpp"

#include <fmt/format.h>

#include "app/files.hpp"
#include "timeline/trace/trace_timeline.hpp"

namespace weft {
namespace {

// About 5 MB; what is compared most comes first.
constexpr std::int64_t kMaxSpansOfPage = 500'000;

class PackedTimelines {
 public:
  void add(PageTimeline timeline, const std::string& policy, std::string_view kind) {
    spans_ += std::ssize(timeline.timeline.spans);
    if (!packed_.empty() && spans_ > kMaxSpansOfPage) return;
    timeline.policy = policy;
    timeline.title = policy.empty() ? std::string(kind) : fmt::format("{}, {}", policy, kind);
    packed_.push_back(pack(timeline));
  }
  std::vector<PackedTimeline> take() { return std::move(packed_); }

 private:
  std::vector<PackedTimeline> packed_;
  std::int64_t spans_ = 0;
};

// Calls `add` with the best first, then with the others in their order.
template <class Add>
void best_first(std::size_t count, std::size_t best, Add add) {
  if (count == 0) return;
  add(best);
  for (std::size_t i = 0; i < count; ++i) {
    if (i != best) add(i);
  }
}

std::string name_of_inputs(const PlanStudy& study) {
  return fmt::format("{} on {}", study.inputs.model.name, study.inputs.cluster.name);
}

}  // namespace

ReportSource source_of_plans(const PlanStudy& study, nlohmann::ordered_json summary) {
  PackedTimelines timelines;
  best_first(study.policies.size(), study.best, [&](std::size_t i) {
    const PolicyStudy& policy = study.policies[i];
    timelines.add(page_timeline(policy.timeline, policy.accounting), policy.policy, "predicted");
  });
  return {name_of_inputs(study), std::move(summary), timelines.take()};
}

ReportSource source_of_run(const RunStudy& study, nlohmann::ordered_json summary) {
  PackedTimelines timelines;
  best_first(study.runs.size(), study.best, [&](std::size_t i) {
    const PolicyRun& run = study.runs[i];
    const std::string& policy = run.measured.policy;
    timelines.add(page_timeline(run.predicted, run.predicted_accounting), policy, "predicted");
    timelines.add(page_timeline(run.measured.timeline, run.measured.accounting), policy, "measured");
  });
  return {name_of_inputs(study.plan), std::move(summary), timelines.take()};
}

ReportSource source_of_chakra(const ChakraStudy& study, nlohmann::ordered_json summary) {
  PackedTimelines timelines;
  best_first(study.orders.size(), study.best, [&](std::size_t i) {
    const ChakraOrder& order = study.orders[i];
    timelines.add(page_timeline(order.timeline, order.accounting, {.max_periods = 1}), order.name, "predicted");
  });
  return {fmt::format("Chakra traces of {} ranks", study.step.ranks.size()), std::move(summary), timelines.take()};
}

ReportSource source_of_traces(const WhyReport& report, nlohmann::ordered_json summary) {
  PackedTimelines timelines;
  for (const LabelledStudy& labelled : report.labels) {
    const DrawnTrace drawn = draw_traces(labelled.study);
    if (drawn.timeline.spans.empty()) continue;
    timelines.add(page_timeline(drawn.timeline, drawn.exposed, drawn.path), "",
                  labelled.label.empty() ? "traced" : labelled.label);
  }
  return {"traces", std::move(summary), timelines.take()};
}

std::string write_report_file(const std::filesystem::path& folder, ReportSource source) {
  const std::string path = (folder / "report.html").string();
  ReportPage page;
  page.title = source.name;
  page.sources.push_back(std::move(source));
  write_text_file(path, [&](std::ostream& out) { write_report_page(out, page); });
  return path;
}

}  // namespace weft
