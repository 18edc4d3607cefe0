#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/cli.hpp"
#include "app/test_cli.hpp"
#include "base/input_file.hpp"

namespace weft {
namespace {

TEST(ClusterShow, SaysTheSlowestCutAndTheBisection) {
  const CliResult shown = weft_cli("cluster show dgx1-v100");
  EXPECT_EQ(shown.code, kOk) << shown.err;
  // Six links of 25 GB/s bring seven of eight pieces; six of them join the two halves.
  EXPECT_TRUE(contains(shown.out, "150.00 GB/s leave ranks 1-7")) << shown.out;
  EXPECT_TRUE(contains(shown.out, "at most 171.43 GB/s"));
  EXPECT_TRUE(contains(shown.out, "bisection: 150.00 GB/s from ranks 0-3 to the others"));
  EXPECT_TRUE(contains(shown.out, "rank 3 50.00 GB/s"));
}

TEST(ClusterShow, SavesDrawsAndReadsAgain) {
  const ScratchFolder folder("cluster_show");
  const std::string saved = folder.file("t.json"), drawn = folder.file("t.svg");
  EXPECT_EQ(weft_cli("cluster show dgx-a100:2 --save " + saved + " --svg " + drawn).code, kOk);
  EXPECT_TRUE(contains(read_text_file(drawn), "<svg"));
  const CliResult again = weft_cli("cluster show " + saved + " --json");
  EXPECT_EQ(again.code, kOk) << again.err;
  const nlohmann::json json = nlohmann::json::parse(again.out);
  EXPECT_EQ(json["ranks"].size(), 16u);
  EXPECT_DOUBLE_EQ(json["bisection"]["bytes_per_s"].get<double>(), 200e9);
  EXPECT_DOUBLE_EQ(json["slowest_cut"]["bytes_per_s"].get<double>(), 325e9);
}

TEST(ClusterShow, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(weft_cli("cluster").code, kBadInput);
  EXPECT_TRUE(contains(weft_cli("cluster show dgx3").err, "'dgx3' is neither a file nor a topology"));
  EXPECT_TRUE(contains(weft_cli("cluster show dgx2 --nvlink 20GB/s").err, "--nvlink: belongs to a file"));
  EXPECT_TRUE(contains(weft_cli("cluster show").err, "name a machine or a file"));
  EXPECT_EQ(weft_cli("cluster --help").code, kOk);
}

}  // namespace
}  // namespace weft
