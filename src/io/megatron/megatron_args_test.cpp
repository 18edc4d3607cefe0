// Megatron launch scripts against the published shapes that they train, and the mistakes that scripts contain.
#include "io/megatron/megatron_args.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "base/error.hpp"
#include "io/megatron/megatron_flag_names.hpp"
#include "model/counts.hpp"
#include "model/presets.hpp"

namespace weft {
namespace {

// Launch scripts in the manner of Megatron-LM's examples; the fuzzer starts from them too.
std::string script(const std::string& name) {
  std::ifstream file(std::filesystem::path(WEFT_SOURCE_DIR "/fuzz/corpus/megatron_args") / name);
  EXPECT_TRUE(file) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

LaunchJob read(const std::string& text) {
  return read_megatron_args(text, "train.sh");
}

std::map<std::string, std::string> settings_of(const LaunchJob& job) {
  std::map<std::string, std::string> settings;
  for (const LaunchSetting& setting : job.settings) settings[setting.flag] = setting.value;
  return settings;
}

const IgnoredFlag* ignored(const LaunchJob& job, const std::string& flag) {
  const auto found =
      std::find_if(job.ignored.begin(), job.ignored.end(), [&](const IgnoredFlag& i) { return i.flag == flag; });
  return found == job.ignored.end() ? nullptr : &*found;
}

std::string error_of(const std::string& text) {
  try {
    read(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

const std::string kTiny = "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --vocab-size 100 --bf16 ";

TEST(MegatronArgs, Gpt175b) {
  const LaunchJob job = read(script("gpt175b.sh"));
  Transformer expected = model_preset("gpt3-175b");
  expected.name = job.model->name;
  expected.vocab = 51200;  // the script leaves it to the tokenizer
  EXPECT_EQ(*job.model, expected);
  EXPECT_EQ(settings_of(job), (std::map<std::string, std::string>{{"tp", "8"},
                                                                  {"pp", "16"},
                                                                  {"micro-batch", "1"},
                                                                  {"global-batch", "1536"},
                                                                  {"seq", "2048"},
                                                                  {"precision", "fp16"},
                                                                  {"grad-dtype", "fp16"},
                                                                  {"clip-grad", "1"},
                                                                  {"attention", "flash"},
                                                                  {"policy", "megatron-dist"}}));
  for (const char* flag : {"--lr", "--data-path", "--save", "--nnodes", "--train-iters"}) {
    ASSERT_TRUE(ignored(job, flag)) << flag;
    EXPECT_TRUE(ignored(job, flag)->harmless) << flag;
  }
  ASSERT_TRUE(ignored(job, "--rampup-batch-size"));
  EXPECT_EQ(ignored(job, "--rampup-batch-size")->value, "16 16 5859375");
  EXPECT_FALSE(ignored(job, "--rampup-batch-size")->harmless);
  EXPECT_TRUE(ignored(job, "--vocab-size"));  // absent, and said so
  for (const IgnoredFlag& flag : job.ignored) EXPECT_EQ(flag.reason.find("not known"), std::string::npos) << flag.flag;
}

TEST(MegatronArgs, Llama70bInAVariableOfTheScript) {
  const LaunchJob job = read(script("llama70b.sh"));
  Transformer expected = model_preset("llama2-70b");
  expected.name = job.model->name;
  EXPECT_EQ(*job.model, expected);
  EXPECT_EQ(total_parameters(*job.model), 68'976'648'192);
  const auto settings = settings_of(job);
  EXPECT_EQ(settings.at("tp"), "8");
  EXPECT_EQ(settings.at("vpp"), "4");  // 80 layers / 4 stages / 5
  EXPECT_EQ(settings.at("zero"), "1");
  EXPECT_EQ(settings.at("sequence-parallel"), "true");
  EXPECT_EQ(settings.at("recompute"), "selective");
  EXPECT_EQ(settings.at("policy"), "megatron-param");
  EXPECT_EQ(settings.at("bucket-size"), "40000000");
  EXPECT_EQ(settings.at("grad-dtype"), "fp32");
  EXPECT_EQ(settings.at("global-batch"), "1024");
  EXPECT_EQ(settings.at("tp-comm-overlap"), "true");
}

TEST(MegatronArgs, MixtralFromArraysAlone) {
  const LaunchJob job = read(script("mixtral.sh"));
  Transformer expected = model_preset("mixtral-8x7b");
  expected.name = job.model->name;
  expected.experts->aux_loss_coeff = 0.01;  // as the script says
  EXPECT_EQ(*job.model, expected);
  const auto settings = settings_of(job);
  EXPECT_EQ(settings.at("ep"), "8");
  EXPECT_FALSE(settings.contains("sequence-parallel"));  // tp is 1
  ASSERT_TRUE(ignored(job, "--sequence-parallel"));
  EXPECT_FALSE(settings.contains("expert-exchange"));  // alltoall
}

TEST(MegatronArgs, HowTokensTravelAndWhatHidesThem) {
  const auto of = [](const std::string& flags) { return settings_of(read("--expert-model-parallel-size 8 " + flags)); };
  EXPECT_EQ(of("").at("expert-exchange"), "gathered");  // Megatron's default
  EXPECT_EQ(of("--moe-token-dispatcher-type allgather").at("expert-exchange"), "gathered");
  EXPECT_FALSE(of("--moe-token-dispatcher-type alltoall").contains("expert-exchange"));
  EXPECT_FALSE(of("--moe-token-dispatcher-type flex --moe-enable-deepep").contains("expert-exchange"));
  EXPECT_EQ(of("--moe-token-dispatcher-type flex").at("ep-forwarding"), "true");
  EXPECT_FALSE(settings_of(read("--moe-token-dispatcher-type flex")).contains("ep-forwarding"));
  const auto hidden = of("--overlap-moe-expert-parallel-comm --delay-wgrad-compute");
  EXPECT_EQ(hidden.at("overlap-moe-expert-parallel-comm"), "true");
  EXPECT_EQ(hidden.at("delay-wgrad-compute"), "true");
  EXPECT_THROW(of("--moe-token-dispatcher-type ring"), Error);
}

TEST(MegatronArgs, OneConnectionIsWhatAsynchronousBackwardNeeds) {
  const std::string flags = "torchrun pretrain_gpt.py --tensor-model-parallel-size 2\n";
  EXPECT_FALSE(ignored(read("export CUDA_DEVICE_MAX_CONNECTIONS=1\n" + flags), "CUDA_DEVICE_MAX_CONNECTIONS"));
  EXPECT_TRUE(ignored(read("export CUDA_DEVICE_MAX_CONNECTIONS=8\n" + flags), "CUDA_DEVICE_MAX_CONNECTIONS"));
  for (const std::string one : {"CUDA_DEVICE_MAX_CONNECTIONS=\"1\" ", "export CUDA_DEVICE_MAX_CONNECTIONS='1';\n",
                                "# export CUDA_DEVICE_MAX_CONNECTIONS=8\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\n",
                                "export CUDA_DEVICE_MAX_CONNECTIONS=${CONNECTIONS:-1}\n"}) {
    EXPECT_FALSE(ignored(read(one + flags), "CUDA_DEVICE_MAX_CONNECTIONS")) << one;
  }
}

TEST(MegatronArgs, LatentAttentionAndALayerPattern) {
  const LaunchJob job = read(
      "--num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 --kv-channels 128 "
      "--max-position-embeddings 163840 --seq-length 4096 --position-embedding-type rope --swiglu "
      "--normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights --vocab-size 129280 "
      "--multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 "
      "--v-head-dim 128 --qk-layernorm --num-experts 256 --moe-router-topk 8 --moe-ffn-hidden-size 2048 "
      "--moe-shared-expert-intermediate-size 2048 --moe-layer-freq ([0]*3+[1]*58) --moe-router-enable-expert-bias "
      "--moe-router-num-groups 8 --moe-router-group-topk 4 --bf16");
  Transformer expected = model_preset("deepseek-v3");
  expected.name = job.model->name;
  EXPECT_EQ(*job.model, expected);
}

TEST(MegatronArgs, DefaultsAreMegatrons) {
  const LaunchJob gelu = read(kTiny);
  EXPECT_EQ(gelu.model->ffn, 256);
  EXPECT_TRUE(gelu.model->tied_embeddings && gelu.model->linear_bias);
  EXPECT_EQ(settings_of(gelu).at("clip-grad"), "1");
  // int(4 * 1024 * 2 / 3 / 64) * 64 = int(42.67) * 64.
  EXPECT_EQ(read("--num-layers 2 --hidden-size 1024 --num-attention-heads 4 --swiglu --bf16").model->ffn, 2688);
  EXPECT_EQ(read(kTiny + "--num-experts 8").model->experts->top_k, 2);
  EXPECT_EQ(read(kTiny + "--group-query-attention").model->kv_heads, 1);
  EXPECT_EQ(settings_of(read("--num-layers 2 --hidden-size 64 --num-attention-heads 4")).at("precision"), "fp32");
}

TEST(MegatronArgs, TheGateIsMegatrons) {
  // Megatron's defaults: softmax over the chosen experts, no balance loss; where there is a capacity, the least
  // probable are dropped.
  const Experts plain = *read(kTiny + "--num-experts 8").model->experts;
  EXPECT_TRUE(plain.renormalise);
  EXPECT_EQ(plain.aux_loss_coeff, 0);
  EXPECT_EQ(plain.gate_order, GateOrder::position);
  const std::string padded = kTiny + "--num-experts 8 --moe-expert-capacity-factor 1.5 ";
  EXPECT_EQ(read(padded).model->experts->gate_order, GateOrder::probs);
  const Experts told = *read(padded +
                             "--moe-token-drop-policy position --moe-aux-loss-coeff 1e-2 "
                             "--moe-router-pre-softmax")
                            .model->experts;
  EXPECT_EQ(told.gate_order, GateOrder::position);
  EXPECT_EQ(told.aux_loss_coeff, 0.01);
  EXPECT_FALSE(told.renormalise);
}

TEST(MegatronArgs, TheLastOfAFlagGivenTwiceCounts) {
  EXPECT_EQ(read(kTiny + "--hidden-size 128").model->hidden, 128);
}

TEST(MegatronArgs, UnevenStages) {
  // 8 layers over 3 stages: 2, then 3 and 3; in two chunks each: 1 of 2, 2 of 4, 1 of 2.
  const std::string pp = "--pipeline-model-parallel-size 3 ";
  EXPECT_EQ(settings_of(read(kTiny + pp + "--decoder-first-pipeline-num-layers 2")).at("stage-layers"), "2,3,3");
  EXPECT_EQ(settings_of(read(kTiny + pp +
                             "--decoder-first-pipeline-num-layers 2 --decoder-last-pipeline-num-layers 2 "
                             "--num-virtual-stages-per-pipeline-rank 2"))
                .at("stage-layers"),
            "1,2,1,1,2,1");
  EXPECT_NE(error_of(kTiny + pp + "--decoder-first-pipeline-num-layers 3").find("do not divide"), std::string::npos);
}

TEST(MegatronArgs, ShardingAndOverlapLevels) {
  const auto of = [&](const std::string& flags) { return settings_of(read(kTiny + flags)); };
  EXPECT_FALSE(of("").contains("zero"));
  EXPECT_EQ(of("--use-distributed-optimizer").at("zero"), "1");
  EXPECT_EQ(of("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params").at("zero"), "3");
  EXPECT_EQ(of("--use-torch-fsdp2").at("zero"), "3");
  EXPECT_EQ(of("--use-distributed-optimizer").at("policy"), "megatron-dist");
  EXPECT_EQ(of("--overlap-grad-reduce").at("policy"), "megatron-grad");
  EXPECT_EQ(of("--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather").at("policy"),
            "megatron-param");
  EXPECT_EQ(of("--attention-backend unfused").at("attention"), "unfused");
  EXPECT_EQ(of("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1").at("recompute"),
            "full");
  const auto block = of("--recompute-granularity full --recompute-method block --recompute-num-layers 2");
  EXPECT_EQ(block.at("recompute"), "full");
  EXPECT_EQ(block.at("recompute-layers"), "2");
  EXPECT_EQ(of("--use-tp-pp-dp-mapping").at("mesh-order"), "tp,cp,pp,dp");
}

TEST(MegatronArgs, InstancesOfTheDistributedOptimizer) {
  const std::string two = " --num-distributed-optimizer-instances 2";
  const auto replicas = [&](const std::string& flags) {
    const auto settings = settings_of(read(kTiny + flags));
    return settings.contains("zero-replicas") ? settings.at("zero-replicas") : "none";
  };
  const auto reason = [&](const std::string& flags) {
    const LaunchJob job = read(kTiny + flags);
    const IgnoredFlag* found = ignored(job, "--num-distributed-optimizer-instances");
    return found ? found->reason : "not named";
  };
  EXPECT_EQ(replicas("--use-distributed-optimizer" + two), "2");
  EXPECT_EQ(reason("--use-distributed-optimizer" + two), "not named");
  EXPECT_EQ(replicas("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params" + two), "2");
  EXPECT_EQ(replicas("--use-distributed-optimizer --num-distributed-optimizer-instances 1"), "none");
  EXPECT_EQ(replicas(two), "none");
  EXPECT_EQ(reason(two), "has no effect without --use-distributed-optimizer");
  EXPECT_EQ(replicas("--use-distributed-optimizer --num-experts 4" + two), "none");
  EXPECT_EQ(reason("--use-distributed-optimizer --num-experts 4" + two),
            "Weft has no counterpart for models with experts");
}

// validate_args of Megatron-LM's arguments.py: "--overlap-param-gather only supported with distributed optimizer",
TEST(MegatronArgs, LowPrecisionRecipesAreProducts) {
  const auto of = [](const std::string& flags) { return settings_of(read(kTiny + flags)); };
  EXPECT_EQ(of("--fp8-format hybrid").at("products"), "fp8");
  EXPECT_EQ(of("--fp4-format e2m1").at("products"), "fp4");
  EXPECT_FALSE(of("").contains("products"));
  EXPECT_EQ(of("--fp8-format e4m3 --fp8-param-gather --use-distributed-optimizer").at("fp8-param-gather"), "true");
  EXPECT_FALSE(of("--fp8-format e4m3 --fp8-param-gather").contains("fp8-param-gather"));
  EXPECT_NE(error_of(kTiny + "--fp8-param-gather").find("without --fp8-format"), std::string::npos);
}

// "Must use --overlap-param-gather with --overlap-grad-reduce".
TEST(MegatronArgs, ParamGatherNeedsWhatMegatronAssertsOfIt) {
  EXPECT_EQ(error_of(kTiny + "--overlap-param-gather"),
            "train.sh: line 1: --overlap-param-gather: Megatron-LM refuses it without --use-distributed-optimizer");
  EXPECT_EQ(error_of(kTiny + "--overlap-param-gather --overlap-grad-reduce"),
            "train.sh: line 1: --overlap-param-gather: Megatron-LM refuses it without --use-distributed-optimizer");
  EXPECT_EQ(error_of(kTiny + "--overlap-param-gather --use-distributed-optimizer"),
            "train.sh: line 1: --overlap-param-gather: Megatron-LM refuses it without --overlap-grad-reduce");
}

TEST(MegatronArgs, WhatIsOnlyHalfUnderstoodIsNamed) {
  const auto reason = [&](const std::string& flags, const std::string& flag) {
    const LaunchJob job = read(kTiny + flags);
    const IgnoredFlag* found = ignored(job, flag);
    return found ? found->reason : "not named";
  };
  EXPECT_NE(reason("--recompute-granularity full --recompute-method uniform --recompute-num-layers 2",
                   "--recompute-num-layers"),
            "not named");
  EXPECT_NE(reason("--num-query-groups 2", "--num-query-groups"), "not named");
  EXPECT_NE(reason("--make-vocab-size-divisible-by 8", "--make-vocab-size-divisible-by"), "not named");
  EXPECT_EQ(reason("--make-vocab-size-divisible-by 128", "--make-vocab-size-divisible-by"), "not named");
  EXPECT_NE(reason("--num-experts 4 --moe-layer-freq [1,1,0,0,1,1,0,0]", "--moe-layer-freq"), "not named");
  EXPECT_EQ(reason("--num-experts 4 --moe-layer-freq [0,1]*4", "--moe-layer-freq"), "not named");
  EXPECT_EQ(reason("--tensor-model-paralel-size 2", "--tensor-model-paralel-size"),
            "is not known; did you mean '--tensor-model-parallel-size'?");
  EXPECT_EQ(reason("--lr 1 $EXTRA_ARGS", "$EXTRA_ARGS"), "is not set in the file");
  EXPECT_EQ(reason("--swiglu $EXTRA_ARGS", "$EXTRA_ARGS"), "is not set in the file");
}

TEST(MegatronArgs, MistakesNameFileLineFlagAndValue) {
  EXPECT_EQ(error_of("--num-layers 2\n--hidden-size x"), "train.sh: line 2: --hidden-size: 'x' is not an integer");
  EXPECT_EQ(error_of(kTiny + "--micro-batch-size"), "train.sh: line 1: --micro-batch-size: needs a value");
  EXPECT_EQ(error_of(kTiny + "--micro-batch-size --lr 1"), "train.sh: line 1: --micro-batch-size: needs a value");
  EXPECT_EQ(error_of(kTiny + "--micro-batch-size 0"),
            "train.sh: line 1: --micro-batch-size 0: is not in 1..1000000000");
  EXPECT_EQ(error_of(kTiny + "--micro-batch-size 1 2"),
            "train.sh: line 1: --micro-batch-size: takes one value, but 2 follow: 1 2");
  EXPECT_EQ(error_of(kTiny + "--swiglu yes"), "train.sh: line 1: --swiglu: takes no value, but 'yes' follows");
  EXPECT_EQ(error_of(kTiny + "--normalization Norm"),
            "train.sh: line 1: --normalization 'Norm': is not one of LayerNorm, RMSNorm");
  EXPECT_EQ(error_of("--num-layers 2 --hidden-size 64"), "train.sh: --num-attention-heads is missing");
  EXPECT_NE(error_of("--num-layers $N --hidden-size 64 --num-attention-heads 4").find("'$N': the file does not say"),
            std::string::npos);
  EXPECT_NE(error_of(kTiny + "--fp16").find("--bf16 is given too"), std::string::npos);
  EXPECT_NE(error_of("--num-layers 2 --hidden-size 65 --num-attention-heads 4").find("does not divide"),
            std::string::npos);
  EXPECT_NE(error_of("echo hello").find("holds no flags"), std::string::npos);
}

TEST(MegatronArgs, ALaunchWithoutAShapeHasNoModel) {
  const LaunchJob job = read("--tensor-model-parallel-size 2 --bf16");
  EXPECT_FALSE(job.model);
  EXPECT_EQ(settings_of(job).at("tp"), "2");
}

TEST(MegatronArgs, LayerPatterns) {
  EXPECT_EQ(parse_layer_pattern("[0]*2+[1]*3", 10), (std::vector<int>{0, 0, 1, 1, 1}));
  EXPECT_EQ(parse_layer_pattern("([0,1]*2+[1])", 10), (std::vector<int>{0, 1, 0, 1, 1}));
  for (const char* wrong : {"", "[]", "[2]", "[1", "[1]*", "[1]+", "1", "[1]*11", "[1]x"}) {
    EXPECT_EQ(parse_layer_pattern(wrong, 10), std::nullopt) << wrong;
  }
}

TEST(MegatronFlagNames, AreThereOnce) {
  std::map<std::string, int> count;
  for (const MegatronFlagName& flag : unused_megatron_flags()) {
    EXPECT_TRUE(flag.name.starts_with("--")) << flag.name;
    EXPECT_EQ(++count[flag.name], 1) << flag.name;
  }
  EXPECT_GT(count.size(), 200u);
}

// The layout of Megatron's own help text, cut to a model of eight layers.
TEST(MegatronArgs, APipelineLayoutSaysTheLayersOfEveryModelChunk) {
  const auto settings =
      settings_of(read(kTiny + "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et|(tt|)*2,t*3L'"));
  EXPECT_EQ(settings.at("vpp"), "2");
  EXPECT_EQ(settings.at("stage-layers"), "1,2,2,3");
  const LaunchJob job = read(kTiny + "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*8|L'");
  EXPECT_FALSE(settings_of(job).contains("stage-layers"));
  EXPECT_TRUE(ignored(job, "--pipeline-model-parallel-layout"));  // a stage without layers
  const std::string two = kTiny + "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout ";
  EXPECT_NE(error_of(two + "'Et*3|t*4L'").find("names 7 layers"), std::string::npos);
  EXPECT_NE(error_of(two + "'Et|t*6|tL'").find("has 3 stages"), std::string::npos);
  for (const char* wrong : {"'Et*8|x'", "'E(t|L'", "'Et*|L'", "'Et*99999999999999999999|L'"}) {
    EXPECT_NE(error_of(two + wrong).find("is no layout"), std::string::npos) << wrong;
  }
}

TEST(MegatronArgs, DropoutIsOffWhereBothRatesAre) {
  const LaunchJob off = read(kTiny + "--hidden-dropout 0 --attention-dropout 0.0");
  EXPECT_EQ(settings_of(off).at("no-dropout"), "true");
  EXPECT_EQ(off.model->dropout, DropoutRates{});
  const LaunchJob one = read(kTiny + "--hidden-dropout 0.2");
  EXPECT_FALSE(settings_of(one).contains("no-dropout"));
  EXPECT_EQ(one.model->dropout, (DropoutRates{.embedding = 0.2, .attention = 0.1, .hidden = 0.2}));
  const LaunchJob rotary = read(kTiny + "--position-embedding-type rope --hidden-dropout 0.1 --attention-dropout 0");
  EXPECT_FALSE(settings_of(rotary).contains("no-dropout"));
  ASSERT_TRUE(ignored(rotary, "--hidden-dropout"));
  EXPECT_FALSE(ignored(rotary, "--attention-dropout"));
  EXPECT_NE(error_of(kTiny + "--hidden-dropout 1").find("is not a rate in [0, 1)"), std::string::npos);
}

TEST(MegatronArgs, DropoutWithoutAShape) {
  EXPECT_EQ(settings_of(read("--bf16 --hidden-dropout 0 --attention-dropout 0")).at("no-dropout"), "true");
  const LaunchJob job = read("--bf16 --hidden-dropout 0.3");
  EXPECT_FALSE(settings_of(job).contains("no-dropout"));
  ASSERT_TRUE(ignored(job, "--hidden-dropout"));
  EXPECT_NE(ignored(job, "--hidden-dropout")->reason.find("--dropout"), std::string::npos);
}

TEST(MegatronArgs, CudaGraphsAreOfLayersOrOfTheStep) {
  const auto graphs = [](const std::string& flags) {
    const auto settings = settings_of(read(kTiny + flags));
    const auto found = settings.find("cuda-graphs");
    return found == settings.end() ? "" : found->second;
  };
  EXPECT_EQ(graphs(""), "");
  EXPECT_EQ(graphs("--cuda-graph-impl none"), "");
  EXPECT_EQ(graphs("--enable-cuda-graph"), "layer");
  EXPECT_EQ(graphs("--external-cuda-graph"), "layer");
  EXPECT_EQ(graphs("--cuda-graph-impl transformer_engine"), "layer");
  EXPECT_EQ(graphs("--enable-cuda-graph --cuda-graph-scope full_iteration"), "full");
  EXPECT_EQ(graphs("--cuda-graph-impl full_iteration"), "full");
  EXPECT_TRUE(
      ignored(read(kTiny + "--cuda-graph-impl local --cuda-graph-modules attn moe_router"), "--cuda-graph-impl"));
  EXPECT_FALSE(ignored(read(kTiny + "--enable-cuda-graph --cuda-graph-scope full"), "--enable-cuda-graph"));
}

TEST(MegatronArgs, DegreesOfExpertsNeedExperts) {
  EXPECT_EQ(error_of(kTiny + "--expert-model-parallel-size 4"),
            "train.sh: line 1: --expert-model-parallel-size 4: needs --num-experts");
  EXPECT_FALSE(
      settings_of(read(kTiny + "--expert-model-parallel-size 1 --expert-tensor-parallel-size 1")).contains("etp"));
  EXPECT_TRUE(ignored(read(kTiny + "--expert-tensor-parallel-size 2"), "--expert-tensor-parallel-size"));
  EXPECT_EQ(settings_of(read(kTiny + "--num-experts 8 --expert-model-parallel-size 4")).at("ep"), "4");
  EXPECT_EQ(settings_of(read("--bf16 --expert-model-parallel-size 4")).at("ep"), "4");  // --model may have experts
}

TEST(MegatronArgs, FsdpHasAnOlderName) {
  EXPECT_EQ(
      settings_of(read(kTiny + "--use-custom-fsdp --data-parallel-sharding-strategy optim_grads_params")).at("zero"),
      "3");
}

}  // namespace
}  // namespace weft
