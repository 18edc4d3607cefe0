#include "app/report/report_figures.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "app/files.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "io/figure/figure_views.hpp"
#include "io/figure/summary_numbers.hpp"
#include "io/figure/svg_render.hpp"

namespace weft {
namespace {

constexpr const char* kFigures = "Figures, instead of the page";
constexpr double kPixelsOfPng = 2;  // for each of the figure's, so that print is sharp

std::vector<std::string> view_names() {
  std::vector<std::string> names;
  for (const FigureView& view : figure_views()) names.emplace_back(view.name);
  return names;
}

// A figure is of one source.
const ReportSource& source_to_draw(const ReportPage& page) {
  if (page.sources.size() == 1) return page.sources.front();
  fail("--view: a figure shows one input, and there are {}; name one of them", page.sources.size());
}

// The timelines of the policies, in the order of these; without any, the first timeline.
std::vector<PageTimeline> timelines_to_draw(const ReportSource& source, const std::vector<std::string>& policies) {
  if (source.timelines.empty()) fail("{}: has no timeline to draw", source.name);
  if (policies.empty()) return {unpack(source.timelines.front())};
  std::vector<PageTimeline> timelines;
  std::vector<std::string> known;
  for (const PackedTimeline& packed : source.timelines) known.push_back(packed.policy);
  for (const std::string& policy : policies) {
    const std::size_t before = timelines.size();
    for (const PackedTimeline& packed : source.timelines) {
      if (packed.policy == policy) timelines.push_back(unpack(packed));
    }
    if (timelines.size() == before) fail("--policy '{}': has no timeline{}", policy, suggestion(policy, known));
  }
  return timelines;
}

FigureSubject subject_to_draw(const Flags& flags, const ReportPage& page, const FigureView& view) {
  const ReportSource& source = source_to_draw(page);
  const std::vector<std::string> policies =
      flags.given("policy") ? split(*flags.text("policy"), ',') : std::vector<std::string>{};
  FigureSubject subject{
      page.title, source.summary, policies.empty() ? string_in(source.summary, "best") : policies[0], {}};
  if (view.of_timelines) subject.timelines = timelines_to_draw(source, policies);
  return subject;
}

}  // namespace

void declare_figure_flags(Flags& flags) {
  std::string views;
  for (const FigureView& view : figure_views()) views += fmt::format("{}{}", views.empty() ? "" : ", ", view.name);
  flags.value("view", "VIEW", "what is drawn: " + views + " (default: headline)", kFigures);
  flags.value("policy", "A,B", "whose timelines or memory (default: the best policy's)", kFigures);
  flags.value("svg", "FILE", "the figure as SVG, with its font inside", kFigures);
  flags.value("png", "FILE", "as PNG, 1600 pixels wide; needs librsvg", kFigures);
  flags.value("pdf", "FILE", "as PDF, with its font inside; needs librsvg", kFigures);
}

std::vector<std::string> figure_file_flags() {
  return {"svg", "png", "pdf"};
}

bool wants_figure(const Flags& flags) {
  const std::vector<std::string> files = figure_file_flags();
  if (std::ranges::any_of(files, [&](const std::string& file) { return flags.given(file); })) return true;
  for (const char* flag : {"view", "policy"}) {
    if (flags.given(flag)) fail("--{}: is of figures, and no file is named; --svg, --png or --pdf FILE does", flag);
  }
  return false;
}

std::vector<std::string> write_figures(const Flags& flags, const ReportPage& page) {
  const FigureView& view = figure_views()[flags.one_of("view", view_names()).value_or(0)];
  if (flags.given("png") || flags.given("pdf")) {
    if (const std::string problem = rendering_problem(); !problem.empty()) {
      fail("--{}: {}", flags.given("png") ? "png" : "pdf", problem);
    }
  }
  const std::string svg = view.draw(subject_to_draw(flags, page, view));
  std::vector<std::string> written;
  const auto write = [&](const char* flag, const std::function<void(std::ostream&)>& writer) {
    if (!flags.given(flag)) return;
    write_text_file(*flags.text(flag), writer);
    written.push_back(*flags.text(flag));
  };
  write("svg", [&](std::ostream& out) { out << svg; });
  write("png", [&](std::ostream& out) { write_png(out, svg, kPixelsOfPng); });
  write("pdf", [&](std::ostream& out) { write_pdf(out, svg); });
  return written;
}

}  // namespace weft
