// DeepSpeed's configuration files: what they say of a plan, by DeepSpeed's own defaults.
#include "io/launchers/deepspeed_job.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.hpp"

namespace weft {
namespace {

using Settings = std::map<std::string, std::string>;

Settings settings_of(const std::string& text) {
  Settings settings;
  for (const LaunchSetting& setting : read_deepspeed_config(text, "ds.json").settings) {
    settings[setting.flag] = setting.value;
  }
  return settings;
}

std::string reason_of(const LaunchJob& job, const std::string& flag) {
  const auto found =
      std::find_if(job.ignored.begin(), job.ignored.end(), [&](const auto& i) { return i.flag == flag; });
  return found == job.ignored.end() ? "" : found->reason;
}

TEST(DeepSpeedConfig, BatchesPrecisionAndZero) {
  // 5e8 elements of fp16 are 953.67 MiB.
  EXPECT_EQ(settings_of(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.5,
                            "fp16": {"enabled": true},
                            "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 500000000}})"),
            (Settings{{"micro-batch", "2"},
                      {"global-batch", "64"},
                      {"precision", "fp16"},
                      {"grad-dtype", "fp16"},
                      {"clip-grad", "1.5"},
                      {"zero", "2"},
                      {"policy", "ddp"},
                      {"bucket-mib", "953.67431640625"}}));
}

// Python writes 5e8 for an integer, and DeepSpeed takes it.
TEST(DeepSpeedConfig, IntegersMayBeWrittenAsFloats) {
  const Settings as_integers = settings_of(
      R"({"train_batch_size": 64, "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 500000000,
          "allgather_bucket_size": 200000000}})");
  EXPECT_EQ(settings_of(
                R"({"train_batch_size": 6.4e1, "zero_optimization": {"stage": 2.0, "overlap_comm": true,
                    "reduce_bucket_size": 5e8, "allgather_bucket_size": 2e8}})"),
            as_integers);
  EXPECT_THROW(settings_of(R"({"train_batch_size": 6.5})"), Error);
}

// overlap_comm is on at stage 3 alone unless it is said; stage 0 reduces when backward has ended.
TEST(DeepSpeedConfig, OverlapByDefaultIsOfStage3) {
  const auto policy = [](const std::string& zero) {
    return settings_of(R"({"zero_optimization": {)" + zero + "}}").at("policy");
  };
  EXPECT_EQ(policy(R"("stage": 3)"), "fsdp");
  EXPECT_EQ(policy(R"("stage": 3, "overlap_comm": false)"), "serial");
  EXPECT_EQ(policy(R"("stage": 1)"), "serial");
  EXPECT_EQ(policy(R"("stage": 0, "overlap_comm": true)"), "serial");
  EXPECT_EQ(settings_of("{}").at("policy"), "serial");
}

// Weights in eight bits and gradients in four, at stage 3 alone.
TEST(DeepSpeedConfig, ZeroPlusPlus) {
  const auto settings = [](const std::string& zero) { return settings_of(R"({"zero_optimization": {)" + zero + "}}"); };
  const Settings all = settings(R"("stage": 3, "zero_hpz_partition_size": 16, "zero_quantized_weights": true,
                                   "zero_quantized_gradients": true)");
  EXPECT_EQ(all.at("zero-secondary"), "16");
  EXPECT_EQ(all.at("compress"), "gradients=int4,weights=int8");
  EXPECT_EQ(settings(R"("stage": 3, "zero_quantized_weights": true)").at("compress"), "weights=int8");
  EXPECT_EQ(settings(R"("stage": 3, "zero_quantized_gradients": true)").at("compress"), "gradients=int4");
  EXPECT_FALSE(settings(R"("stage": 2, "zero_quantized_gradients": true)").contains("compress"));
  EXPECT_FALSE(settings(R"("stage": 3, "zero_hpz_partition_size": 1)").contains("zero-secondary"));
}

TEST(DeepSpeedConfig, WhatHasNoEffectIsNamed) {
  const LaunchJob job = read_deepspeed_config(
      R"({"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 4, "steps_per_print": 10,
          "zero_optimisation": {}, "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}})",
      "ds.json");
  EXPECT_NE(reason_of(job, "train_micro_batch_size_per_gpu").find("fills it in"), std::string::npos);
  EXPECT_EQ(reason_of(job, "steps_per_print"), "no plan depends on it");
  EXPECT_NE(reason_of(job, "zero_optimisation").find("did you mean 'zero_optimization'"), std::string::npos);
  EXPECT_EQ(reason_of(job, "zero_optimization.offload_param"), "Weft has no offloading");
}

// train_batch_size = train_micro_batch_size_per_gpu * gradient_accumulation_steps * data-parallel ranks.
TEST(DeepSpeedConfig, StepsOfAccumulationAreMicroBatches) {
  const Settings open = settings_of(R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3})");
  EXPECT_EQ(open.at("micro-batches"), "3");
  EXPECT_FALSE(open.contains("global-batch"));
  const Settings all =
      settings_of(R"({"train_batch_size": 96, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3})");
  EXPECT_EQ(all.at("dp"), "16");
  EXPECT_EQ(all.at("global-batch"), "96");
  EXPECT_EQ(settings_of(R"({"train_batch_size": "auto", "gradient_accumulation_steps": 3})").at("micro-batches"), "3");
}

TEST(DeepSpeedConfig, MistakesNameTheKey) {
  for (const auto& [text, words] :
       {std::pair{R"({"zero_optimization": {"stage": 4}})", "key 'stage'"},
        {R"({"train_batch_size": -1})", "key 'train_batch_size'"},
        {R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 3})",
         "a multiple of 3 = train_micro_batch_size_per_gpu 1 * gradient_accumulation_steps 3"},
        {R"({"bf16": {"enabled": true}, "fp16": {"enabled": true}})", "bf16 is enabled too"},
        {R"({"communication_data_type": "int8"})", "key 'communication_data_type'"},
        {"[", "ds.json"}}) {
    try {
      read_deepspeed_config(text, "ds.json");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace weft
