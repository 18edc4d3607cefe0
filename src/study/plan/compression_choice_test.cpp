// Compression where it pays and nowhere else: both sides of the break-even.
#include "study/plan/compression_choice.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "cluster/presets.hpp"
#include "cost/profile.hpp"
#include "model/counts.hpp"
#include "model/presets.hpp"

namespace weft {
namespace {

Inputs gpt_on(const std::string& cluster, int zero = 0) {
  Inputs inputs;
  inputs.model = model_preset("gpt2");
  inputs.model.layers = 4;
  inputs.cluster = parse_cluster(cluster);
  inputs.layout.dp = Cluster(inputs.cluster).device_count();
  inputs.layout.global_batch = inputs.layout.dp;
  inputs.layout.seq = 256;
  inputs.layout.zero = zero;
  inputs.layout.dropout = false;
  return inputs;
}

CompressionChoice choice_on(const std::string& cluster, double max_error, int zero = 0) {
  return choose_compression(gpt_on(cluster, zero), default_profile(), max_error, "ddp");
}

CompressionChoice choice_of(CompressionBudget budget, const std::string& cluster, double max_error, int zero) {
  return choose_compression(gpt_on(cluster, zero), default_profile(), max_error, "serial", budget);
}

// On a slow network int8 sends a quarter of the bytes. Where a step is little else than that, it takes about a quarter
// of the time, 260 bytes for 1024.
TEST(CompressionChoice, TakesAQuarterOfTheTimeOnASlowLink) {
  const CompressionChoice choice = choice_on("local:2,nic=20Mb/s", 0.01);
  EXPECT_EQ(choice.best().compress.format, CompressionFormat::int8);
  EXPECT_NEAR(choice.best().step_s / choice.plain().step_s, 260.0 / 1024, 0.06);
}

// With 64 sequences a rank backward hides all but the last reduction, and NVLink takes that in little time.
TEST(CompressionChoice, LeavesItOffOnAFastLink) {
  Inputs inputs = gpt_on("dgx-h100:1");
  inputs.layout.micro_batch = 64;
  inputs.layout.global_batch = 64 * inputs.layout.dp;
  inputs.layout.seq = 1024;
  const CompressionChoice choice = choose_compression(inputs, default_profile(), 10, "ddp");
  EXPECT_EQ(choice.chosen, 0U) << compression_options_text(choice);
}

// Somewhere between the two the answer changes, once: whoever has less bandwidth compresses.
TEST(CompressionChoice, ChangesOnceWithTheBandwidth) {
  bool was_off = false;
  for (const char* const nic : {"50Mb/s", "500Mb/s", "5Gb/s", "50Gb/s", "500Gb/s", "5000Gb/s"}) {
    const bool is_on = choice_on(std::string("local:2,nic=") + nic, 0.01).chosen > 0;
    EXPECT_FALSE(was_off && is_on) << nic;
    was_off = was_off || !is_on;
  }
  EXPECT_TRUE(was_off);
}

TEST(CompressionChoice, KeepsTheErrorThatWasAskedFor) {
  for (const double max_error : {0.0001, 0.001, 0.01, 0.2, 10.0}) {
    const CompressionChoice choice = choice_on("local:2,nic=20Mb/s", max_error, 1);
    EXPECT_LE(expected_error(choice.best().compress.format), max_error);
    EXPECT_EQ(choice.chosen == 0, max_error < expected_error(CompressionFormat::fp16));
  }
  // Of the coarse formats one of those with the fewest bytes wins.
  EXPECT_LT(choice_on("local:2,nic=20Mb/s", 10, 1).best().step_s,
            choice_on("local:2,nic=20Mb/s", 0.01, 1).best().step_s);
}

// A message of a norm takes about as long as its latency, encoded or not.
TEST(CompressionChoice, LeavesSmallParametersAsTheyAre) {
  const CompressionChoice choice = choice_on("local:2,nic=4Gb/s", 0.01);
  ASSERT_GT(choice.chosen, 0U) << compression_options_text(choice);
  EXPECT_GT(choice.best().compress.min_elements, 2 * 768);
  EXPECT_LE(choice.best().compress.min_elements, 768 * 768 + 768);
}

// Two nodes of 8 with one slow adapter each. Encoded everywhere, each of 8 ranks sends half of its E encoded bytes to
// the other node and gathers as much; encoded between nodes, each sends an eighth: an eighth of the bytes through the
// adapter. Inside a node NVLink takes the plain sums in next to no time.
TEST(CompressionChoice, EncodesBetweenNodesOnlyWhereTheirLinksAreSlow) {
  const CompressionChoice choice = choice_on("dgx-a100:2,nic=8Gb/s", 0.01);
  EXPECT_EQ(choice.best().compress.format, CompressionFormat::int8) << compression_options_text(choice);
  EXPECT_TRUE(choice.best().compress.between_nodes) << compression_options_text(choice);
  EXPECT_NE(compression_options_text(choice).find("int8@node"), std::string::npos);
  EXPECT_NE(compression_choice_line(choice).find("int8@node"), std::string::npos);
  // Where there is one level, it is not even considered.
  EXPECT_EQ(compression_options_text(choice_on("local:2,nic=20Mb/s", 0.01)).find("@node"), std::string::npos);
}

// Factors of rank 4 of 768 x 768 and larger are a hundredth of the bytes, and take their product's time to make.
TEST(CompressionChoice, TakesFactorsOfLowRankOnlyWhenAskedForSuchErrors) {
  const CompressionChoice coarse = choice_on("local:2,nic=20Mb/s", 1.0);
  EXPECT_EQ(coarse.best().compress.format, CompressionFormat::power_sgd) << compression_options_text(coarse);
  EXPECT_LT(coarse.best().step_s, 0.05 * coarse.plain().step_s);
  EXPECT_EQ(choice_on("local:2,nic=20Mb/s", 0.01).best().compress.format, CompressionFormat::int8);
}

TEST(CompressionChoice, SaysWhatEachWouldSave) {
  const std::string text = compression_options_text(choice_on("local:2,nic=20Mb/s", 0.01));
  for (int i = 1; i < kCompressionFormats; ++i) {
    EXPECT_NE(text.find(name_of(static_cast<CompressionFormat>(i))), std::string::npos) << text;
  }
  EXPECT_NE(text.find("chosen"), std::string::npos);
  EXPECT_NE(text.find("error above 0.01"), std::string::npos);
}

// Where a step is little else than transfers, its time follows the bytes. gpt_on has bf16 weights (2 bytes an element,
// 260 / 256 as int8) and fp32 gradients (4 bytes, likewise 260 / 256 as int8). Of E elements ZeRO 1 and 2 gather E once
// and ZeRO 3 the layers' once more; each reduces and scatters E. An all-to-all of encoded gradients moves as many
// elements as a reduce_scatter. Embedding and head are two parameters here; one would be gathered and reduced for both.
TEST(CompressionChoice, TakesBothAtEveryZeroStageOnASlowLink) {
  constexpr double kCode = 260.0 / 256;
  Inputs inputs = gpt_on("local:2,nic=2Mb/s");
  inputs.model.tied_embeddings = false;
  Transformer fewer = inputs.model;
  --fewer.layers;
  const auto all = static_cast<double>(total_parameters(inputs.model));
  const double layers = 4 * (all - static_cast<double>(total_parameters(fewer)));
  for (const int zero : {1, 2, 3}) {
    inputs.layout.zero = zero;
    const double gathered = zero == 3 ? all + layers : all;
    const double plain = 4 * all + 2 * gathered;
    const struct {
      CompressionBudget budget;
      double bytes;
    } cases[] = {{CompressionBudget::gradients, kCode * all + 2 * gathered},
                 {CompressionBudget::weights, 4 * all + kCode * gathered},
                 {CompressionBudget::all, kCode * all + kCode * gathered}};
    for (const auto& [budget, bytes] : cases) {
      const CompressionChoice choice = choose_compression(inputs, default_profile(), 0.01, "serial", budget);
      SCOPED_TRACE(compression_options_text(choice));
      const bool weights = budget != CompressionBudget::gradients, gradients = budget != CompressionBudget::weights;
      EXPECT_EQ(choice.best().compress.format, gradients ? CompressionFormat::int8 : CompressionFormat::none);
      EXPECT_EQ(choice.best().weights, weights ? CompressionFormat::int8 : CompressionFormat::none);
      EXPECT_NEAR(choice.best().step_s / choice.plain().step_s, bytes / plain, 0.03);
    }
  }
}

// Both sides of the break-even, once, at each stage and for either budget.
TEST(CompressionChoice, ChangesOnceWithTheBandwidthAtEveryZeroStage) {
  for (const int zero : {1, 2, 3}) {
    for (const CompressionBudget budget : {CompressionBudget::weights, CompressionBudget::all}) {
      bool was_off = false, was_on = false;
      for (const char* const nic : {"50Mb/s", "5Gb/s", "500Gb/s", "50000Gb/s"}) {
        const bool is_on = choice_of(budget, std::string("local:2,nic=") + nic, 0.01, zero).chosen > 0;
        EXPECT_FALSE(was_off && is_on) << nic << " at zero " << zero;
        was_off = was_off || !is_on;
        was_on = was_on || is_on;
      }
      EXPECT_TRUE(was_on && was_off) << zero;
    }
  }
}

TEST(CompressionChoice, KeepsTheErrorOfBothAtEveryZeroStage) {
  for (const int zero : {1, 2, 3}) {
    for (const double max_error : {0.0, 0.0001, 0.001, 0.03, 0.2}) {
      const CompressionChoice choice = choice_of(CompressionBudget::all, "local:2,nic=20Mb/s", max_error, zero);
      EXPECT_LE(expected_error(choice.best().compress.format), max_error);
      EXPECT_LE(expected_error(choice.best().weights), max_error);
      EXPECT_EQ(choice.chosen == 0, max_error < expected_error(CompressionFormat::fp16)) << zero << " " << max_error;
    }
  }
}

TEST(CompressionChoice, NamesFormatsAsTheFlagTakesThem) {
  const CompressionChoice choice = choice_of(CompressionBudget::all, "local:2,nic=20Mb/s", 0.01, 3);
  EXPECT_EQ(compression_flag_of(choice.best()), "gradients=int8,weights=int8");
  EXPECT_NE(compression_choice_line(choice).find("gradients=int8,weights=int8"), std::string::npos);
  EXPECT_EQ(compression_flag_of(choice.plain()), "");
}

TEST(CompressionChoice, SaysWhereNoWeightsAreGathered) {
  try {
    choice_of(CompressionBudget::weights, "local:2,nic=20Mb/s", 0.01, 0);
    FAIL() << "ZeRO 0 gathers no weights";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("--compress weights: needs --zero 1, 2 or 3"), std::string::npos);
  }
}

}  // namespace
}  // namespace weft
