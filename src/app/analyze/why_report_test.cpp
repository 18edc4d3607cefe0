#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/analyze/analyze_sections.hpp"
#include "app/files.hpp"
#include "app/test_cli.hpp"

namespace weft {
namespace {

using nlohmann::json;

std::string event(const std::string& name, int stream, int start, int duration, int correlation,
                  const std::string& arguments = "") {
  const std::string launch = R"({"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":)" +
                             std::to_string(start - 5) + R"(,"dur":1,"args":{"correlation":)" +
                             std::to_string(correlation) + "}},";
  return launch + R"({"ph":"X","cat":"kernel","name":")" + name + R"(","pid":0,"tid":)" + std::to_string(stream) +
         R"(,"ts":)" + std::to_string(start) + R"(,"dur":)" + std::to_string(duration) + R"(,"args":{"stream":)" +
         std::to_string(stream) + R"(,"device":0,"correlation":)" + std::to_string(correlation) + arguments + "}}";
}

// Computes for 100 us, then reduces 4 MB over two ranks until 1400 us, then computes again for `last` us.
std::string rank_trace(int rank, int reduce_start, int last) {
  const std::string arguments =
      R"(,"Collective name":"allreduce","In msg nelems":1000000,"Out msg nelems":1000000,"Group size":2,"dtype":"Float",)"
      R"("Process Group Name":"0","Process Group Description":"dp","Process Group Ranks":"[0, 1]")";
  return R"({"schemaVersion":1,"distributedInfo":{"backend":"nccl","rank":)" + std::to_string(rank) +
         R"(,"world_size":2},"traceEvents":[)" + event("gemm", 7, 1000, 100, 1) + "," +
         event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20, reduce_start, 1400 - reduce_start, 2, arguments) + "," +
         event("gemm2", 7, 1400, last, 3) + "]}";
}

json analyzed(const std::string& arguments) {
  const CliResult result = weft_cli("analyze --json " + arguments);
  EXPECT_EQ(result.code, kOk) << result.err;
  return json::parse(result.out);
}

TEST(AnalyzeWhy, SaysWhoWasLateAndHowFastItMoved) {
  const ScratchFolder folder("analyze_why");
  const std::string a = folder.write("a.json", rank_trace(0, 1100, 50)),
                    b = folder.write("b.json", rank_trace(1, 1300, 50));
  const json answer = analyzed(a + " " + b + " --link 100GB/s");
  const json &early = answer.at("ranks").at(0), &late = answer.at("ranks").at(1);
  EXPECT_EQ(early.at("exposed_us"), 300);
  EXPECT_EQ(early.at("exposed_by_reason_us").at("late_peer"), 200);
  EXPECT_EQ(early.at("waited_for_others_us"), 200);
  EXPECT_EQ(late.at("came_last"), 1);
  EXPECT_EQ(late.at("others_waited_us"), 200);
  // 4 MB in the last 100 us: 40 GB/s, of two ranks also over the links.
  EXPECT_DOUBLE_EQ(early.at("collectives").at(0).at("bus_gb_per_s").get<double>(), 40);
  EXPECT_DOUBLE_EQ(early.at("collectives").at(0).at("link_gb_per_s").get<double>(), 100);
  EXPECT_EQ(answer.at("matching").at(0).at("collectives"), 1);
  const CliResult text = weft_cli("analyze " + a + " " + b + " --link 100GB/s");
  EXPECT_TRUE(contains(text.out, "40.0 %")) << text.out;
  EXPECT_TRUE(contains(text.out, "late_peer"));
  std::size_t longest = 0;
  for (const std::string& line : split(text.out, '\n')) longest = std::max(longest, line.size());
  EXPECT_LE(longest, 100u);
}

TEST(AnalyzeWhy, OneRankCannotTellLatePeers) {
  const ScratchFolder folder("analyze_one");
  const std::string a = folder.write("a.json", rank_trace(0, 1100, 50));
  EXPECT_EQ(analyzed(a).at("ranks").at(0).at("exposed_by_reason_us").at("late_peer"), 0);
  EXPECT_TRUE(contains(weft_cli("analyze " + a).out, "cannot be told"));
}

TEST(AnalyzeWhy, ComparesWithAnotherTrace) {
  const ScratchFolder folder("analyze_against");
  const std::string before = folder.write("a.json", rank_trace(0, 1100, 50));
  const std::string after = folder.write("b.json", rank_trace(0, 1300, 80));
  const json comparison = analyzed(after + " --against " + before).at("comparison");
  EXPECT_EQ(analyzed(before + " " + after).at("comparison"), comparison);  // both are of rank 0
  EXPECT_EQ(comparison.at("before").at("exposed_us"), 300);
  EXPECT_EQ(comparison.at("after").at("exposed_us"), 100);
  const json& first = comparison.at("operations").at(0);
  EXPECT_EQ(first.at("name"), "all_reduce over dp");
  EXPECT_NEAR(first.at("difference_us").get<double>(), -200, 1e-6);
  EXPECT_EQ(comparison.at("operations").at(1).at("name"), "gemm2");
  EXPECT_TRUE(contains(weft_cli("analyze " + after + " --against " + before).out, "-200.00 us"));
  EXPECT_EQ(weft_cli("analyze " + after + " --against ,").code, kBadInput);
}

TEST(AnalyzeWhy, WritesATraceWithExposedStretches) {
  const ScratchFolder folder("analyze_trace");
  const std::string a = folder.write("a.json", rank_trace(0, 1100, 50));
  EXPECT_EQ(weft_cli("analyze " + a + " --out " + folder.path() + "/out").code, kOk);
  const json trace = json::parse(read_text_file(folder.path() + "/out/trace.json"));
  double exposed = 0;
  for (const json& slice : trace.at("traceEvents")) {
    if (slice.at("ph") == "X" && slice.at("cat") == "exposed") exposed += slice.at("dur").get<double>();
  }
  EXPECT_DOUBLE_EQ(exposed, 300);
}

// Steps 4 and 5 of this trace count, the last, 6, does not.
TEST(AnalyzeWhy, TheCriticalPathOfAStepIsWithinIt) {
  const std::string file = fmt::format("{}/tests/data/traces/hta_nccl_data_a100_rank0of2.json.gz", WEFT_SOURCE_DIR);
  const double whole = analyzed(file).at("critical_path").at(0).at("time_us");
  const double first = analyzed(file + " --step 4").at("critical_path").at(0).at("time_us");
  const double second = analyzed(file + " --step 5").at("critical_path").at(0).at("time_us");
  EXPECT_GT(first, 0);
  EXPECT_GT(second, 0);
  // They follow each other, with a pause between.
  EXPECT_LE(first + second, whole);
  EXPECT_GT(first + second, 0.8 * whole);
  const CliResult missing = weft_cli("analyze " + file + " --step 6");
  EXPECT_EQ(missing.code, kBadInput);
  EXPECT_TRUE(contains(missing.err, "4, 5")) << missing.err;
}

TEST(AnalyzeWhy, ABadLinkIsNamed) {
  const ScratchFolder folder("analyze_link");
  const std::string a = folder.write("a.json", rank_trace(0, 1100, 50));
  const CliResult result = weft_cli("analyze " + a + " --link fast");
  EXPECT_EQ(result.code, kBadInput);
  EXPECT_TRUE(contains(result.err, "--link"));
}

}  // namespace
}  // namespace weft
