#include "graph/layout.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "base/error.hpp"
#include "graph/test_graphs.hpp"

namespace weft {
namespace {

std::string message(const Layout& layout, const Transformer& model, std::int64_t devices) {
  try {
    validate(layout, model, devices);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

struct BadLayout {
  std::function<void(Layout&)> change;
  std::vector<std::string> words;  // the flag, the value, what is allowed
};

void expect_rejected(const Transformer& model, const Layout& good, std::int64_t devices,
                     const std::vector<BadLayout>& cases) {
  ASSERT_EQ(message(good, model, devices), "accepted");
  for (const BadLayout& bad : cases) {
    Layout layout = good;
    bad.change(layout);
    const std::string text = message(layout, model, devices);
    EXPECT_NE(text, "accepted") << bad.words.front();
    for (const std::string& word : bad.words) EXPECT_NE(text.find(word), std::string::npos) << word << " in: " << text;
  }
}

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

// llama2-7b: 32 layers, 32 heads, ffn 11008.
const Layout kGood{.tp = 4, .cp = 2, .dp = 4, .pp = 2, .micro_batch = 2, .global_batch = 16, .seq = 4096};

TEST(LayoutValidation, NamesTheFlagAndTheValue) {
  expect_rejected(model_preset("llama2-7b"), kGood, 64,
                  {
                      {[](Layout& l) { l.tp = 0; }, {"--tp 0", "at least 1"}},
                      {[](Layout& l) { l.pp = -3; }, {"--pp -3", "at least 1"}},
                      {[](Layout& l) { l.dp = 0; }, {"--dp 0"}},
                      {[](Layout& l) { l.cp = 0; }, {"--cp 0"}},
                      {[](Layout& l) { l.vpp = 0; }, {"--vpp 0"}},
                      {[](Layout& l) { l.ep = 0; }, {"--ep 0"}},
                      {[](Layout& l) { l.etp = 0; }, {"--etp 0"}},
                      {[](Layout& l) { l.dp = 3; }, {"--pp 2 * --dp 3 * --cp 2 * --tp 4 = 48", "64 devices"}},
                      {[](Layout& l) { l.dp = kHuge; }, {"--dp 9223372036854775807", "at most"}},
                      {[](Layout& l) { l.tp = l.dp = l.pp = 1'000'000'000; }, {"--tp 1000000000", "63 bits"}},
                      {[](Layout& l) { l.zero = 4; }, {"--zero 4", "0..3"}},
                      {[](Layout& l) { l.zero = -1; }, {"--zero -1"}},
                      {[](Layout& l) { l.clip_grad = -1; }, {"--clip-grad -1"}},
                      {[](Layout& l) { l.clip_grad = std::numeric_limits<double>::quiet_NaN(); }, {"--clip-grad nan"}},
                      {[](Layout& l) { l.clip_grad = std::numeric_limits<double>::infinity(); }, {"--clip-grad inf"}},
                      {[](Layout& l) { l.precision = ElementType::fp8; }, {"--precision fp8", "bf16"}},
                      {[](Layout& l) { l.grad_dtype = ElementType::fp8; }, {"--grad-dtype fp8"}},
                      {[](Layout& l) { l.mesh_order = {Axis::tp, Axis::dp, Axis::pp}; }, {"--mesh-order", "once"}},
                      {[](Layout& l) { l.mesh_order[0] = Axis::dp; }, {"--mesh-order", "tp"}},
                      {[](Layout& l) { l.mesh_order[0] = Axis::ep; }, {"--mesh-order", "tp"}},
                  });
}

TEST(LayoutValidation, OfShards) {
  Layout good = kGood;
  good.zero = 1;
  good.zero_shards = 4;  // of 8 ranks that hold the same parameters
  expect_rejected(
      model_preset("llama2-7b"), good, 64,
      {
          {[](Layout& l) { l.zero = 0; }, {"--zero-shards 4", "--zero above 0"}},
          {[](Layout& l) { l.zero_shards = 3; }, {"--zero-shards 3", "does not divide", "--dp 4 * --cp 2 = 8 ranks"}},
          {[](Layout& l) { l.zero_shards = 16; }, {"--zero-shards 16", "8 ranks"}},
          {[](Layout& l) { l.zero_shards = -1; }, {"--zero-shards -1", "at least 1"}},
      });
  for (const std::int64_t shards : {1, 2, 8}) {
    good.zero_shards = shards;
    EXPECT_EQ(message(good, model_preset("llama2-7b"), 64), "accepted") << shards;
  }
  const Layout experts{.dp = 8, .ep = 4, .global_batch = 8, .seq = 64, .zero = 1, .zero_shards = 4};
  EXPECT_EQ(message(experts, model_preset("mixtral-8x7b"), 8),
            "--zero-shards 4: is for models without experts, and mixtral-8x7b has 8");
}

TEST(LayoutValidation, OfLayerGroups) {
  const Layout good{.dp = 4, .global_batch = 32, .seq = 64, .zero = 3, .layer_group = 4};
  expect_rejected(
      model_preset("llama2-7b"), good, 4,
      {
          {[](Layout& l) { l.layer_group = 0; }, {"--layer-group 0", "at least 1"}},
          {[](Layout& l) { l.layer_group = 3; }, {"--layer-group 3", "does not divide the 8 micro-batches"}},
          {[](Layout& l) { l.zero = 1; }, {"--layer-group 4", "--zero 2 or 3", "--zero 1"}},
          {[](Layout& l) {
             l.pp = 2;
             l.dp = 2;
           },
           {"--layer-group 4", "--pp 1", "breadth-first"}},
      });
  EXPECT_EQ(message(good, model_preset("llama2-7b"), 4), "accepted");
  EXPECT_EQ(good.layer_groups(), 2);
  EXPECT_EQ(message(good, model_preset("mixtral-8x7b"), 4),
            "--layer-group 4: is for models without experts, and mixtral-8x7b has 8");
}

TEST(LayoutValidation, OfSlices) {
  const Layout good{.tp = 2, .dp = 2, .pp = 2, .global_batch = 4, .seq = 64, .zero = 1, .slice_tokens = {32, 20, 12}};
  expect_rejected(model_preset("llama2-7b"), good, 8,
                  {
                      {[](Layout& l) { l.slice_tokens = {64}; }, {"--slices", "2 or more"}},
                      {[](Layout& l) { l.slice_tokens = {32, 0, 32}; }, {"--slices", "0 tokens", "1..64"}},
                      {[](Layout& l) { l.slice_tokens = {32, 16}; }, {"--slices", "sums to 48", "--seq is 64"}},
                      {[](Layout& l) {
                         l.sequence_parallel = true;
                         l.slice_tokens = {33, 31};
                       },
                       {"--slices", "33 tokens", "--tp 2"}},
                      {[](Layout& l) {
                         l.cp = 2;
                         l.dp = 1;
                         l.slice_tokens = {33, 31};
                       },
                       {"--slices", "33 tokens", "--cp 2"}},
                      {[](Layout& l) {
                         l.pp = 1;
                         l.dp = 4;
                       },
                       {"--slices", "--pp above 1"}},
                      {[](Layout& l) {
                         l.schedule = PipelineSchedule::v_half;
                         l.vpp = 2;
                       },
                       {"--slices", "zb-h2", "v-half"}},
                      {[](Layout& l) { l.micro_batch = 2; }, {"--slices", "--micro-batch 1, not 2"}},
                      {[](Layout& l) { l.zero = 3; }, {"--slices", "--zero 0, 1 and 2, not 3"}},
                  });
  EXPECT_EQ(good.slice(1), (ElementRange{32, 52}));
  Transformer mixture = model_preset("mixtral-8x7b");
  Layout of_experts = good;
  of_experts.tp = 1;
  of_experts.dp = 4;
  for (const GateOrder order : {GateOrder::position, GateOrder::gshard, GateOrder::probs}) {
    for (const double factor : {0.0, 1.25, 4.0}) {  // with a factor of 8 / 2 there is room for all
      mixture.experts->gate_order = order;
      mixture.experts->capacity_factor = factor;
      const std::string said = message(of_experts, mixture, 8);
      if (order == GateOrder::position || factor != 1.25) {
        EXPECT_EQ(said, "accepted");
      } else {
        EXPECT_NE(said.find("--slices: --token-drop-policy"), std::string::npos) << said;
        EXPECT_NE(said.find("--capacity-factor 1.25"), std::string::npos) << said;
      }
    }
  }
}

TEST(LayoutValidation, OfBatches) {
  expect_rejected(
      model_preset("llama2-7b"), kGood, 64,
      {
          {[](Layout& l) { l.micro_batch = 0; }, {"--micro-batch 0"}},
          {[](Layout& l) { l.global_batch = 0; }, {"--global-batch 0"}},
          {[](Layout& l) { l.global_batch = 12; }, {"--global-batch 12", "--micro-batch 2", "--dp 4"}},
          {[](Layout& l) { l.seq = 0; }, {"--seq 0"}},
          {[](Layout& l) { l.seq = 4095; }, {"--cp 2", "--seq 4095"}},
          {[](Layout& l) { l.seq = 4098, l.sequence_parallel = true; }, {"--tp 4", "2049", "--sequence-parallel"}},
          {[](Layout& l) { l.seq = kHuge; }, {"--seq 9223372036854775807", "at most"}},
          {[](Layout& l) { l.micro_batch = 250'000'000, l.global_batch = 1'000'000'000, l.seq = 1'000'000'000; },
           {"--micro-batch 250000000", "--seq 1000000000", "63 bits"}},
          {[](Layout& l) { l.seq = 1'000'000'000, l.attention = AttentionKernel::unfused; },
           {"--seq 1000000000", "--attention unfused", "63 bits"}},
      });
  expect_rejected(model_preset("gpt2"), {.seq = 1024}, 1,
                  {{[](Layout& l) { l.seq = 1025; }, {"--seq 1025", "1024", "gpt2"}}});
}

TEST(LayoutValidation, OfModelsTooLargeToCount) {
  Transformer wide = model_preset("llama2-7b");
  wide.hidden = wide.head_dim = wide.heads = wide.kv_heads = 1;
  wide.vocab = kHuge / 4;
  EXPECT_NE(message({.seq = 64}, wide, 1).find(fmt::format("--vocab {}", wide.vocab)), std::string::npos);
}

TEST(LayoutValidation, AcceptsOnlySizesThatTheGraphCanHold) {
  // The longest sequence that is accepted; a sanitizer would catch an overflow.
  for (const char* name : {"llama2-70b", "mixtral-8x7b", "deepseek-v3"}) {
    const Transformer model = test::with_layers(name, 4);
    EXPECT_NO_THROW(test::build(model, "local:1", {.micro_batch = 100, .seq = 1'000'000'000})) << name;
    EXPECT_NO_THROW(test::build(model, "local:1", {.seq = 40'000'000, .attention = AttentionKernel::unfused})) << name;
  }
}

TEST(LayoutValidation, OfTensorParallelism) {
  Layout good = kGood;
  good.seq = 4080;  // divides by 3 and 5 too
  expect_rejected(model_preset("llama2-7b"), good, 64,
                  {{[](Layout& l) { l.tp = 1, l.dp = 16, l.global_batch = 32, l.sequence_parallel = true; },
                    {"--sequence-parallel", "--tp"}}});
  const Transformer llama = model_preset("llama2-7b");
  EXPECT_NE(message({.tp = 3, .seq = 4096}, llama, 3).find("--tp 3"), std::string::npos);
  EXPECT_NE(message({.tp = 3, .seq = 4096}, llama, 3).find("32 attention heads"), std::string::npos);
  Transformer odd = llama;
  odd.ffn = 11009;
  EXPECT_NE(message({.tp = 2, .seq = 4096}, odd, 2).find("--tp 2"), std::string::npos);
  EXPECT_NE(message({.tp = 2, .seq = 4096}, odd, 2).find("11009"), std::string::npos);
  Transformer grouped = llama;
  grouped.heads = 48;
  grouped.kv_heads = 12;
  EXPECT_NE(message({.tp = 8, .seq = 4096}, grouped, 8).find("12 key/value heads"), std::string::npos);
  grouped.ffn = 24 * 512;  // a multiple of the key/value heads repeats them
  EXPECT_EQ(message({.tp = 24, .seq = 4096}, grouped, 24), "accepted");
}

TEST(LayoutValidation, OfPipelines) {
  using enum PipelineSchedule;
  expect_rejected(
      model_preset("llama2-7b"),
      {.pp = 4, .vpp = 2, .global_batch = 8, .seq = 64, .schedule = interleaved, .stage_layers = {}}, 4,
      {
          {[](Layout& l) { l.vpp = 1; }, {"--schedule interleaved", "--vpp"}},
          {[](Layout& l) { l.schedule = one_f_one_b; }, {"--vpp 2", "1f1b"}},
          {[](Layout& l) { l.schedule = gpipe; }, {"--vpp 2", "gpipe"}},
          {[](Layout& l) { l.global_batch = 6; }, {"6 micro-batches", "--pp 4"}},
          {[](Layout& l) { l.pp = 1, l.dp = 4; }, {"--vpp 2", "--pp above 1"}},
          {[](Layout& l) { l.vpp = 9; }, {"--pp 4 * --vpp 9", "32 layers"}},
          {[](Layout& l) { l.schedule = searched; }, {"--vpp 2", "auto"}},
          {[](Layout& l) { l.schedule = searched_loops, l.vpp = 1; }, {"--schedule auto-loops", "--vpp above 1"}},
          {[](Layout& l) { l.schedule = searched_waves, l.vpp = 4; }, {"--schedule auto-waves", "--vpp 2", "not 4"}},
          {[](Layout& l) { l.stage_layers = {16, 16}; }, {"--stage-layers", "2 numbers", "8 model chunks"}},
          {[](Layout& l) { l.stage_layers = {4, 4, 4, 4, 4, 4, 4, 5}; }, {"--stage-layers", "33", "32 layers"}},
          {[](Layout& l) { l.stage_layers = {0, 8, 4, 4, 4, 4, 4, 4}; }, {"--stage-layers", "0 is not in 1..32"}},
          {[](Layout& l) { l.stage_layers = {kHuge, 1, 1, 1, 1, 1, 1, 1}; }, {"--stage-layers", "1..32"}},
      });
}

TEST(LayoutValidation, OfRecomputedLayers) {
  expect_rejected(
      model_preset("llama2-7b"),
      {.pp = 4, .global_batch = 8, .seq = 64, .recompute = Recompute::full, .recompute_layers = {8, 2, 0, 1}}, 4,
      {
          {[](Layout& l) { l.recompute = Recompute::none; }, {"--recompute-layers", "full or local", "none"}},
          {[](Layout& l) { l.recompute = Recompute::selective; }, {"--recompute-layers", "not selective"}},
          {[](Layout& l) { l.recompute_layers = {0}; }, {"--recompute-layers", "0 is not in 1..32"}},
          {[](Layout& l) { l.recompute_layers = {33}; }, {"--recompute-layers", "33 is not in 1..32"}},
          {[](Layout& l) { l.recompute_layers = {1, 2}; }, {"--recompute-layers", "2 numbers", "4 model"}},
          {[](Layout& l) { l.recompute_layers = {0, 0, 0, 0}; }, {"--recompute-layers", "all are 0"}},
          {[](Layout& l) { l.recompute_layers = {1, 9, 0, 0}; }, {"9 is not in 0..8", "chunk 1"}},
          {[](Layout& l) { l.recompute_layers = {1, 1, 1, -1}; }, {"-1 is not in 0..8", "chunk 3"}},
      });
}

TEST(LayoutValidation, OfTwoDirections) {
  using enum PipelineSchedule;
  expect_rejected(
      model_preset("llama2-7b"), {.pp = 4, .vpp = 2, .global_batch = 8, .seq = 64, .schedule = dualpipe}, 4,
      {
          {[](Layout& l) { l.vpp = 1; }, {"--schedule dualpipe", "--vpp 2"}},
          {[](Layout& l) { l.vpp = 4; }, {"--schedule dualpipe", "--vpp 2"}},
          {[](Layout& l) { l.global_batch = 7; }, {"--schedule dualpipe", "even, not 7"}},
          {[](Layout& l) { l.stage_layers = {4, 4, 4, 4, 4, 4, 4, 4}; }, {"--stage-layers", "8 numbers", "4 model"}},
          {[](Layout& l) { l.kfac_interval = 1; }, {"kfac", "dualpipe"}},
          {[](Layout& l) { l.slice_tokens = {32, 32}; }, {"--slices", "dualpipe"}},
      });
  EXPECT_NE(
      message({.pp = 3, .vpp = 2, .global_batch = 8, .seq = 64, .schedule = dualpipe}, model_preset("llama2-7b"), 3)
          .find("--pp is even, not 3"),
      std::string::npos);
  EXPECT_EQ(
      message({.pp = 4, .vpp = 2, .global_batch = 8, .seq = 64, .schedule = dualpipe, .stage_layers = {7, 9, 9, 7}},
              model_preset("llama2-7b"), 4),
      "accepted");
}

// With two directions the layers of the model come twice.
TEST(LayersPerChunk, OfTwoDirectionsAreThoseOfBothCopies) {
  const Layout layout{.pp = 4, .vpp = 2, .schedule = PipelineSchedule::dualpipe};
  EXPECT_EQ(layers_per_chunk(layout, test::with_layers("gpt2", 6)),
            (std::vector<std::int64_t>{1, 2, 2, 1, 1, 2, 2, 1}));
}

TEST(LayoutValidation, OfExperts) {
  // mixtral: 8 experts of 14336.
  Layout good{.tp = 2, .dp = 4, .ep = 4, .etp = 2, .global_batch = 4, .seq = 64};
  expect_rejected(model_preset("mixtral-8x7b"), good, 8,
                  {
                      {[](Layout& l) { l.ep = 3; }, {"--ep 3 * --etp 2", "8 ranks"}},
                      {[](Layout& l) { l.ep = 8; }, {"--ep 8 * --etp 2", "8 ranks"}},
                      {[](Layout& l) { l.etp = 1; }, {"--etp 1", "--tp 2", "--sequence-parallel"}},
                      {[](Layout& l) { l.mesh_order = {Axis::dp, Axis::tp, Axis::cp, Axis::pp}; },
                       {"--mesh-order", "dp", "--tp 2"}},
                  });
  EXPECT_NE(message({.dp = 16, .ep = 16, .global_batch = 16, .seq = 64}, model_preset("mixtral-8x7b"), 16)
                .find("--ep 16: does not divide the number of experts 8"),
            std::string::npos);
  EXPECT_NE(message({.dp = 3, .etp = 3, .global_batch = 3, .seq = 64}, model_preset("mixtral-8x7b"), 3)
                .find("--etp 3: does not divide the expert's feed-forward size 14336"),
            std::string::npos);
  EXPECT_NE(message({.dp = 2, .ep = 2, .global_batch = 2, .seq = 64}, model_preset("gpt2"), 2)
                .find("--ep 2: gpt2 has no experts"),
            std::string::npos);
  Transformer wide = model_preset("gpt2-s-moe");
  wide.experts->capacity_factor = 1e300;
  EXPECT_NE(message({.seq = 64}, wide, 1).find("--seq 64"), std::string::npos);
}

TEST(ExpertMesh, KeepsPipelineStagesWhereTheyAre) {
  // Stages 4 ranks apart: etp 2 * ep 2 fit inside; etp 1, ep 3 do not.
  const Layout inside{
      .tp = 4, .dp = 6, .pp = 2, .ep = 2, .etp = 2, .mesh_order = {Axis::tp, Axis::pp, Axis::dp, Axis::cp}};
  const Mesh dense = dense_mesh(inside), expert = expert_mesh(inside);
  for (std::int32_t r = 0; r < 48; ++r) {
    EXPECT_EQ(dense.coordinate(Axis::pp, Rank{r}), expert.coordinate(Axis::pp, Rank{r})) << r;
  }
  Layout apart = inside;
  apart.ep = 3;
  apart.etp = 1;
  EXPECT_THROW(expert_mesh(apart), Error);
  // Without stages there is nothing to keep.
  apart.pp = 1;
  apart.dp = 12;
  EXPECT_NO_THROW(expert_mesh(apart));
}

TEST(LayersPerChunk, GivesTheEndsFewerWhereLayersDoNotDivide) {
  // llama3-405b on 16 stages: 126 = 14 * 8 + 2 * 7.
  std::vector<std::int64_t> expected(16, 8);
  expected.front() = expected.back() = 7;
  EXPECT_EQ(layers_per_chunk({.pp = 16}, model_preset("llama3-405b")), expected);
  EXPECT_EQ(layers_per_chunk({.pp = 4}, model_preset("llama2-7b")), (std::vector<std::int64_t>{8, 8, 8, 8}));
  EXPECT_EQ(layers_per_chunk({.pp = 2, .vpp = 2}, test::with_layers("gpt2", 7)),
            (std::vector<std::int64_t>{1, 2, 2, 2}));
}

}  // namespace
}  // namespace weft
