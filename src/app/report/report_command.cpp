#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "app/cli.hpp"
#include "app/commands.hpp"
#include "app/files.hpp"
#include "app/flags.hpp"
#include "app/output_paths.hpp"
#include "app/report/report_figures.hpp"
#include "app/report/report_inputs.hpp"
#include "base/error.hpp"

namespace weft {
namespace {

std::string title_of(const std::vector<ReportSource>& sources) {
  std::string title = sources.front().name;
  for (std::size_t i = 1; i < sources.size(); ++i)
    title += (i + 1 == sources.size() ? " and " : ", ") + sources[i].name;
  return title;
}

// "-o page.html" is "--out page.html".
Arguments with_long_names(Arguments arguments) {
  std::replace(arguments.begin(), arguments.end(), std::string("-o"), std::string("--out"));
  return arguments;
}

}  // namespace

int run_report_command(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  Flags flags(
      "report",
      "Makes one page of what other commands wrote: policies, memory, timelines, pipeline, sweep. It opens in a\n"
      "browser from disk and needs no network. --out of those commands writes it too, as report.html.\n"
      "With --svg, --png or --pdf it draws one view as a figure instead.",
      "weft report out/before out/after -o compare.html");
  flags.positionals(
      "inputs",
      "folders of --out, pages, timeline.json, traces (ours, or PyTorch's), or what --json printed; several "
      "are shown together");
  flags.value("out", "FILE", "the page, also -o (default: report.html)");
  flags.value("title", "TEXT", "its title (default: what it shows)");
  flags.value("config", "FILE", "a JSON object with flags as keys; the command line wins");
  declare_figure_flags(flags);
  flags.parse(with_long_names(arguments));
  if (flags.texts().empty()) fail("weft report: name a folder or a file, e.g. weft report out/plan");
  std::vector<std::string> file_flags = figure_file_flags();
  file_flags.emplace_back("out");
  require_outputs_can_be_written(flags, {}, file_flags);
  const bool draws = wants_figure(flags);

  ReportPage page;
  page.sources = read_report_sources(flags.texts(), err);
  page.title = flags.text("title").value_or(title_of(page.sources));
  std::vector<std::string> written;
  if (draws) written = write_figures(flags, page);
  if (!draws || flags.given("out")) {
    written.push_back(flags.text("out").value_or("report.html"));
    write_text_file(written.back(), [&](std::ostream& stream) { write_report_page(stream, page); });
  }
  out << fmt::format("Written: {}\n", fmt::join(written, ", "));
  return kOk;
}

}  // namespace weft
