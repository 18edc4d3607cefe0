#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/analyze/test_analyze.hpp"
#include "app/files.hpp"
#include "app/test_cli.hpp"

namespace weft {
namespace {

using nlohmann::json;

// The files in tests/data/traces are HTA's own test data without the events that no number depends on; the values are
// those that HTA printed for the whole files.
void expect_hta_values(const std::string& file, const std::string& key) {
  const json reference = json::parse(read_text_file(data("reference_values.json"))).at(key);
  const json answer = analyzed(data(file));
  ASSERT_EQ(answer.at("ranks").size(), 1U);
  const json& rank = answer["ranks"][0];
  EXPECT_EQ(rank.at("rank"), reference["overlap"][0]["rank"]);
  EXPECT_EQ(rank.at("overlap_pct"), reference["overlap"][0]["comp_comm_overlap_pctg"]);
  const json& temporal = reference["temporal"][0];
  for (const std::string name : {"idle", "compute", "non_compute", "kernel"}) {
    EXPECT_EQ(rank.at(name + "_us").get<double>(), temporal[name + "_time(us)"].get<double>()) << name;
    if (name == "kernel") continue;
    EXPECT_EQ(rank.at(name + "_pct"), temporal[name + "_time_pctg"]) << name;
  }
  const json& types = answer.at("kernel_types");
  ASSERT_EQ(types.size(), reference["kernel_type"].size());
  for (std::size_t i = 0; i < types.size(); ++i) {
    EXPECT_EQ(types[i]["kernel_type"], reference["kernel_type"][i]["kernel_type"]);
    EXPECT_EQ(types[i]["sum_us"], reference["kernel_type"][i]["sum"]);
    EXPECT_EQ(types[i]["percentage"], reference["kernel_type"][i]["percentage"]);
  }
}

TEST(AnalyzeCommand, PrintsWhatHtaPrintsForNanosecondTraces) {
  expect_hta_values("hta_nccl_data_a100_rank0of2.json.gz", "nccl_parser_config");
}
TEST(AnalyzeCommand, PrintsWhatHtaPrintsForSeveralSteps) {
  expect_hta_values("hta_trace_diff_control_a100_rank3of8.json.gz", "trace_diff_control");
}
TEST(AnalyzeCommand, PrintsWhatHtaPrintsForASampledTrace) {
  expect_hta_values("hta_sampled_rank0of128.json.gz", "sampled_rank0");
}

TEST(AnalyzeCommand, ListsRanksInOrder) {
  const json answer = analyzed(data("hta_sampled_rank1of128.json.gz") + " " + data("hta_sampled_rank0of128.json.gz"));
  ASSERT_EQ(answer.at("ranks").size(), 2U);
  EXPECT_EQ(answer["ranks"][0]["rank"], 0);
  EXPECT_EQ(answer["ranks"][1]["rank"], 1);
  EXPECT_EQ(answer["ranks"][0]["overlap_pct"], 11.81);
  // All ranks together: the sums of the ranks' own.
  std::int64_t sum = 0;
  for (const json& rank : answer["ranks"]) {
    for (const json& type : rank["kernel_types"]) {
      if (type["kernel_type"] == "COMMUNICATION") sum += type["sum_us"].get<std::int64_t>();
    }
  }
  EXPECT_EQ(answer["kernel_types"][0]["kernel_type"], "COMMUNICATION");
  EXPECT_EQ(answer["kernel_types"][0]["sum_us"], sum);
}

TEST(AnalyzeCommand, PrintsATableThatFitsATerminal) {
  const CliResult result = weft_cli("analyze " + data("hta_nccl_data_a100_rank0of2.json.gz"));
  EXPECT_EQ(result.code, kOk) << result.err;
  EXPECT_TRUE(contains(result.out, "14.31 %")) << result.out;
  for (const std::string& line : split(result.out, '\n')) EXPECT_LE(line.size(), 100U) << line;
}

TEST(AnalyzeCommand, WritesARowPerKernel) {
  const ScratchFolder folder("analyze_csv");
  const std::string trace = folder.write("rank0.json", R"([
    {"ph":"X","cat":"kernel","name":"gemm<a, \"b\">","ts":0,"dur":10,"args":{"stream":7}},
    {"ph":"X","cat":"kernel","name":"gemm<a, \"b\">","ts":20,"dur":4.5,"args":{"stream":7}},
    {"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce","ts":21,"dur":7,"args":{"stream":9}}])");
  const CliResult result = weft_cli("analyze " + trace + " --csv " + folder.file("k.csv"));
  EXPECT_EQ(result.code, kOk) << result.err;
  EXPECT_EQ(read_text_file(folder.file("k.csv")),
            "rank,label,kind,name,count,total_us,mean_us,min_us,max_us\n"
            "0,,computation,\"gemm<a, \"\"b\"\">\",2,14.500,7.250,4.500,10.000\n"
            "0,,communication,\"ncclDevKernel_AllReduce\",1,7.000,7.000,7.000,7.000\n");
}

TEST(AnalyzeCommand, SaysWhatIsMissing) {
  const ScratchFolder folder("analyze_bad");
  const auto fails = [&](const std::string& arguments, const std::string& message) {
    const CliResult result = weft_cli("analyze " + arguments);
    EXPECT_EQ(result.code, kBadInput) << arguments;
    EXPECT_EQ(result.err, "weft: " + message + "\n");
    EXPECT_EQ(result.out, "");
  };
  const std::string host_only =
      folder.write("cpu.json", R"([{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":0,"dur":10}])");
  fails(host_only, host_only + ": no GPU kernels among 1 events; record with ProfilerActivity.CUDA to see the device");
  fails("", "weft analyze: name a trace, e.g. weft analyze trace.json.gz");
  fails(folder.path(), folder.path() + ": is a folder, not a file");
  fails(folder.file("none.json"), folder.file("none.json") + ": cannot be read: No such file or directory");
  const std::string a = data("hta_sampled_rank0of128.json.gz");
  fails(a + " " + data("hta_sampled_rank1of128.json.gz") + " " + a + " " + a,
        a + " and " + a + " are one file; give each rank's own trace, or compare two with --against");
  const std::string copy = folder.write("copy.json.gz", read_text_file(a));
  fails(a + " " + data("hta_sampled_rank1of128.json.gz") + " " + copy,
        a + " and " + copy + ": both are of rank 0; give one trace per rank, or compare them with --against");
  const std::string whole = read_text_file(a);
  const std::string cut = folder.write("cut.json.gz", whole.substr(0, 1000));
  fails(cut, cut + ": the compressed data ends too early, after 1000 bytes: the file is truncated");
}

TEST(AnalyzeCommand, ReadsPipesOfTheShellAndNoDevices) {
  const std::string trace = data("hta_sampled_rank0of128.json.gz");
  std::FILE* const piped = ::popen(("cat " + trace).c_str(), "r");
  ASSERT_NE(piped, nullptr);
  const CliResult result = weft_cli(fmt::format("analyze /dev/fd/{}", ::fileno(piped)));
  ::pclose(piped);
  EXPECT_EQ(result.code, kOk) << result.err;
  EXPECT_EQ(result.out.substr(0, 400), weft_cli("analyze " + trace).out.substr(0, 400));
  const ScratchFolder folder("analyze_special");
  ASSERT_EQ(::mkfifo(folder.file("pipe.json").c_str(), 0600), 0);
  for (const std::string command : {"analyze ", "verify ", "run ", "plan --cluster local:2 --model "}) {
    const CliResult refused = weft_cli(command + folder.file("pipe.json"));
    EXPECT_EQ(refused.code, kBadInput);
    EXPECT_TRUE(contains(refused.err, "pipe.json: is a named pipe, not a file")) << refused.err;
  }
  EXPECT_TRUE(contains(weft_cli("analyze /dev/zero").err, "/dev/zero: is a device, not a file"));
  EXPECT_TRUE(contains(weft_cli("verify /dev/zero").err, "/dev/zero: is a device, not a file"));
}

TEST(AnalyzeCommand, AnswersInPartWhereARankHasNoKernels) {
  const ScratchFolder folder("analyze_part");
  const std::string host_only =
      folder.write("rank5.json", R"([{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":0,"dur":10}])");
  const CliResult result = weft_cli("analyze --json " + host_only + " " + data("hta_sampled_rank0of128.json.gz"));
  EXPECT_EQ(result.code, kOk);
  const json answer = json::parse(result.out);
  EXPECT_EQ(answer["ranks"][1]["rank"], 5);
  EXPECT_TRUE(answer["ranks"][1]["overlap_pct"].is_null());
  EXPECT_TRUE(contains(result.err, "rank5.json: no GPU kernels")) << result.err;
}

}  // namespace
}  // namespace weft
