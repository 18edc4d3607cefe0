// Every format accounts for all that a plan says, and writes nothing that its target does not know.
#include "io/export/export_format.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "base/error.hpp"
#include "base/text.hpp"
#include "collective/verify/verify_program.hpp"
#include "cost/profile.hpp"
#include "io/export/test_export.hpp"
#include "io/msccl/msccl_xml.hpp"
#include "io/userbuffer_config.hpp"

namespace weft {
namespace {

using test::export_case;
using test::ExportCase;

const ExportCase kCases[] = {
    {"llama2-7b",
     4,
     "dgx-a100:1",
     {.tp = 2, .pp = 2, .vpp = 2, .zero = 1, .sequence_parallel = true, .schedule = PipelineSchedule::interleaved},
     "megatron-param"},
    {"gpt2", 4, "dgx-a100:1", {}, "ddp"},
    {"llama2-7b", 4, "dgx-a100:2", {.zero = 3}, "fsdp"},
    {"llama2-7b", 4, "dgx-a100:2", {.zero = 2, .recompute = Recompute::full}, "fsdp"},
    {"mixtral-8x7b", 4, "dgx-a100:1", {.tp = 2, .ep = 4, .etp = 1, .sequence_parallel = true}, "serial"},
    {"gpt2", 4, "dgx-a100:1", {.pp = 4, .slice_tokens = {64, 40, 24}}, "serial"},
};

std::string refusal(const ExportCase& example, const ExportFormat& format) {
  try {
    export_case(example, format);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// A format carries a feature or lists it; a plan that it refuses names the format that takes it.
TEST(ExportFormat, EveryFeatureOfAPlanIsCarriedOrListed) {
  for (const ExportCase& example : kCases) {
    const std::vector<PlanFeature> features = features_of(test::plan_of(example));
    for (const ExportFormat& format : export_formats()) {
      SCOPED_TRACE(std::string(format.name) + " of " + example.policy);
      if (const std::string words = refusal(example, format); !words.empty()) {
        EXPECT_TRUE(words.starts_with("--to ")) << words;
        continue;
      }
      const Exported exported = export_case(example, format);
      ASSERT_FALSE(exported.files.empty());
      EXPECT_FALSE(exported.files.front().text.empty());
      EXPECT_LE(exported.left_out.size(), features.size());
      if (format.comment.empty()) continue;
      const std::string text = std::regex_replace(exported.files.front().text, std::regex("\n#  "), " ");
      for (const std::string& sentence : exported.left_out) {
        EXPECT_NE(text.find(sentence), std::string::npos) << sentence;
      }
    }
  }
}

TEST(ExportFormat, AnUnknownFormatGetsTheNearestName) {
  try {
    export_format("megatorn");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'megatron'"), std::string::npos) << error.what();
  }
}

// Keys of deepspeed/runtime/config.py and zero/config.py of February 2025.
const std::set<std::string> kDeepSpeedKeys{"train_batch_size",
                                           "train_micro_batch_size_per_gpu",
                                           "gradient_accumulation_steps",
                                           "communication_data_type",
                                           "prescale_gradients",
                                           "gradient_predivide_factor",
                                           "gradient_clipping",
                                           "wall_clock_breakdown",
                                           "comms_logger",
                                           "flops_profiler",
                                           "autotuning",
                                           "fp16",
                                           "bf16",
                                           "zero_optimization",
                                           "pipeline",
                                           "activation_checkpointing",
                                           "aio"};
const std::set<std::string> kDeepSpeedZeroKeys{"stage",
                                               "contiguous_gradients",
                                               "reduce_scatter",
                                               "reduce_bucket_size",
                                               "use_multi_rank_bucket_allreduce",
                                               "allgather_partitions",
                                               "allgather_bucket_size",
                                               "overlap_comm",
                                               "sub_group_size",
                                               "stage3_prefetch_bucket_size",
                                               "stage3_param_persistence_threshold",
                                               "stage3_model_persistence_threshold",
                                               "stage3_max_live_parameters",
                                               "stage3_max_reuse_distance",
                                               "stage3_gather_16bit_weights_on_model_save",
                                               "stage3_module_granularity_threshold",
                                               "stage3_use_all_reduce_for_fetch_params",
                                               "round_robin_gradients",
                                               "zero_hpz_partition_size",
                                               "zero_quantized_weights",
                                               "zero_quantized_nontrainable_weights",
                                               "zero_quantized_gradients",
                                               "zeropp_loco_param",
                                               "mics_shard_size",
                                               "mics_hierarchical_params_gather",
                                               "offload_param",
                                               "offload_optimizer"};

TEST(ExportFormat, DeepSpeedKnowsEveryKeyAndItsBatchesMultiply) {
  for (const ExportCase& example : kCases) {
    const auto config = nlohmann::json::parse(export_case(example, export_format("deepspeed")).files.front().text);
    for (const auto& [key, value] : config.items()) EXPECT_TRUE(kDeepSpeedKeys.contains(key)) << key;
    for (const auto& [key, value] : config.at("zero_optimization").items()) {
      EXPECT_TRUE(kDeepSpeedZeroKeys.contains(key)) << key;
    }
    // DeepSpeed asserts this product over the data-parallel world.
    EXPECT_EQ(config.at("train_batch_size").get<std::int64_t>(),
              config.at("train_micro_batch_size_per_gpu").get<std::int64_t>() *
                  config.at("gradient_accumulation_steps").get<std::int64_t>() * test::plan_of(example).layout.dp);
  }
}

// A layer of llama2-7b has 4 h^2 of attention, 3 h ffn and two norms of h: 202,383,360 parameters.
TEST(ExportFormat, DeepSpeedPrefetchesTheParametersOfOneLayer) {
  const auto config = nlohmann::json::parse(export_case(kCases[2], export_format("deepspeed")).files.front().text);
  const auto& zero = config.at("zero_optimization");
  EXPECT_EQ(zero.at("stage"), 3);
  EXPECT_EQ(zero.at("stage3_prefetch_bucket_size"), 4 * 4096 * 4096 + 3 * 4096 * 11008 + 2 * 4096);
  EXPECT_EQ(zero.at("stage3_max_live_parameters"), 2 * 202'383'360);
}

// Keys of torchtitan's job_config.py of January 2026, the last that was read from TOML.
const std::set<std::string> kTorchTitanKeys{"training.local_batch_size",
                                            "training.global_batch_size",
                                            "training.seq_len",
                                            "training.max_norm",
                                            "training.mixed_precision_param",
                                            "training.mixed_precision_reduce",
                                            "parallelism.data_parallel_replicate_degree",
                                            "parallelism.data_parallel_shard_degree",
                                            "parallelism.fsdp_reshard_after_forward",
                                            "parallelism.tensor_parallel_degree",
                                            "parallelism.enable_async_tensor_parallel",
                                            "parallelism.pipeline_parallel_degree",
                                            "parallelism.module_fqns_per_model_part",
                                            "parallelism.pipeline_parallel_schedule",
                                            "parallelism.pipeline_parallel_microbatch_size",
                                            "parallelism.context_parallel_degree",
                                            "parallelism.expert_parallel_degree",
                                            "parallelism.expert_tensor_parallel_degree",
                                            "activation_checkpoint.mode"};

TEST(ExportFormat, TorchTitanKnowsEveryKeyOfTheFileAndItsRanksMultiply) {
  for (const ExportCase& example : kCases) {
    std::map<std::string, std::string> values;
    std::string section;
    for (const std::string& line :
         split(export_case(example, export_format("torchtitan-toml")).files.front().text, '\n')) {
      if (line.starts_with("[")) section = line.substr(1, line.find(']') - 1);
      const std::size_t at = line.find(" = ");
      if (!line.starts_with("#") && at != std::string::npos)
        values[section + "." + line.substr(0, at)] = line.substr(at + 3);
    }
    for (const auto& [key, value] : values) EXPECT_TRUE(kTorchTitanKeys.contains(key)) << key;
    std::int64_t ranks = 1;
    for (const char* key : {"data_parallel_replicate_degree", "data_parallel_shard_degree", "tensor_parallel_degree",
                            "context_parallel_degree", "pipeline_parallel_degree"}) {
      ranks *= std::stoll(values.at(std::string("parallelism.") + key));
    }
    EXPECT_EQ(ranks, test::plan_of(example).layout.devices());
  }
}

// Fields of TrainingConfig, ParallelismConfig and CompileConfig in torchtitan/config/configs.py, and of Trainer.Config,
// of August 2026.
const std::set<std::string> kTorchTitanFields{"training.num_tokens_per_microbatch_per_dp_rank",
                                              "training.num_tokens_per_train_step",
                                              "training.max_context_length",
                                              "training.max_norm",
                                              "training.mixed_precision_param",
                                              "training.mixed_precision_reduce",
                                              "parallelism.data_parallel_replicate_degree",
                                              "parallelism.data_parallel_shard_degree",
                                              "parallelism.fsdp_reshard_after_forward",
                                              "parallelism.tensor_parallel_degree",
                                              "parallelism.enable_sequence_parallel",
                                              "parallelism.pipeline_parallel_degree",
                                              "parallelism.module_fqns_per_model_part",
                                              "parallelism.pipeline_parallel_schedule",
                                              "parallelism.num_pp_microbatches",
                                              "parallelism.context_parallel_degree",
                                              "parallelism.expert_parallel_degree",
                                              "compile.enable",
                                              "compile.enable_async_tensor_parallel",
                                              "activation_checkpoint"};

TEST(ExportFormat, TorchTitanKnowsEveryFieldOfTheFunctionAndItsTokensMultiply) {
  for (const ExportCase& example : kCases) {
    const std::string text = export_case(example, export_format("torchtitan")).files.front().text;
    std::map<std::string, std::string> values;
    const std::regex assignment("    config\\.([a-z_.]+) = (.+)");
    for (const std::string& line : split(text, '\n')) {
      std::smatch match;
      if (std::regex_match(line, match, assignment)) values[match[1]] = match[2];
    }
    EXPECT_GE(values.size(), 12U) << text;
    for (const auto& [field, value] : values) EXPECT_TRUE(kTorchTitanFields.contains(field)) << field;
    const auto number = [&](const std::string& field) { return std::stoll(values.at(field)); };
    const Layout layout = test::plan_of(example).layout;
    // A step is so many tokens of every data-parallel rank's micro-batches.
    EXPECT_EQ(number("training.num_tokens_per_train_step"), number("training.num_tokens_per_microbatch_per_dp_rank") *
                                                                layout.micro_batches() *
                                                                number("parallelism.data_parallel_replicate_degree") *
                                                                number("parallelism.data_parallel_shard_degree"));
    if (layout.pp > 1) {
      EXPECT_EQ(number("parallelism.num_pp_microbatches"), layout.micro_batches());
      // Every module once: the embedding, each layer, the last norm and the head.
      std::size_t layers = 0;
      const std::regex layer("\"layers\\.\\d+\"");
      for (std::sregex_iterator it(text.begin(), text.end(), layer), end; it != end; ++it) ++layers;
      EXPECT_EQ(layers, 4U);
      EXPECT_NE(text.find("\"norm\", \"lm_head\"]"), std::string::npos) << text;
    }
  }
}

TEST(ExportFormat, DdpCutsTheBucketsOfThePlan) {
  // The first bucket of gpt2 is closed by 1 MiB and the others by 25 MiB, which DDP does by itself.
  const std::string text = export_case(kCases[1], export_format("ddp")).files.front().text;
  EXPECT_NE(text.find("ARGUMENTS = {}"), std::string::npos) << text;
  ExportCase other = kCases[1];
  other.options.bucket_mib = 10;
  const std::string given = export_case(other, export_format("ddp")).files.front().text;
  std::smatch match;
  ASSERT_TRUE(std::regex_search(given, match, std::regex("\"bucket_cap_mb\": (\\d+) / 2\\*\\*20"))) << given;
  // A block of gpt2 has a bias, a weight, ... of at most 9.4 MB, so a bucket of 10 MiB may be up to twice as large.
  EXPECT_GE(std::stoll(match[1]), 10 * 1024 * 1024);
  EXPECT_LT(std::stoll(match[1]), 20 * 1024 * 1024);
}

TEST(ExportFormat, Fsdp2HasAGroupForEveryLayerAndGathersOneAhead) {
  const std::string text = export_case(kCases[2], export_format("fsdp2")).files.front().text;
  for (const char* line : {"RESHARD_AFTER_FORWARD = True", "PREFETCH = 1 ", "[[0], [1], [2], [3]],",
                           "MESH = {\"replicate\": 1, \"shard\": 16}", "PARAM_DTYPE = torch.bfloat16"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
  EXPECT_NE(export_case(kCases[3], export_format("fsdp2")).files.front().text.find("RESHARD_AFTER_FORWARD = False"),
            std::string::npos);
  EXPECT_NE(refusal(kCases[1], export_format("fsdp2")).find("--zero 0"), std::string::npos);
}

// The names and methods of Transformer Engine's initialize_ub. A tp of 2 exchanges gathers in 2 parts.
TEST(ExportFormat, TransformerEngineKnowsEveryProductAndMethod) {
  ExportCase example{"llama2-7b", 2, "dgx-a100:1", {.tp = 2, .sequence_parallel = true}, "megatron-grad"};
  example.options.tp_comm_overlap = true;
  example.seq = 4096;
  const std::map<std::string, std::string> methods{{"qkv_fprop", "ring_exchange"},  {"fc1_fprop", "ring_exchange"},
                                                   {"proj_dgrad", "ring_exchange"}, {"fc2_dgrad", "ring_exchange"},
                                                   {"proj_fprop", "pipeline"},      {"fc2_fprop", "pipeline"},
                                                   {"qkv_dgrad", "bulk"},           {"qkv_wgrad", "bulk"},
                                                   {"fc1_dgrad", "bulk"},           {"fc1_wgrad", "bulk"}};
  const std::string text = export_case(example, export_format("te-userbuffers")).files.front().text;
  const std::regex product("(\\w+):\n  method: (\\w+)\n");
  std::size_t products = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), product), end; it != end; ++it, ++products) {
    EXPECT_EQ(methods.at((*it)[1]), (*it)[2]) << (*it)[0];
  }
  EXPECT_GE(products, 4U) << text;
  // Our reader of such files, which restates none of the writer, finds the SMs of Transformer Engine's defaults.
  EXPECT_EQ(read_userbuffer_config(text, "ub.yaml"), default_userbuffers());
  EXPECT_NE(refusal(kCases[1], export_format("te-userbuffers")).find("--tp-comm-overlap"), std::string::npos);
}

// With -1 channels NVIDIA's example plugin leaves a collective one channel. NCCL takes 24 inside a DGX A100, and two
// for every one of its eight NICs between two of them.
TEST(ExportFormat, NcclTunerSaysAsManyChannelsAsNcclTakes) {
  const auto channels = [](const ExportCase& example) {
    std::set<std::string> found;
    for (const std::string& line : split(export_case(example, export_format("nccl-tuner")).files.front().text, '\n')) {
      if (!line.empty() && !line.starts_with("#")) found.insert(split(line, ',').at(5));
    }
    return found;
  };
  EXPECT_EQ(channels({"gpt2", 4, "dgx-a100:1", {}, "ddp"}), std::set<std::string>{"24"});
  EXPECT_EQ(channels({"gpt2", 4, "dgx-a100:2", {}, "ddp"}), std::set<std::string>{"16"});
  // Data-parallel ranks that have a NIC of their node to themselves.
  EXPECT_TRUE(channels({"llama2-7b", 4, "dgx-a100:2", {.tp = 8}, "ddp"}).contains("2"));
  EXPECT_NE(refusal({"gpt2", 4, "local:4", {}, "ddp"}, export_format("nccl-tuner")).find("channels"),
            std::string::npos);
}

TEST(ExportFormat, SaysWhereCollectivesWithoutThreadBlocksFallBack) {
  for (const std::int32_t blocks : {0, 4}) {
    Plan plan = test::plan_of(kCases[0]);
    plan.thread_blocks = blocks;
    const WholePlan whole(std::move(plan));
    const Exported exported = export_plan(whole, default_profile(), export_format("megatron-nccl"));
    const bool says = std::any_of(exported.warnings.begin(), exported.warnings.end(), [](const std::string& warning) {
      return warning.find("zero-CTA collectives (NCCL_CTA_POLICY) fall back to CTAs") != std::string::npos;
    });
    EXPECT_EQ(says, blocks > 0);
  }
}

// MSCCL's own rules are those of our reader (docs/msccl-xml.md), and the verifier proves what is read.
TEST(ExportFormat, MscclFilesAreReadAndProven) {
  if (!can_read_msccl_xml()) GTEST_SKIP() << "built without pugixml";
  const Exported exported = export_case({"gpt2", 2, "local:4", {}, "ddp"}, export_format("msccl"));
  for (const ExportedFile& file : exported.files) {
    EXPECT_FALSE(verify_program(read_msccl_xml(file.text, file.name)).violation) << file.name;
  }
}

}  // namespace
}  // namespace weft
