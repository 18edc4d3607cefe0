// `weft report` and the page that --out writes: what goes in can be read back, and what cannot be shown is refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/files.hpp"
#include "app/test_cli.hpp"
#include "io/report/report_page.hpp"

namespace weft {
namespace {

const std::string kSmall = "plan --model gpt2 --cluster dgx-a100:1 --pp 2 --global-batch 8 --policy serial,ddp ";

ReportPage page_of(const std::string& file) {
  return read_report_page(read_text_file(file), file);
}

TEST(Report, OfAPlanHoldsWhatJsonPrints) {
  const ScratchFolder folder("report");
  const CliResult planned = weft_cli(kSmall + "--json --out " + folder.path());
  ASSERT_EQ(planned.code, kOk) << planned.err;
  const ReportPage page = page_of(folder.file("report.html"));
  ASSERT_EQ(page.sources.size(), 1U);
  const nlohmann::ordered_json printed = nlohmann::ordered_json::parse(planned.out);
  const std::string best = printed["best"];
  nlohmann::ordered_json shown = page.sources[0].summary;
  EXPECT_FALSE(shown["policies"][best]["explanation"]["largest"].empty());  // the page says why, unasked
  shown["policies"][best].erase("explanation");
  EXPECT_EQ(shown, printed);
  ASSERT_EQ(page.sources[0].timelines.size(), 2U);
  EXPECT_EQ(page.sources[0].timelines[0].policy, page.sources[0].summary["best"].get<std::string>());
}

TEST(Report, PutsFoldersTimelinesAndSummariesOnOnePage) {
  const ScratchFolder folder("report");
  const CliResult planned = weft_cli(kSmall + "--json --out " + folder.path());
  ASSERT_EQ(planned.code, kOk) << planned.err;
  const std::string summary = folder.write("summary.json", planned.out), made = folder.file("page.html");
  const CliResult result =
      weft_cli("report " + folder.path() + " " + folder.file("timeline.json") + " " + summary + " -o " + made);
  ASSERT_EQ(result.code, kOk) << result.err;
  EXPECT_TRUE(contains(result.out, made));
  const ReportPage page = page_of(made);
  ASSERT_EQ(page.sources.size(), 3U);
  const std::string best = page.sources[0].summary["best"];
  // The timeline alone gives the same step as the plan that it is of.
  EXPECT_NEAR(page.sources[1].summary["policies"][best]["step_s"].get<double>(),
              page.sources[0].summary["policies"][best]["step_s"].get<double>(), 1e-9);
  EXPECT_EQ(page.sources[2].summary, nlohmann::ordered_json::parse(planned.out));
}

TEST(Report, TakesTheTimelinesOfAFolderWithoutAPage) {
  const ScratchFolder folder("report");
  ASSERT_EQ(weft_cli(kSmall + "--out " + folder.path()).code, kOk);
  std::filesystem::remove(folder.file("report.html"));
  const CliResult result = weft_cli("report " + folder.path() + " -o " + folder.file("page.html") + " --title Steps");
  ASSERT_EQ(result.code, kOk) << result.err;
  EXPECT_EQ(page_of(folder.file("page.html")).sources.size(), 2U);
  EXPECT_EQ(page_of(folder.file("page.html")).title, "Steps");
}

TEST(Report, TakesTraces) {
  const ScratchFolder folder("report");
  ASSERT_EQ(weft_cli(kSmall + "--out " + folder.path()).code, kOk);
  const CliResult analyzed =
      weft_cli("analyze " + folder.file("trace.json") + " --json --out " + folder.file("analyzed"));
  ASSERT_EQ(analyzed.code, kOk) << analyzed.err;
  const ReportPage page = page_of(folder.file("analyzed/report.html"));
  ASSERT_EQ(page.sources.size(), 1U);
  EXPECT_EQ(page.sources[0].summary["ranks"], nlohmann::ordered_json::parse(analyzed.out)["ranks"]);
  EXPECT_FALSE(page.sources[0].timelines.empty());
  const CliResult result = weft_cli("report " + folder.file("trace.json") + " -o " + folder.file("page.html"));
  ASSERT_EQ(result.code, kOk) << result.err;
  EXPECT_EQ(page_of(folder.file("page.html")).sources[0].timelines.size(), page.sources[0].timelines.size());
}

TEST(Report, DrawsViewsOfAPlanAsFigures) {
  const ScratchFolder folder("report");
  ASSERT_EQ(weft_cli(kSmall + "--out " + folder.path()).code, kOk);
  const std::string figure = folder.file("figure.svg");
  for (const std::string view :
       {"headline", "memory", "timeline", "pipeline", "path", "exposure", "memory-time", "links"}) {
    const bool of_best = view == "memory-time";  // other policies do not say how memory is used over time
    const CliResult result = weft_cli(
        fmt::format("report {} --view {} {} --svg {}", folder.path(), view, of_best ? "" : "--policy serial", figure));
    ASSERT_EQ(result.code, kOk) << view << ": " << result.err;
    EXPECT_EQ(result.out, "Written: " + figure + "\n");
    const std::string svg = read_text_file(figure);
    EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n")) << view;
    EXPECT_TRUE(contains(svg, "gpt2 on dgx-a100:1")) << view;
    EXPECT_TRUE(of_best || contains(svg, "serial")) << view;
  }
  EXPECT_FALSE(std::filesystem::exists("report.html"));  // a figure is asked for, and no page
}

TEST(Report, DrawsSeveralPoliciesBelowEachOther) {
  const ScratchFolder folder("report");
  ASSERT_EQ(weft_cli(kSmall + "--out " + folder.path()).code, kOk);
  const std::string figure = folder.file("figure.svg");
  ASSERT_EQ(weft_cli("report " + folder.path() + " --view pipeline --policy serial,ddp --svg " + figure).code, kOk);
  EXPECT_TRUE(contains(read_text_file(figure), ">serial, predicted: "));
  EXPECT_TRUE(contains(read_text_file(figure), ">ddp, predicted: "));
}

TEST(Report, SaysWhatAFigureLacks) {
  const ScratchFolder folder("report");
  ASSERT_EQ(weft_cli(kSmall + "--out " + folder.path()).code, kOk);
  const auto refused = [&](const std::string& arguments, const std::string& reason) {
    const CliResult result = weft_cli("report " + folder.path() + " " + arguments);
    EXPECT_EQ(result.code, kBadInput) << arguments;
    EXPECT_TRUE(contains(result.err, reason)) << result.err;
  };
  const std::string svg = " --svg " + folder.file("figure.svg");
  refused("--view pipelin" + svg, "'pipelin': is not one of headline, memory,");
  refused("--view pipeline", "no file is named");
  refused("--policy ddp", "no file is named");
  refused("--view pipeline --policy megatron" + svg, "'megatron': has no timeline");
  refused("--view sweep" + svg, "there is no sweep to draw");
  refused("--view collectives" + svg, "there is no collective bench to draw");
  refused(folder.path() + svg, "a figure shows one input");
  EXPECT_FALSE(std::filesystem::exists(folder.file("figure.svg")));
}

TEST(Report, RefusesWhatItCannotShow) {
  const ScratchFolder folder("report");
  ASSERT_EQ(weft_cli(kSmall + "--out " + folder.path()).code, kOk);
  const auto refused = [&](const std::string& input, const std::string& reason) {
    const CliResult result = weft_cli("report " + input + " -o " + folder.file("page.html"));
    EXPECT_EQ(result.code, kBadInput) << input;
    EXPECT_TRUE(contains(result.err, reason)) << result.err;
    EXPECT_FALSE(std::filesystem::exists(folder.file("page.html")));
  };
  refused("", "name a folder or a file");
  refused(folder.file("absent"), "absent");
  refused(folder.file("plan.json"), "is a plan");
  refused(folder.write("page.txt", "<!doctype html><p>"), "is no page of weft report");
  refused(folder.write("broken.json", "{\"version\": 1, \"best\": NaN}"), "broken.json");
  std::filesystem::create_directories(folder.file("empty"));
  refused(folder.file("empty"), "has neither report.html nor timeline.json");
}

}  // namespace
}  // namespace weft
