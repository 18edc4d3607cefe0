#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/cli.hpp"
#include "app/test_cli.hpp"
#include "io/msccl/msccl_xml.hpp"

namespace weft {
namespace {

TEST(CollectiveSynthesize, PrintsTheOptimumAndItsProof) {
  const CliResult made = weft_cli("collective synthesize --topology dgx1-v100");
  EXPECT_EQ(made.code, kOk) << made.err;
  EXPECT_TRUE(contains(made.out, "171.43 GB/s (buffer over time, large buffers), the optimum")) << made.out;
  EXPECT_TRUE(contains(made.out, "7 of 8 slices must leave ranks 1-7 over 150.00 GB/s"));
}

TEST(CollectiveSynthesize, WritesProgramsThatItsVerifierAccepts) {
  if (!can_read_msccl_xml()) GTEST_SKIP() << "this build has no pugixml";
  const ScratchFolder folder("synthesize");
  for (const std::string kind : {"all_gather", "reduce_scatter", "all_reduce"}) {
    for (const std::string topology : {"dgx1-v100", "dgx-a100:2", "mi250", "local:4,nic=200Mb/s"}) {
      const std::string file = folder.file(kind + ".xml");
      const CliResult made = weft_cli("collective synthesize --collective " + kind + " --topology " + topology +
                                      " --in-place --out " + file);
      EXPECT_EQ(made.code, kOk) << made.err;
      const CliResult verified = weft_cli("collective verify " + file);
      EXPECT_EQ(verified.code, kOk) << kind << " " << topology << verified.out << verified.err;
    }
  }
}

TEST(CollectiveSynthesize, SaysEverythingAsJson) {
  const CliResult made = weft_cli("collective synthesize --topology dgx-h100 --collective all_reduce --parts 2 --json");
  ASSERT_EQ(made.code, kOk) << made.err;
  const nlohmann::json json = nlohmann::json::parse(made.out);
  // 2 x 7/8 of the buffer over 18 x 25 GB/s.
  EXPECT_NEAR(json["bytes_per_s"].get<double>(), 450e9 / 2 / 7 * 8, 1);
  EXPECT_EQ(json["depth"], 1);
  EXPECT_EQ(json["roots"].size(), 8u);
}

// With NVLS every GPU sends the buffer once over its 450 GB/s; without it, 2 x 7/8 of it.
TEST(CollectiveSynthesize, SwitchesTakePartAndRanksStandInForThem) {
  const ScratchFolder folder("in_network");
  for (const std::string kind : {"all_reduce", "all_gather", "reduce_scatter"}) {
    for (const std::string in_place : {"", " --in-place"}) {
      const std::string file = folder.file(kind + ".json");
      const CliResult made = weft_cli("collective synthesize --topology dgx-h100 --in-network --parts 2 --collective " +
                                      kind + in_place + " --out " + file);
      ASSERT_EQ(made.code, kOk) << made.err;
      EXPECT_TRUE(contains(made.out, kind == "all_reduce"
                                         ? "450.00 GB/s (buffer over time, large buffers), the optimum"
                                         : "514.29 GB/s (buffer over time, large buffers), the optimum"))
          << made.out;
      EXPECT_TRUE(contains(made.out, "node0.nvswitch0 and 3 like it")) << made.out;
      const CliResult verified = weft_cli("collective verify " + file);
      EXPECT_EQ(verified.code, kOk) << verified.out << verified.err;
      EXPECT_TRUE(contains(verified.out, "8 ranks and 1 switch that takes part")) << verified.out;
      // Compares every byte of the result.
      const CliResult run = weft_cli("collective bench " + file + " --ranks 8 --size 60KiB --repeat 1 --dtype i32");
      EXPECT_EQ(run.code, kOk) << run.err;
      EXPECT_TRUE(contains(run.out, "1 more stands in for the switch")) << run.out;
    }
  }
}

TEST(CollectiveSynthesize, LargeBuffersAreFasterThroughTheSwitch) {
  const CliResult made =
      weft_cli("collective synthesize --topology dgx-h100 --in-network --collective all_reduce --size 64MiB --json");
  ASSERT_EQ(made.code, kOk) << made.err;
  const nlohmann::json best = nlohmann::json::parse(made.out)["sizes"][0]["candidates"][0];
  EXPECT_EQ(best["origin"], "in_network");
  EXPECT_GE(best["time_s"].get<double>(), (64 << 20) / 450e9);         // what nothing beats
  EXPECT_LT(best["time_s"].get<double>(), (64 << 20) / 450e9 * 1.25);  // parts fill and drain
}

TEST(CollectiveSynthesize, SaysWhereSwitchesCannotTakePart) {
  const ScratchFolder folder("in_network_refused");
  EXPECT_TRUE(contains(weft_cli("collective synthesize --topology dgx-a100 --in-network").err,
                       "has no switch that multicasts"));
  EXPECT_TRUE(contains(weft_cli("collective synthesize --topology dgx-h100").out, "--in-network"));
  const CliResult xml =
      weft_cli("collective synthesize --topology dgx-h100 --in-network --out " + folder.file("a.xml"));
  EXPECT_EQ(xml.code, kBadInput);
  EXPECT_TRUE(contains(xml.err, "MSCCL's files know no steps in switches")) << xml.err;
  const std::string file = folder.file("a.json");
  ASSERT_EQ(weft_cli("collective synthesize --topology dgx-h100 --in-network --out " + file).code, kOk);
  const CliResult paced = weft_cli("collective bench " + file + " --cluster local:8,nic=1GB/s");
  EXPECT_EQ(paced.code, kBadInput);
  EXPECT_TRUE(contains(paced.err, "has no place for the 1 rank that stands in")) << paced.err;
}

// A GPU's 7 of 8 slices leave over 18 x 25 GB/s: 450 x 8 / 7, and switches are in nobody's way.
TEST(CollectiveSynthesize, SaysWhatAnAllToAllCanReach) {
  const CliResult made =
      weft_cli("collective synthesize --topology dgx-h100 --collective all_to_all --solver none --json");
  ASSERT_EQ(made.code, kOk) << made.err;
  const nlohmann::json json = nlohmann::json::parse(made.out);
  EXPECT_EQ(json["found_by"], "weights");
  EXPECT_NEAR(json["most_bytes_per_s"].get<double>(), 450e9 * 8 / 7, 450e9 * 0.02);
  EXPECT_LE(json["bytes_per_s"].get<double>(), 450e9 * 8 / 7 * (1 + 1e-9));
  EXPECT_GE(json["bytes_per_s"].get<double>(), 450e9 * 8 / 7 * 0.95);
}

TEST(CollectiveSynthesize, RefusesWhatItCannotDo) {
  EXPECT_TRUE(contains(weft_cli("collective synthesize").err, "--topology: is missing"));
  EXPECT_EQ(weft_cli("collective synthesize --topology dgx2 --collective all_to_all --parts 2").code, kBadInput);
  EXPECT_EQ(weft_cli("collective synthesize --topology dgx2 --parts 0").code, kBadInput);
  EXPECT_EQ(weft_cli("collective synthesize --topology nowhere").code, kBadInput);
}

}  // namespace
}  // namespace weft
