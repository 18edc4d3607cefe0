// `weft calibrate --from`: steps that a known profile predicts are taken as measured, and the fit finds the profile.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "app/test_cli.hpp"

namespace weft {
namespace {

const std::string kJob = "--model llama2-7b --framework nanotron --policy nanotron ";
constexpr const char* kTruth = R"({"weft_profile": 1,
  "framework": {"name": "nanotron", "step_us": 30000},
  "devices": {"h100": {"matrix_efficiency": 0.5, "launch_us": 80}}})";

struct Row {
  int nodes, layers, hidden, micro_batch, global_batch, dp, tp, zero;
};
// Large products; small kernels that the host issues too slowly, with and without tensor parallelism; steps so short
// that what comes once a step counts.
constexpr Row kRows[] = {{1, 2, 8192, 4, 32, 8, 1, 0}, {1, 4, 8192, 2, 16, 8, 1, 0},  {1, 2, 8192, 8, 64, 8, 1, 0},
                         {1, 3, 8192, 4, 64, 8, 1, 1}, {2, 4, 8192, 4, 64, 16, 1, 1}, {1, 8, 1024, 1, 64, 4, 2, 0},
                         {1, 4, 1024, 1, 64, 2, 4, 1}, {2, 8, 1024, 1, 64, 8, 2, 1},  {1, 8, 1024, 2, 64, 8, 1, 0},
                         {1, 2, 1024, 1, 8, 8, 1, 0},  {1, 3, 1024, 1, 8, 8, 1, 0},   {1, 2, 1024, 1, 8, 8, 1, 1},
                         {1, 1, 1024, 2, 16, 8, 1, 0}, {1, 1, 2048, 1, 8, 8, 1, 0},   {1, 4, 8192, 8, 64, 8, 1, 0}};

std::string cells(const Row& row) {
  return fmt::format("{},{},{},32,32,{},8192,2048,{},{},{},{},{}", row.nodes, row.layers, row.hidden, 2 * row.hidden,
                     row.micro_batch, row.global_batch, row.dp, row.tp, row.zero);
}

nlohmann::json answer(const std::string& line) {
  const CliResult result = weft_cli(line);
  EXPECT_EQ(result.code, kOk) << result.err;
  return nlohmann::json::parse(result.out);
}

// A table whose steps are what `weft plan --against` predicts with the true profile.
std::string write_table(const ScratchFolder& folder) {
  const std::string header =
      "nodes,layers,hidden,heads,kv_heads,ffn,vocab,seq,micro_batch,global_batch,dp,tp,zero,step_s\n";
  std::string draft = header;
  for (const Row& row : kRows) draft += cells(row) + ",1\n";
  const nlohmann::json predicted =
      answer("plan --json --against " + folder.write("draft.csv", draft) + " --cluster dgx-h100 " + kJob +
             "--profile " + folder.write("truth.json", kTruth));
  std::string table = header;
  for (std::size_t i = 0; i < std::size(kRows); ++i) {
    const double step = 1 + predicted.at("rows")[i].at("step_error").get<double>();
    table += cells(kRows[i]) + fmt::format(",{:.12g}\n", step);
  }
  return folder.write("rows.csv", table);
}

TEST(Fit, FindsTheProfileThatRowsWereMadeWith) {
  const ScratchFolder folder("fit");
  const std::string table = write_table(folder);
  const nlohmann::json fit = answer("calibrate --json --from " + table + " --cluster dgx-h100 " + kJob + "--out " +
                                    folder.file("out") + " --csv " + folder.file("errors.csv"));
  EXPECT_GT(fit.at("before").at("median_pct"), 10);
  EXPECT_LT(fit.at("fitted").at("median_pct"), 2);
  EXPECT_LT(fit.at("left_out").at("median_pct"), 3);
  std::map<std::string, double> fitted;
  for (const nlohmann::json& constant : fit.at("constants")) fitted[constant.at("name")] = constant.at("fitted");
  EXPECT_NEAR(fitted.at("h100.matrix_efficiency"), 0.5, 0.02);
  EXPECT_NEAR(fitted.at("h100.launch"), 80e-6, 8e-6);
  EXPECT_NEAR(fitted.at("framework.step"), 0.03, 0.002);
  // No row has a pipeline, none attends unfused.
  const std::vector<std::string> untold = fit.at("untold");
  EXPECT_NE(std::find(untold.begin(), untold.end(), "h100.resync"), untold.end());
  // The profile that was written says the same as the fit, to `weft plan --against`.
  const nlohmann::json against = answer("plan --json --against " + table + " --cluster dgx-h100 " + kJob +
                                        "--profile " + folder.file("out/profile.json"));
  EXPECT_NEAR(against.at("step").at("mean_pct").get<double>(), fit.at("fitted").at("mean_pct").get<double>(), 1e-3);
}

TEST(Fit, SaysItInWords) {
  const ScratchFolder folder("fit_words");
  const CliResult result = weft_cli("calibrate --from " + write_table(folder) + " --cluster dgx-h100 " + kJob);
  EXPECT_EQ(result.code, kOk) << result.err;
  EXPECT_TRUE(contains(result.out, "h100.matrix_efficiency")) << result.out;
  EXPECT_TRUE(contains(result.out, "fitted without the row itself"));
  EXPECT_TRUE(contains(result.out, "No row depends on h100.batched_efficiency"));
}

TEST(Fit, MistakesNameTheTable) {
  const ScratchFolder folder("fit_mistakes");
  const std::string table =
      folder.write("rows.csv", "nodes,layers,hidden,heads,tp,step_s\n1,2,512,8,1,0.1\n1,2,512,8,3,0.1\n");
  const CliResult few = weft_cli("calibrate --from " + table + " --cluster dgx-h100");
  EXPECT_EQ(few.code, kBadInput);
  EXPECT_TRUE(contains(few.err, "1 rows have a measured step and a plan, a fit needs 3; line 3:")) << few.err;
  folder.write("truth.json", kTruth);
  const CliResult other =
      weft_cli("plan --layers 2 --hidden 512 --heads 8 --cluster dgx-h100:1 --profile " + folder.file("truth.json"));
  EXPECT_TRUE(contains(other.err, "its times are of framework 'nanotron'; give --framework nanotron")) << other.err;
  const CliResult wrong =
      weft_cli("plan --layers 2 --hidden 512 --heads 8 --cluster dgx-h100:1 --framework fsdp --profile " +
               folder.file("truth.json"));
  EXPECT_TRUE(contains(wrong.err, "of framework 'nanotron', not of 'fsdp'")) << wrong.err;
}

}  // namespace
}  // namespace weft
