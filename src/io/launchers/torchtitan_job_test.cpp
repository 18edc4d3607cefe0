// TorchTitan's configuration files, and the TOML that they are written in.
#include "io/launchers/torchtitan_job.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "io/launchers/toml_reader.hpp"

namespace weft {
namespace {

using Settings = std::map<std::string, std::string>;

Settings settings_of(const std::string& text) {
  Settings settings;
  for (const LaunchSetting& setting : read_torchtitan_config(text, "job.toml").settings) {
    settings[setting.flag] = setting.value;
  }
  return settings;
}

// The examples of toml.io's specification, as JSON.
TEST(Toml, ValuesOfEveryKind) {
  const auto parsed = parse_toml(
      "# a comment\ntitle = \"a \\\"quoted\\\" text\" # and another\nliteral = 'C:\\path'\n\n[table.inner]\n"
      "whole = 1_000\nhalf = -0.5\nlarge = 5e+22\nyes = true\nlimit = inf\n"
      "nested = [ [1, 2], [\"a\", 'b'],\n  [3], # in the middle\n]\n\"quoted key\" = +7\n",
      "a.toml");
  EXPECT_EQ(parsed, nlohmann::json::parse(R"({"title": "a \"quoted\" text", "literal": "C:\\path",
      "table": {"inner": {"whole": 1000, "half": -0.5, "large": 5e22, "yes": true, "limit": "inf",
                          "nested": [[1, 2], ["a", "b"], [3]], "quoted key": 7}}})"));
}

TEST(Toml, MistakesNameTheLine) {
  for (const auto& [text, words] : {std::pair{"a = 1\nb = \n", "line 2"},
                                    {"a = 1\na = 2\n", "line 2: key 'a' is given twice"},
                                    {"a = \"text\n", "line 1"},
                                    {"[a\n", "line 1"},
                                    {"a = [1, 2\n", "a comma or ]"},
                                    {"a = 1 b = 2\n", "the end of the line"},
                                    {"a = 1979-05-27\n", "a number"},
                                    {"a = 1\n[a]\n", "a table"},
                                    {"= 1\n", "a key"}}) {
    try {
      parse_toml(text, "a.toml");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  }
}

TEST(TorchTitanConfig, AnFsdpJobWithTensorParallelism) {
  EXPECT_EQ(settings_of("[training]\nlocal_batch_size = 2\nseq_len = 8192\nmax_norm = 0.5\n"
                        "[parallelism]\ntensor_parallel_degree = 8\ndata_parallel_replicate_degree = 2\n"
                        "[activation_checkpoint]\nmode = \"full\"\n"),
            (Settings{{"tp", "8"},
                      {"sequence-parallel", "true"},
                      {"zero", "3"},
                      {"policy", "fsdp"},
                      {"zero-replicas", "2"},
                      {"micro-batch", "2"},
                      {"seq", "8192"},
                      {"precision", "bf16"},
                      {"grad-dtype", "fp32"},
                      {"clip-grad", "0.5"},
                      {"recompute", "full"}}));
}

// A pipeline is given 16 sequences on each of 4 data-parallel ranks.
TEST(TorchTitanConfig, APipelineOfNamedModules) {
  const Settings settings = settings_of(
      "[training]\nlocal_batch_size = 16\n[parallelism]\npipeline_parallel_degree = 2\ndata_parallel_shard_degree = 4\n"
      "pipeline_parallel_schedule = \"Interleaved1F1B\"\npipeline_parallel_microbatch_size = 2\n"
      "module_fqns_per_model_part = [[\"tok_embeddings\", \"layers.0\"], [\"layers.1\", \"layers.2\"], [\"layers.3\"], "
      "[\"layers.4\", \"norm\", \"output\"]]\n");
  EXPECT_EQ(settings.at("vpp"), "2");
  EXPECT_EQ(settings.at("stage-layers"), "1,2,1,1");
  EXPECT_EQ(settings.at("schedule"), "interleaved");
  EXPECT_EQ(settings.at("micro-batch"), "2");
  EXPECT_EQ(settings.at("global-batch"), "64");
  EXPECT_EQ(settings.at("zero"), "2");  // with a pipeline parameters stay gathered by default
}

// What Weft writes for its own schedules it reads again; several stages of a rank are two by default.
TEST(TorchTitanConfig, SchedulesByTheirNames) {
  const auto settings = [](const std::string& schedule) {
    return settings_of("[parallelism]\npipeline_parallel_degree = 2\n" +
                       (schedule.empty() ? "" : "pipeline_parallel_schedule = \"" + schedule + "\"\n"));
  };
  EXPECT_EQ(settings("").at("schedule"), "1f1b");
  EXPECT_EQ(settings("ZBVZeroBubble").at("schedule"), "zbv");
  EXPECT_EQ(settings("DualPipeV").at("schedule"), "dualpipev");
  EXPECT_EQ(settings("interleaved1f1b").at("schedule"), "interleaved");
  for (const char* several : {"Interleaved1F1B", "LoopedBFS", "ZBVZeroBubble", "InterleavedZeroBubble"}) {
    EXPECT_EQ(settings(several).at("vpp"), "2") << several;
  }
  EXPECT_FALSE(settings("GPipe").contains("vpp"));
  EXPECT_THROW(settings("Foo"), Error);
}

TEST(TorchTitanConfig, RanksAreThoseOfTheDegrees) {
  EXPECT_EQ(settings_of("[parallelism]\ndata_parallel_shard_degree = 4\ndata_parallel_replicate_degree = 2\n").at("dp"),
            "8");
  EXPECT_FALSE(settings_of("[parallelism]\ndata_parallel_shard_degree = -1\n").contains("dp"));
  // 8 sequences in micro-batches of 2, whatever the number of ranks.
  EXPECT_EQ(settings_of("[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_microbatch_size = 2\n")
                .at("micro-batches"),
            "4");
}

TEST(TorchTitanConfig, ConvertersSayTheProducts) {
  EXPECT_EQ(settings_of("[model]\nconverters = [\"quantize.linear.float8\"]\n").at("products"), "fp8");
  EXPECT_FALSE(settings_of("[float8]\nenable_fsdp_float8_all_gather = true\n").contains("products"));
  const LaunchJob job = read_torchtitan_config("[model]\nconverters = [\"fp3\"]\n", "job.toml");
  EXPECT_TRUE(
      std::any_of(job.ignored.begin(), job.ignored.end(), [](const auto& i) { return i.flag == "model.converters"; }));
}

TEST(TorchTitanConfig, WhatHasNoEffectIsNamed) {
  const LaunchJob job = read_torchtitan_config(
      "[model]\nname = \"llama3\"\n[metrics]\nlog_freq = 1\n[parallelism]\npipeline_parallel_degree = 2\n"
      "pipeline_parallel_schedule = \"InterleavedZeroBubble\"\ndisable_loss_parallel = true\n",
      "job.toml");
  for (const char* flag :
       {"model", "metrics", "parallelism.pipeline_parallel_schedule", "parallelism.disable_loss_parallel"}) {
    EXPECT_TRUE(std::any_of(job.ignored.begin(), job.ignored.end(), [&](const auto& i) { return i.flag == flag; }))
        << flag;
  }
  try {
    read_torchtitan_config("[parallelism]\ntensor_parallel_degree = \"eight\"\n", "job.toml");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("job.toml: [parallelism]: key 'tensor_parallel_degree'"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace weft
