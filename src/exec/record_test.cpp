// A record as another program reads it: every field by its documented name (docs/oracle.md).
#include "exec/record.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/test_folder.hpp"

namespace weft {
namespace {

using nlohmann::json;
using test::error_of;
using test::ScratchFolder;

RunRecord small_record() {
  RunRecord record;
  record.model = {.name = "gpt",
                  .layers = 1,
                  .hidden = 4,
                  .heads = 2,
                  .kv_heads = 1,
                  .head_dim = 2,
                  .ffn = 8,
                  .vocab = 5,
                  .max_seq = 3,
                  .norm = NormKind::rms_norm,
                  .activation = Activation::swiglu,
                  .positions = Positions::rotary,
                  .latent = {},
                  .experts = {}};
  record.layout = {.dp = 2, .micro_batch = 1, .global_batch = 2, .seq = 3, .zero = 2, .clip_grad = 0.5};
  record.policy = "ddp";
  record.optimizer =
      AdamSettings{.learning_rate = 0.25, .beta1 = 0.5, .beta2 = 0.75, .epsilon = 1e-8, .weight_decay = 2};
  record.seed = 18446744073709551615U;
  record.losses = {1.0 / 3, 0.25};
  record.initial = {{"x", {1}, {1}}};
  record.gradients = {{"x", {1}, {2}}};
  record.final_weights = {{"x", {1}, {3}}};
  for (std::int64_t i = 0; i < 16; ++i) record.batches.push_back(i % 5);
  return record;
}

TEST(RunRecord, SaysAllThatAnOracleNeeds) {
  const ScratchFolder folder("record");
  write_record(folder.path() / "run", small_record());
  EXPECT_EQ(json::parse(folder.read("run/run.json")), json::parse(R"({
    "model": {"name": "gpt", "layers": 1, "hidden": 4, "heads": 2, "kv_heads": 1, "head_dim": 2, "ffn": 8, "vocab": 5,
              "max_seq": 3, "norm": "rms_norm", "activation": "swiglu", "positions": "rotary", "tied_embeddings": true,
              "linear_bias": true, "qkv_bias": false},
    "global_batch": 2, "micro_batch": 1, "seq": 3, "tp": 1, "cp": 1, "pp": 1, "vpp": 1, "schedule": "1f1b",
    "sequence_parallel": false, "recompute": "none", "attention": "flash", "data_ranks": 2, "ep": 1,
    "etp": 1, "zero": 2, "policy": "ddp",
    "optimizer": {"name": "adam", "lr": 0.25, "betas": [0.5, 0.75], "eps": 1e-8, "weight_decay": 2.0},
    "clip_grad": 0.5, "seed": 18446744073709551615, "steps": 2, "losses": [0.3333333333333333, 0.25]})"));
}

TEST(RunRecord, HoldsWeightsGradientsAndBatches) {
  const ScratchFolder folder("record_files");
  write_record(folder.path(), small_record());
  EXPECT_EQ(read_safetensors(folder.path() / "initial.safetensors")[0].data, std::vector<float>{1});
  EXPECT_EQ(read_safetensors(folder.path() / "gradients.safetensors")[0].data, std::vector<float>{2});
  EXPECT_EQ(read_safetensors(folder.path() / "final.safetensors")[0].data, std::vector<float>{3});
  const std::string bytes = folder.read("batches.bin");
  ASSERT_EQ(bytes.size(), 16U * 8);
  std::vector<std::int64_t> tokens(16);
  std::memcpy(tokens.data(), bytes.data(), bytes.size());
  EXPECT_EQ(tokens, small_record().batches);
}

TEST(RunRecord, NamesSgdAsTorchDoes) {
  const ScratchFolder folder("record_sgd");
  RunRecord record = small_record();
  record.optimizer = SgdSettings{.learning_rate = 0.5, .momentum = 0.25, .weight_decay = 0.125};
  write_record(folder.path(), record);
  EXPECT_EQ(json::parse(folder.read("run.json"))["optimizer"],
            json::parse(R"({"name": "sgd", "lr": 0.5, "momentum": 0.25, "weight_decay": 0.125})"));
}

TEST(RunRecord, NamesAFolderThatCannotBeMade) {
  const ScratchFolder folder("record_blocked");
  const std::string file = folder.write("file", "x");
  EXPECT_TRUE(error_of([&] { write_record(file, small_record()); }).starts_with(file + ": cannot be created"));
}

}  // namespace
}  // namespace weft
