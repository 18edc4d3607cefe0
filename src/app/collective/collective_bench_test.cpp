#include "app/collective/collective_bench.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/cli.hpp"
#include "app/test_cli.hpp"

namespace weft {
namespace {

TEST(BusBandwidth, IsWhatNcclTestsDefines) {
  // 1000 bytes in 1 us: 1 GB/s; all_reduce over 4 ranks 2 * 3/4 of it, all_gather 3/4, broadcast all.
  const Bytes size{1000};
  const Nanos time{1000};
  EXPECT_DOUBLE_EQ(bus_bandwidth(Collective::all_reduce, 4, size, time), 1.5e9);
  EXPECT_DOUBLE_EQ(bus_bandwidth(Collective::all_gather, 4, size, time), 0.75e9);
  EXPECT_DOUBLE_EQ(bus_bandwidth(Collective::all_to_all, 4, size, time), 0.75e9);
  EXPECT_DOUBLE_EQ(bus_bandwidth(Collective::broadcast, 4, size, time), 1e9);
}

TEST(CollectiveBench, TimesEveryAlgorithmOnEmulatedLinks) {
  const CliResult run = weft_cli(
      "collective bench --cluster local:2,nic=1GB/s --collective all_reduce,all_gather --size 64KiB "
      "--algorithm ring,direct --repeat 1 --check --json");
  ASSERT_EQ(run.code, kOk) << run.err;
  const auto json = nlohmann::json::parse(run.out);
  EXPECT_EQ(json["ranks"], 2);
  ASSERT_EQ(json["rows"].size(), 4U);
  for (const auto& row : json["rows"]) {
    // No faster than the link: each rank sends 64 KiB (all_reduce: 2 * 1/2) or half of it over 1 GB/s.
    const double least = row["collective"] == "all_reduce" ? 65536e-9 : 32768e-9;
    EXPECT_GE(row["time_s"].get<double>(), least) << row;
    EXPECT_GT(row["predicted_s"].get<double>(), least) << row;
  }
}

// By the clock of the links: a latency of 50 us and half of 64 KiB at 1 GB/s, on a machine as busy as it likes.
TEST(CollectiveBench, EmulatedLinksTakeTheirTimeToTheNanosecond) {
  const CliResult run = weft_cli(
      "collective bench --cluster local:2,nic=1GB/s --collective all_gather --size 64KiB --algorithm ring --in-place "
      "--repeat 3 --json");
  ASSERT_EQ(run.code, kOk) << run.err;
  const auto row = nlohmann::json::parse(run.out)["rows"].at(0);
  EXPECT_NEAR(row["time_s"].get<double>(), 50e-6 + 32768e-9, 2e-9) << row;
  EXPECT_NEAR(row["prediction_error_pct"].get<double>(), 0, 0.01) << row;
}

// Prediction and run have the links' model in common, not what they do with it: one follows a program's steps in a
// simulation, the other carries them out on threads and checks the sums. Out of place, so that ranks copy too.
TEST(CollectiveBench, EveryProgramTakesWhatIsPredictedOnEmulatedLinks) {
  for (const char* ranks : {"3", "4", "8"}) {
    const CliResult run = weft_cli(fmt::format(
        "collective bench --cluster local:{},nic=1GB/s --collective all_reduce,all_gather,reduce_scatter,all_to_all "
        "--size 64KiB,1MiB --algorithm all --repeat 1 --json",
        ranks));
    ASSERT_EQ(run.code, kOk) << run.err;
    const auto rows = nlohmann::json::parse(run.out)["rows"];
    EXPECT_GT(rows.size(), 30U);
    for (const auto& row : rows) EXPECT_NEAR(row["prediction_error_pct"].get<double>(), 0, 1) << ranks << row;
  }
}

TEST(CollectiveBench, BadFlagsAreNamed) {
  const auto expect = [](const std::string& flags, const std::string& words) {
    const CliResult run = weft_cli("collective bench " + flags);
    EXPECT_EQ(run.code, kBadInput) << flags;
    EXPECT_TRUE(contains(run.err, words)) << run.err;
  };
  expect("--collective all_redcue", "did you mean 'all_reduce'");
  expect("--size 3", "--size 3: not a whole number of f32");
  expect("--parts 2", "--parts: name the --algorithm too");
  expect("--ranks 3 --cluster local:2", "--ranks 3: --cluster local:2 has 2 devices");
  expect("--slowdown 2", "--slowdown: slows the links of --cluster");
  expect("--transport tcp", "--transport: a choice under mpirun only");
}

}  // namespace
}  // namespace weft
