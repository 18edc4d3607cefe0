#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/analyze/analyze_sections.hpp"
#include "app/test_cli.hpp"

namespace weft {
namespace {

using nlohmann::json;

std::string data(const std::string& name) {
  return fmt::format("{}/tests/data/traces/{}", WEFT_SOURCE_DIR, name);
}

// One kernel and the call that launches it, in microseconds; correlation ids are launch times.
std::string kernel(const std::string& name, int stream, int launch, int start, int duration) {
  return fmt::format(
      R"({{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":{1},"dur":1,"args":{{"correlation":{1}}}}},)"
      R"({{"ph":"X","cat":"kernel","name":"{0}","pid":0,"tid":{2},"ts":{3},"dur":{4},"args":{{"stream":{2},"device":0,"correlation":{1}}}}})",
      name, launch, stream, start, duration);
}

CliResult analyze(const std::vector<std::string>& kernels, const std::string& flags = "") {
  const ScratchFolder folder("analyze_verdict");
  const std::string file = folder.write("rank0.json", fmt::format("[{}]", fmt::join(kernels, ",")));
  return weft_cli("analyze " + file + flags);
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

TEST(AnalyzeVerdict, TheFirstLineNamesAnIdleDeviceAndALateHost) {
  const CliResult result = weft_cli("analyze " + data("hta_nccl_data_a100_rank0of2.json.gz"));
  // 77.78 % is HTA's idle time of this trace.
  EXPECT_TRUE(first_line(result.out).starts_with("Verdict: host-bound: device idle 77.8 % of the time"))
      << first_line(result.out);
}

// 100 us of computation; then 10 us nothing, launched late; 40 us of communication alone; 50 us of both.
TEST(AnalyzeVerdict, CostsAreRankedAndCoverTheTime) {
  const CliResult result = analyze({kernel("gemm", 7, 0, 10, 100), kernel("ncclDevKernel_AllReduce", 20, 115, 120, 90),
                                    kernel("gemm", 7, 116, 160, 50)},
                                   " --json");
  ASSERT_EQ(result.code, kOk) << result.err;
  const json verdict = json::parse(result.out).at("verdicts").at(0);
  const json& costs = verdict.at("costs");
  ASSERT_EQ(costs.size(), 3U);
  EXPECT_EQ(costs[0].at("kind"), "computation");
  EXPECT_EQ(costs[0].at("time_us"), 150);
  EXPECT_EQ(costs[0].at("share_pct"), 75);
  EXPECT_EQ(costs[1].at("kind"), "exposed_communication");
  EXPECT_EQ(costs[1].at("time_us"), 40);
  EXPECT_EQ(costs[2].at("kind"), "idle_host");
  EXPECT_EQ(costs[2].at("time_us"), 10);
  // The last gemm waits for the communication, and that was launched when the host came to it: of the 200 us from the
  // first start on, 50 and 40 are theirs and 110 are the host's.
  EXPECT_EQ(verdict.at("headline"),
            "host-bound: 55.0 % of the critical path; computation 75.0 % of the time, idle 5.0 %");
}

// Expert traffic of DeepEP is communication like NCCL's, and the answer says what was taken for it.
TEST(AnalyzeVerdict, OtherLibrariesCommunicateToo) {
  const CliResult result =
      analyze({kernel("gemm", 7, 0, 10, 10), kernel("void internode::dispatch<2>(int4*)", 20, 1, 20, 70),
               kernel("gemm", 7, 2, 90, 10)});
  EXPECT_TRUE(first_line(result.out).starts_with("Verdict: communication-bound: alone 77.8 %"))
      << first_line(result.out);
  EXPECT_TRUE(contains(result.err, "taken for communication, by DeepEP: internode::dispatch")) << result.err;
}

TEST(AnalyzeVerdict, AnExpressionNamesKernelsThatCommunicate) {
  const std::vector<std::string> kernels{kernel("gemm", 7, 0, 10, 10), kernel("our_exchange_v2", 20, 1, 20, 70),
                                         kernel("gemm", 7, 2, 90, 10)};
  EXPECT_TRUE(first_line(analyze(kernels).out).starts_with("Verdict: compute-bound"));
  const CliResult result = analyze(kernels, " --communication ^our_.*exchange");
  EXPECT_TRUE(first_line(result.out).starts_with("Verdict: communication-bound: alone 77.8 %"))
      << first_line(result.out);
  EXPECT_TRUE(contains(result.err, "by --communication: our_exchange_v2")) << result.err;
  EXPECT_EQ(analyze(kernels, " --communication [").code, 2);
  EXPECT_EQ(analyze(kernels, " --communication nothing").code, 2);
}

// Kernels of 70 us that the host launches every 100 us: computation runs for most of the time, and no faster kernel
// would make the step shorter. The path goes from launch to launch.
TEST(AnalyzeVerdict, AgreesWithTheCriticalPath) {
  std::vector<std::string> kernels;
  for (int i = 0; i < 10; ++i) kernels.push_back(kernel("gemm", 7, 100 * i, 100 * i + 5, 70));
  const CliResult result = analyze(kernels);
  EXPECT_TRUE(first_line(result.out).starts_with("Verdict: host-bound: 9")) << first_line(result.out);
}

TEST(AnalyzeVerdict, CommunicationAloneIsNamedWithItsReason) {
  const CliResult result = analyze(
      {kernel("gemm", 7, 0, 10, 10), kernel("ncclDevKernel_AllReduce", 20, 1, 20, 70), kernel("gemm", 7, 2, 90, 10)});
  EXPECT_TRUE(first_line(result.out).starts_with("Verdict: communication-bound: alone 77.8 %"))
      << first_line(result.out);
  EXPECT_TRUE(contains(result.out, "what came next needed it")) << result.out;
}

// Computation that fills 60 % of the time is what to look at first; below that, what keeps it from doing so is.
TEST(AnalyzeVerdict, ComputeBoundBeginsAtSixtyPercent) {
  const auto headline = [](int computes) {
    return first_line(analyze({kernel("gemm", 7, 0, 10, computes),
                               kernel("ncclDevKernel_AllReduce", 20, 1, 10 + computes, 100 - computes)})
                          .out);
  };
  EXPECT_TRUE(headline(60).starts_with("Verdict: compute-bound: computation 60.0 %")) << headline(60);
  EXPECT_TRUE(headline(59).starts_with("Verdict: communication-bound: alone 41.0 %")) << headline(59);
}

TEST(AnalyzeVerdict, GapsThatAreNotTheHostsAreToldApart) {
  // Launched in time, 20 us gaps around 10 us kernels.
  const CliResult gaps = analyze({kernel("gemm", 7, 0, 10, 10), kernel("gemm", 7, 1, 40, 10),
                                  kernel("gemm", 7, 2, 70, 10), kernel("gemm", 7, 3, 100, 10)});
  EXPECT_TRUE(first_line(gaps.out).starts_with("Verdict: launch-bound: device idle 60.0 %")) << gaps.out;
  const CliResult waits = analyze({kernel("gemm", 7, 0, 10, 10), kernel("gemm", 7, 1, 100, 10)});
  EXPECT_TRUE(first_line(waits.out).starts_with("Verdict: waiting: device idle 80.0 %")) << waits.out;
}

// Groups of unknown size: no bus bandwidth until the flag says it.
TEST(AnalyzeVerdict, TheGroupSizeMayBeGiven) {
  const std::string file = data("hta_sampled_rank0of128.json.gz");
  const auto row = [](const json& answer) {
    for (const json& entry : answer.at("ranks").at(0).at("collectives")) {
      if (entry.at("collective") == "all_reduce" && !entry.at("bytes").is_null()) return entry;
    }
    return json();
  };
  const json without = row(json::parse(weft_cli("analyze --json " + file).out));
  ASSERT_TRUE(without.is_object());
  EXPECT_TRUE(without.at("bus_gb_per_s").is_null());
  const json with = row(json::parse(weft_cli("analyze --json --group-size 128 " + file).out));
  EXPECT_EQ(with.at("group_ranks"), 128);
  EXPECT_NEAR(with.at("bus_gb_per_s").get<double>(), with.at("algorithm_gb_per_s").get<double>() * 2 * 127 / 128, 1e-9);
  EXPECT_EQ(weft_cli("analyze --group-size 1 " + file).code, kBadInput);
  // This one says its groups.
  const CliResult unused = weft_cli("analyze --group-size 4 " + data("hta_nccl_data_a100_rank0of2.json.gz"));
  EXPECT_EQ(unused.code, kOk);
  EXPECT_TRUE(contains(unused.err, "--group-size 4: every communication")) << unused.err;
}

TEST(AnalyzeVerdict, EveryLineFitsATerminal) {
  for (const std::string name :
       {"hta_critical_path_simple_add", "hta_cuda_event_sync_multi_stream", "hta_nccl_data_a100_rank0of2",
        "hta_sampled_rank1of128", "hta_trace_diff_control_a100_rank3of8"}) {
    for (const std::string& line : split(weft_cli("analyze " + data(name + ".json.gz")).out, '\n')) {
      EXPECT_LE(line.size(), 100U) << line;
    }
  }
}

}  // namespace
}  // namespace weft
