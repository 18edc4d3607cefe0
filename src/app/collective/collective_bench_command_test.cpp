// Collectives timed by the command line, on emulated links.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/cli.hpp"
#include "app/test_cli.hpp"
#include "base/input_file.hpp"
#include "io/msccl/msccl_xml.hpp"

namespace weft {
namespace {

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
  EXPECT_NEAR(row["link_time_s"].get<double>(), 50e-6 + 32768e-9, 2e-9) << row;
  EXPECT_NEAR(row["predicted_s"].get<double>(), 50e-6 + 32768e-9, 2e-9) << row;
}

// Callers are told after the links' clock says so: that is what they measure. How well the links' model predicts
// itself is no error of a prediction.
TEST(CollectiveBench, TimesOfEmulatedLinksAreThoseOfTheMachine) {
  const std::string flags = "collective bench --cluster local:2,nic=1GB/s --size 64KiB --repeat 3 ";
  const CliResult run = weft_cli(flags + "--json");
  ASSERT_EQ(run.code, kOk) << run.err;
  const auto row = nlohmann::json::parse(run.out)["rows"].at(0);
  EXPECT_GT(row["time_s"].get<double>(), row["link_time_s"].get<double>()) << row;
  EXPECT_NEAR(row["late_s"].get<double>(), row["time_s"].get<double>() - row["link_time_s"].get<double>(), 1e-9) << row;
  EXPECT_DOUBLE_EQ(row["bus_bandwidth"].get<double>(), 65536 / row["time_s"].get<double>()) << row;
  EXPECT_FALSE(row.contains("prediction_error_pct")) << row;
  const CliResult table = weft_cli(flags);
  EXPECT_TRUE(contains(table.out, "links' clock")) << table.out;
  EXPECT_FALSE(contains(table.out, "error")) << table.out;
}

// 64 MiB over 10 TB/s: the links need 50 us and some, no machine copies that fast.
TEST(CollectiveBench, WarnsWhereTheMachineIsTooSlowForTheLinks) {
  const CliResult run =
      weft_cli("collective bench --cluster local:2,nic=10000GB/s --size 64MiB --algorithm ring --repeat 1");
  ASSERT_EQ(run.code, kOk) << run.err;
  EXPECT_TRUE(contains(run.err, "warning: ranks were late in 1 of 1 rows: all_reduce of 64.00 MiB took")) << run.err;
  // 1 s over links of 32 KiB/s: whatever the machine does meanwhile is less than a tenth of it.
  const CliResult slow =
      weft_cli("collective bench --cluster local:2,nic=32KB/s --size 32KiB --algorithm ring --repeat 1");
  ASSERT_EQ(slow.code, kOk) << slow.err;
  EXPECT_TRUE(slow.err.empty()) << slow.err;
}

TEST(CollectiveBench, WhatMovesNothingHasNoBandwidth) {
  for (const char* flags : {"--ranks 1 --size 64KiB", "--ranks 2 --collective barrier"}) {
    const CliResult run = weft_cli(fmt::format("collective bench --repeat 1 {}", flags));
    ASSERT_EQ(run.code, kOk) << run.err;
    EXPECT_FALSE(contains(run.out, "MB/s")) << run.out;
    const CliResult json = weft_cli(fmt::format("collective bench --repeat 1 --json {}", flags));
    const auto rows = nlohmann::json::parse(json.out)["rows"];
    ASSERT_EQ(rows.size(), 1U);
    EXPECT_TRUE(rows[0]["bus_bandwidth"].is_null()) << rows;
  }
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
    for (const auto& row : rows) {
      const double predicted = row["predicted_s"].get<double>();
      EXPECT_NEAR(row["link_time_s"].get<double>(), predicted, 0.01 * predicted) << ranks << row;
    }
  }
}

TEST(CollectiveBench, BadFlagsAreNamed) {
  const auto expect = [](const std::string& flags, const std::string& words) {
    const CliResult run = weft_cli("collective bench " + flags);
    EXPECT_EQ(run.code, kBadInput) << flags;
    EXPECT_TRUE(contains(run.err, words)) << run.err;
  };
  expect("--collective all_redcue", "did you mean 'all_reduce'");
  expect("--size 3", "--size 3: not a whole number of fp32");
  expect("--size 0", "--size 0: there is nothing to time");
  expect("--size 999TiB", "--size 999.00 TiB: 8 buffers of that size for 2 ranks do not fit");
  expect("--overlap --ranks 1", "--overlap: one rank has nothing to send");
  expect("--parts 2", "--parts: name the --algorithm too");
  expect("--ranks 3 --cluster local:2", "--ranks 3: --cluster local:2 has 2 devices");
  expect("--slowdown 2", "--slowdown: slows the links of --cluster");
  expect("--transport tcp", "--transport: a choice under mpirun only");
}

// Four ranks, of which the last has a quarter of the others' bandwidth.
constexpr const char* kSlowRank =
    R"({"name": "slow", "device": "cpu", "nodes": 4, "devices_per_node": 1, "emulated": true,)"
    R"( "levels": [{"name": "nic", "joins": "cluster", "bandwidth": "25MB/s", "latency": "50us"}],)"
    R"( "overrides": [{"node": 3, "level": "nic", "bandwidth": "6.25MB/s"}]})";

// A ring sends 2 x 3/4 of the buffer over every link, so the slow one decides: 6 buffers over 25 MB/s. The synthesised
// program sends the buffer over it once each way, 4 such times, and a little for parts that do not overlap.
TEST(CollectiveBench, ASynthesisedProgramBeatsTheRingWhereOneLinkIsSlow) {
  if (!can_read_msccl_xml()) GTEST_SKIP() << "this build has no pugixml";
  const ScratchFolder folder("bench_file");
  const std::string cluster = folder.write("slow.json", kSlowRank), file = folder.file("trees.xml");
  const CliResult made = weft_cli("collective synthesize --collective all_reduce --parts 8 --in-place --topology " +
                                  cluster + " --out " + file);
  ASSERT_EQ(made.code, kOk) << made.err;
  EXPECT_TRUE(contains(made.out, "sums are made at ranks 0-2 only")) << made.out;
  const CliResult run = weft_cli("collective bench " + file + " --cluster " + cluster +
                                 " --size 1MiB --algorithm ring --repeat 1 --in-place --json");
  ASSERT_EQ(run.code, kOk) << run.err;
  const auto rows = nlohmann::json::parse(run.out)["rows"];
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0]["algorithm"], "ring");
  EXPECT_EQ(rows[1]["algorithm"], "trees");
  const double buffer = (1 << 20) / 25e6;
  EXPECT_NEAR(rows[0]["link_time_s"].get<double>(), 6 * buffer, 0.05 * buffer);
  EXPECT_GE(rows[1]["link_time_s"].get<double>(), 4 * buffer);
  EXPECT_LE(rows[1]["link_time_s"].get<double>(), 5 * buffer) << rows[1];
}

TEST(CollectiveBench, RefusesProgramsForOtherRanksAndWrongOnes) {
  if (!can_read_msccl_xml()) GTEST_SKIP() << "this build has no pugixml";
  const ScratchFolder folder("bench_refused");
  const std::string file = folder.file("gather.xml");
  ASSERT_EQ(weft_cli("collective synthesize --topology local:3 --out " + file).code, kOk);
  const CliResult other = weft_cli("collective bench " + file + " --ranks 2 --size 4KiB");
  EXPECT_EQ(other.code, kBadInput);
  EXPECT_TRUE(contains(other.err, "the program is for 3 ranks; there are 2")) << other.err;
  const CliResult run = weft_cli("collective bench " + file + " --ranks 3 --size 4KiB,12 --repeat 1 --json");
  ASSERT_EQ(run.code, kOk) << run.err;
  EXPECT_EQ(nlohmann::json::parse(run.out)["rows"].size(), 4U);
  // One message less: what rank 0 sends first arrives nowhere.
  std::string text = read_text_file(file);
  const auto step = text.find("<step");
  text.erase(step, text.find('\n', step) - step);
  const CliResult wrong = weft_cli("collective bench " + folder.write("wrong.xml", text) + " --ranks 3 --size 4KiB");
  EXPECT_EQ(wrong.code, kBadInput) << wrong.out;
}

// Files by msccl-tools compute what they say.
TEST(CollectiveBench, RunsTheSharedFiles) {
  const auto files = std::filesystem::path(WEFT_SOURCE_DIR) / "../shared/data/msccl_xml";
  if (!can_read_msccl_xml() || !std::filesystem::exists(files)) GTEST_SKIP() << "needs ../shared/data and pugixml";
  for (const auto& [name, ranks] : {std::pair{"allgather_recdoubling_8", 8}, std::pair{"allgather_ring_4gpu", 4},
                                    std::pair{"allreduce_ring_4gpu", 4}, std::pair{"alltoall_allpairs_4", 4},
                                    std::pair{"hierarchical_allreduce_2x4", 8}}) {
    const std::string file = (files / name).string() + ".xml";
    const CliResult run =
        weft_cli(fmt::format("collective bench {} --ranks {} --size 64KiB --repeat 1 --json", file, ranks));
    EXPECT_EQ(run.code, kOk) << name << ": " << run.err;
  }
}

}  // namespace
}  // namespace weft
