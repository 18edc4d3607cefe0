// `--lengths` of weft plan and weft run: what it refuses and what it says.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/test_cli.hpp"
#include "kernels/kernels.hpp"

namespace weft {
namespace {

const std::string kShape =
    "--layers 2 --hidden 32 --heads 4 --micro-batch 2 --vocab 256 --cluster local:2,nic=200Mb/s ";

TEST(Lengths, RefusesWhatSaysNoLengths) {
  const auto refused = [](const std::string& flags, const std::string& words) {
    const CliResult result = weft_cli("plan " + kShape + flags);
    EXPECT_EQ(result.code, kBadInput) << flags;
    EXPECT_TRUE(contains(result.err, words)) << words << " in " << result.err;
  };
  refused("--lengths 16,x", "--lengths");
  refused("--lengths 0,16", "0 is not in 1..");
  refused("--lengths 16,16", "16 stands there twice");
  refused("--lengths 16,32 --seq 32", "says what --seq says");
  refused("--lengths 16,32 --explain", "--explain");
}

// Every length has the plan that it would have alone.
TEST(Lengths, PlansEachLengthByItself) {
  const CliResult both = weft_cli("plan " + kShape + "--lengths 32,16 --policy serial,ddp --json");
  ASSERT_EQ(both.code, kOk) << both.err;
  const auto lengths = nlohmann::json::parse(both.out)["lengths"];
  ASSERT_EQ(lengths.size(), 2U);
  // A shape's learned positions reach the longest, so that is said for the shorter one too.
  const CliResult longest = weft_cli("plan " + kShape + "--seq 32 --policy serial,ddp --json");
  EXPECT_EQ(lengths[1], nlohmann::json::parse(longest.out));
  EXPECT_EQ(lengths[0]["layout"]["seq"], 16);
  EXPECT_LT(lengths[0]["policies"]["serial"]["step_s"], lengths[1]["policies"]["serial"]["step_s"]);
}

TEST(Lengths, TrainsOnBatchesOfAllOfThem) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const CliResult result =
      weft_cli("run " + kShape + "--lengths 8,16 --policy ddp --steps 12 --threads 1 --calibrate-seconds 0.05 --json");
  ASSERT_EQ(result.code, kOk) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["losses"].size(), 12U);
  EXPECT_LT(json["losses"][11].get<double>(), json["losses"][0].get<double>());
  ASSERT_EQ(json["lengths"].size(), 2U);
  EXPECT_EQ(json["lengths"][0]["seq"], 8);
  for (const auto& length : json["lengths"]) {
    EXPECT_GT(length["step_s"].get<double>(), 0);
    EXPECT_GT(length["predicted_step_s"].get<double>(), 0);
    EXPECT_EQ(length["policy"], "ddp");
  }
  EXPECT_EQ(weft_cli("run " + kShape + "--lengths 8,16 --record x").code, kBadInput);
}

}  // namespace
}  // namespace weft
