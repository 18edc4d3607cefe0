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

TEST(CollectiveSynthesize, RefusesWhatItCannotDo) {
  EXPECT_TRUE(contains(weft_cli("collective synthesize").err, "--topology: is missing"));
  EXPECT_EQ(weft_cli("collective synthesize --topology dgx2 --collective all_to_all").code, kBadInput);
  EXPECT_EQ(weft_cli("collective synthesize --topology dgx2 --parts 0").code, kBadInput);
  EXPECT_EQ(weft_cli("collective synthesize --topology nowhere").code, kBadInput);
}

}  // namespace
}  // namespace weft
