// Defaults of the command line, and every kind of bad input with the words that must be in its message.
#include "app/inputs.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/test_cli.hpp"
#include "base/error.hpp"

namespace weft {
namespace {

Inputs inputs(const std::string& line, Decides decides = Decides::nothing) {
  Flags flags("plan", "", "");
  declare_input_flags(flags);
  std::vector<std::string> words;
  for (const std::string& word : split(line, ' ')) {
    if (!word.empty()) words.push_back(word);
  }
  flags.parse(words);
  return read_inputs(flags, decides);
}

TEST(Defaults, AreThoseOfTheDesign) {
  const Inputs in = inputs("--model llama2-70b --cluster dgx-a100:8 --tp 8 --pp 4");
  EXPECT_EQ(in.layout.dp, 2);
  EXPECT_EQ(in.layout.seq, 4096);
  EXPECT_EQ(in.layout.micro_batch, 1);
  EXPECT_EQ(in.layout.global_batch, 2);
  EXPECT_EQ(in.layout.schedule, PipelineSchedule::one_f_one_b);
  EXPECT_EQ(in.layout.precision, ElementType::bf16);
  EXPECT_EQ(in.layout.grad_dtype, ElementType::fp32);
  EXPECT_EQ(in.layout.zero, 0);
  EXPECT_EQ(in.layout.recompute, Recompute::none);
  EXPECT_EQ(in.layout.attention, AttentionKernel::flash);
  EXPECT_EQ(in.layout.clip_grad, 0);
  EXPECT_EQ(in.cluster.device.name, "a100-80");
}

TEST(ZeroPlusPlusInputs, AreReadTogether) {
  const std::string layout = "--model llama2-7b --cluster dgx-a100:2 --tp 2 --zero 3 ";
  const Layout read =
      inputs(layout + "--zero-secondary node --compress gradients=int4,weights=int8 --compress-min 7").layout;
  EXPECT_EQ(read.zero_secondary, 4);  // a node has 8 devices, 2 for every data-parallel rank
  EXPECT_EQ(read.compress, (GradientCompression{CompressionFormat::int4, 7}));
  EXPECT_EQ(read.compress_weights, CompressionFormat::int8);
  EXPECT_EQ(inputs(layout + "--zero-secondary 2 --compress weights=int8").layout.zero_secondary, 2);
  EXPECT_FALSE(inputs(layout + "--compress weights=int8").layout.compress.is_on());
}

TEST(GradientCompressionInputs, SayRankAndLevelBehindTheFormat) {
  const std::string layout = "--model llama2-7b --cluster dgx-a100:2 --zero 1 --compress gradients=";
  EXPECT_EQ(inputs(layout + "power-sgd").layout.compress.rank, 4);
  const GradientCompression factors = inputs(layout + "power-sgd:7").layout.compress;
  EXPECT_EQ(factors, (GradientCompression{.format = CompressionFormat::power_sgd, .rank = 7}));
  EXPECT_EQ(name_of(factors), "power-sgd:7");
  const GradientCompression levels = inputs(layout + "int8@node").layout.compress;
  EXPECT_EQ(levels, (GradientCompression{.format = CompressionFormat::int8, .between_nodes = true}));
  EXPECT_EQ(name_of(levels), "int8@node");
  for (const char* const wrong : {"int8:4", "power-sgd:", "power-sgd:x", "power-sgd:0", "power-sgd:4@node", "int8@rack",
                                  "@node", "int8,weights=int8@node"}) {
    EXPECT_THROW(inputs(layout + wrong), Error) << wrong;
  }
}

// Eight devices in pairs of tensor-parallel ranks, context parallel in pairs: four ranks hold the same parameters.
TEST(ZeroShards, AreGivenByTheirNumberOrByThatOfTheirReplicas) {
  const std::string layout = "--model llama2-7b --cluster dgx-a100:1 --tp 2 --cp 2 --zero 2 ";
  EXPECT_EQ(inputs(layout).layout.zero_shards, 0);
  EXPECT_EQ(inputs(layout + "--zero-shards 2").layout.zero_shards, 2);
  EXPECT_EQ(inputs(layout + "--zero-replicas 2").layout.zero_shards, 2);
  EXPECT_EQ(inputs(layout + "--zero-replicas 4").layout.zero_shards, 1);
  EXPECT_EQ(inputs(layout + "--zero-replicas 1").layout.zero_shards, 4);
  EXPECT_FALSE(inputs(layout + "--zero-replicas 1").layout.has_shard_groups());
}

TEST(Defaults, ShapeFlagsMakeAGpt) {
  const Inputs in = inputs("--layers 4 --hidden 512 --heads 8 --cluster local:2");
  EXPECT_EQ(in.model.ffn, 2048);
  EXPECT_EQ(in.model.vocab, 51200);
  EXPECT_EQ(in.model.kv_heads, 8);
  EXPECT_EQ(in.layout.seq, 2048);
  EXPECT_EQ(in.layout.precision, ElementType::fp32);
  EXPECT_EQ(inputs("--layers 4 --hidden 512 --heads 8 --cluster local:2 --seq 8192").model.max_seq, 8192);
}

TEST(Defaults, DropoutIsOnButInRunsOnThisMachine) {
  EXPECT_TRUE(inputs("--model gpt2 --cluster dgx-a100:1").layout.dropout);
  EXPECT_FALSE(inputs("--model gpt2 --cluster dgx-a100:1 --no-dropout").layout.dropout);
  EXPECT_FALSE(inputs("--model gpt2 --cluster local:2").layout.dropout);
  const Inputs asked = inputs("--model gpt2 --cluster local:2 --dropout 0.2");
  EXPECT_TRUE(asked.layout.dropout);
  EXPECT_EQ(asked.model.dropout, (DropoutRates{.embedding = 0.2, .attention = 0.2, .hidden = 0.2}));
  EXPECT_TRUE(inputs("--model gpt2 --cluster local:2 --dropout model").layout.dropout);
  EXPECT_THROW(inputs("--model gpt2 --cluster local:2 --dropout 0.2 --no-dropout"), Error);
  EXPECT_THROW(inputs("--model gpt2 --cluster local:2 --dropout 1"), Error);
  EXPECT_THROW(inputs("--model llama2-7b --cluster local:2 --dropout 0.1"), Error);
}

// Paced links and programs are of the network; what training takes by default is said by what executes it.
TEST(Defaults, PrecisionAndDropoutFollowTheRuntimeAlone) {
  const ScratchFolder folder("runtime");
  const auto with = [&](const std::string& facts) {
    const std::string file = folder.write("cluster.json", R"({"name": "two", "device": "cpu", "nodes": 2,
      "devices_per_node": 1, "levels": [{"name": "nic", "joins": "cluster", "bandwidth": "1GB/s", "latency": "50us"}])" +
                                                              facts + "}");
    return inputs("--model gpt2 --cluster " + file).layout;
  };
  for (const char* planned :
       {"", R"(, "links": "paced", "collectives": "programs")", R"(, "emulated": true, "runtime": "none")"}) {
    EXPECT_EQ(with(planned).precision, ElementType::bf16) << planned;
    EXPECT_TRUE(with(planned).dropout) << planned;
  }
  for (const char* run : {R"(, "emulated": true)", R"(, "links": "measured", "runtime": "cpu")"}) {
    EXPECT_EQ(with(run).precision, ElementType::fp32) << run;
    EXPECT_FALSE(with(run).dropout) << run;
  }
}

TEST(Defaults, InterleavedWithSeveralChunksAndExpertsFollowTensorParallelism) {
  EXPECT_EQ(inputs("--model gpt3-175b --cluster dgx-a100:8 --tp 8 --pp 8 --vpp 2 --global-batch 8").layout.schedule,
            PipelineSchedule::interleaved);
  EXPECT_EQ(inputs("--model mixtral-8x7b --cluster dgx-a100:1 --tp 4 --ep 2 --seq 4096").layout.etp, 4);
}

TEST(Defaults, SearchedChunksLieInWavesOrInLoops) {
  const auto schedule_of = [](const std::string& flags) {
    return inputs("--model llama2-7b --cluster dgx-a100:1 --pp 4 --global-batch 8 " + flags, Decides::everything)
        .layout.schedule;
  };
  EXPECT_EQ(schedule_of("--schedule auto"), PipelineSchedule::searched);
  EXPECT_EQ(schedule_of("--schedule auto --vpp 2"), PipelineSchedule::searched_waves);
  EXPECT_EQ(schedule_of("--schedule auto --vpp 4"), PipelineSchedule::searched_loops);
  EXPECT_EQ(schedule_of("--schedule auto-waves"), PipelineSchedule::searched_waves);
  EXPECT_EQ(schedule_of("--schedule auto-loops --vpp 2"), PipelineSchedule::searched_loops);
  EXPECT_THROW(inputs("--model llama2-7b --cluster dgx-a100:1 --pp 4 --vpp 2 --schedule auto"), Error);
}

TEST(Defaults, ShapeFlagsOverrideAPreset) {
  const Inputs in = inputs("--model llama2-7b --layers 2 --cluster dgx-a100:1");
  EXPECT_EQ(in.model.layers, 2);
  EXPECT_EQ(in.model.hidden, 4096);
  const Inputs heads = inputs("--model llama2-7b --heads 64 --cluster dgx-a100:1");
  EXPECT_EQ(heads.model.kv_heads, 64);
  EXPECT_EQ(heads.model.head_dim, 64);
}

TEST(Defaults, AClusterFileAndAModelFileAreRead) {
  const ScratchFolder folder("inputs");
  const std::string model = folder.write("config.json", R"({"model_type": "llama", "hidden_size": 512,
      "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 1024, "vocab_size": 1024,
      "max_position_embeddings": 256})");
  const std::string cluster = folder.write("cluster.json", R"({"name": "two", "device": "h100", "nodes": 2,
      "devices_per_node": 1, "levels": [{"name": "nic", "joins": "cluster", "bandwidth": "100Gb/s", "latency": "5us"}]})");
  const Inputs in = inputs("--model " + model + " --cluster " + cluster);
  EXPECT_EQ(in.layout.dp, 2);
  EXPECT_EQ(in.layout.seq, 256);
  EXPECT_EQ(in.cluster.device.name, "h100");
}

struct BadCase {
  const char* line;
  const char* says;  // the flag or file
  const char* and_says;
};

void PrintTo(const BadCase& c, std::ostream* out) {
  *out << c.line;
}

class BadInput : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadInput, IsRefusedWithTheFlagTheValueAndWhatIsAllowed) {
  const CliResult result = weft_cli(std::string("plan ") + GetParam().line);
  EXPECT_EQ(result.code, kBadInput) << GetParam().line;
  EXPECT_TRUE(result.out.empty()) << result.out;
  EXPECT_PRED2(contains, result.err, GetParam().says) << GetParam().line;
  EXPECT_PRED2(contains, result.err, GetParam().and_says) << GetParam().line;
}

INSTANTIATE_TEST_SUITE_P(
    Flags, BadInput,
    ::testing::Values(
        BadCase{"--model lama2-70b --cluster dgx-a100:8", "lama2-70b", "did you mean 'llama2-70b'"},
        BadCase{"--model llama2-7b --cluster dgx-a10:8", "dgx-a10", "did you mean 'dgx-a100'"},
        BadCase{"--model llama2-7b --cluster dgx-a100:8,nik=1Gb/s", "nik", "nic"},
        BadCase{"--model llama2-7b --cluster dgx-a100:0", "0", "dgx-a100"},
        BadCase{"--model llama2-7b --cluster dgx-a100:8,nic=fast", "fast", "bandwidth"},
        BadCase{"--model llama2-7b", "--cluster", "missing"}, BadCase{"--cluster dgx-a100:1", "--model", "--layers"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --tp 2 --dp 2", "--tp 2", "8 devices"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --tp 3", "--tp 3", "8 devices"},
        BadCase{"--model gpt2 --cluster dgx-a100:1 --tp 8", "--tp 8", "12 attention heads"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --micro-batch 2 --global-batch 9", "--global-batch 9",
                "--micro-batch 2"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --ep 2", "--ep 2", "no experts"},
        BadCase{"--model mixtral-8x7b --cluster dgx-a100:1 --ep 3 --seq 4096", "--ep 3", "8 ranks"},
        BadCase{"--model mixtral-8x7b --cluster dgx-a100:2 --ep 16 --seq 4096", "--ep 16", "experts 8"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --tp two", "--tp", "two"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --tp 0", "--tp 0", "1.."},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --tp 99999999999999999999", "--tp", "99999999999999999999"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --zero 4", "--zero 4", "0..3"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --zero 1 --zero-shards 0", "--zero-shards 0", "1.."},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --zero 1 --zero-shards 3", "--zero-shards 3", "8 ranks"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --zero-shards 4", "--zero-shards 4", "--zero above 0"},
        BadCase{"--model mixtral-8x7b --cluster dgx-a100:1 --seq 4096 --zero 1 --zero-shards 4", "--zero-shards 4",
                "without experts"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --zero 1 --zero-replicas 3", "--zero-replicas 3", "8 ranks"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --zero 1 --zero-shards 4 --zero-replicas 2", "--zero-shards 4",
                "--zero-replicas 2"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --recompute some", "--recompute", "selective"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --schedule zigzag", "--schedule", "1f1b"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --precision fp64", "--precision", "bf16"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --products fp8", "--products fp8", "a100-80"},
        BadCase{"--model llama2-7b --cluster dgx-h100:1 --products fp4", "--products fp4", "h100"},
        BadCase{"--model llama2-7b --cluster dgx-h100:1 --products int8", "--products", "fp8"},
        BadCase{"--model llama2-7b --cluster dgx-h100:1 --products fp8 --precision fp32", "--products fp8", "bf16"},
        BadCase{"--model llama2-7b --cluster dgx-h100:1 --fp8-param-gather --zero 1", "--fp8-param-gather",
                "--products"},
        BadCase{"--model llama2-7b --cluster dgx-h100:1 --products fp8 --fp8-param-gather", "--fp8-param-gather",
                "--zero 1"},
        BadCase{"--model llama2-7b --cluster gpu:1 --products fp8", "--products fp8", "weft run"},
        BadCase{"--model llama2-7b --cluster local:2 --cuda-graphs full", "--cuda-graphs", "--graphs"},
        BadCase{"--model llama2-7b --cluster local:2 --power-cap 500", "--power-cap", "rated power of cpu"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --mesh-order tp,dp", "--mesh-order", "pp"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --pp 2 --schedule hanayo --vpp 3", "--schedule hanayo",
                "two model chunks per pipeline rank for every wave (--vpp 2, 4, 6, ...), not 3"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --pp 2 --warm-up-depth 9 --global-batch 8 --dp 4",
                "--warm-up-depth 9", "1..2"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --pp 2 --schedule zb-h1 --warm-up-depth 2", "--warm-up-depth 2",
                "is for --schedule 1f1b, not zb-h1"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --pp 2 --slices 3", "--slices 3", "does not divide --seq 4096"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --pp 2 --slices 5000", "--slices 5000", "1..4096"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --pp 2 --slices 2048,1024", "--slices", "sums to 3072"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --slices auto", "--slices", "--pp above 1"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --pp 2 --stage-layers 10,10", "--stage-layers", "32 layers"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --pp 2 --vpp 2 --global-batch 12", "interleaved",
                "3 micro-batches"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --sequence-parallel", "--sequence-parallel", "--tp"},
        BadCase{"--model gpt2 --cluster dgx-a100:1 --seq 4096", "--seq 4096", "1024"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --cp 8 --seq 4100", "--cp 8", "4100"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --policy seriel", "seriel", "serial"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --memory 500", "--memory 500", "80.00 GiB"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --top-k 2", "--top-k", "--experts"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --token-drop-policy probs", "--token-drop-policy", "--experts"},
        BadCase{"--model gpt2-s-moe --cluster dgx-a100:1 --token-drop-policy last", "--token-drop-policy", "gshard"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --router-groups 2", "--router-groups", "--experts"},
        BadCase{"--model deepseek-v3 --cluster dgx-a100:1 --router-groups 3", "router_groups", "3"},
        BadCase{"--model deepseek-v3 --cluster dgx-a100:1 --router-group-topk 9", "router_group_topk", "9"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --dispatch-fp8", "--dispatch-fp8", "no experts"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --compress int8", "--compress int8", "gradients="},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --compress gradients=int7", "gradients=int7",
                "int8-stochastic"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --compress-min 5", "--compress-min 5", "--compress"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --tp 8 --compress gradients=int8", "int8", "--dp 1"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --zero 3 --compress gradients=top-k", "top-k",
                "int4-stochastic"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --compress weights=int8", "weights=int8", "--zero 1, 2 or 3"},
        BadCase{
            "--model llama2-7b --cluster dgx-h100:1 --zero 1 --products fp8 --fp8-param-gather --compress weights=int8",
            "weights=int8", "--fp8-param-gather"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --zero 3 --compress weights=int8,weights=int4", "weights",
                "twice"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --zero 3 --compress weights=int8,", "weights=int8,",
                "gradients="},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --zero 3 --zero-secondary node", "--zero-secondary node",
                "give a number"},
        BadCase{"--model llama2-7b --cluster dgx-a100:2 --zero 3 --zero-secondary rack", "--zero-secondary", "rack"},
        BadCase{"--model llama2-7b --cluster dgx-a100:2 --zero 3 --zero-secondary 3", "--zero-secondary 3", "16 ranks"},
        BadCase{"--model llama2-7b --cluster dgx-a100:2 --zero 3 --pp 2 --zero-secondary 4", "--zero-secondary 4",
                "--pp 1"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --grad-dtype bf16 --compress gradients=int8", "int8", "bf16"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --ep-forwarding", "--ep-forwarding", "no experts"},
        BadCase{"--model gpt2-s-moe --cluster dgx-a100:1 --ep 8 --precision fp32 --dispatch-fp8", "--dispatch-fp8",
                "bf16"},
        BadCase{"--model gpt2-s-moe --cluster local:2 --ep 2 --ep-forwarding", "--ep-forwarding", "weft run"},
        BadCase{"--model gpt2-s-moe --cluster local:2 --ep 2 --recompute local", "--recompute local", "not run yet"},
        BadCase{"--model gpt2-s-moe --cluster dgx-a100:1 --experts 8 --experts-per-rank 2", "--experts-per-rank 2",
                "--experts says"},
        BadCase{"--layers 1 --hidden 1000000000 --heads 1 --ffn 1000000000 --vocab 1000000000 --cluster local:1",
                "63 bits", "size"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --global-batch 800000000", "--global-batch 800000000",
                "100000000 micro-batches"},
        // 32 layers of 31,251 micro-batches are more than a million passes; 1,000,000 / 32 = 31,250.
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --global-batch 250008", "--global-batch 250008",
                "at most 31250 micro-batches"},
        BadCase{"--layers 10001 --hidden 128 --heads 4 --vocab 1024 --seq 128 --cluster local:2", "10001", "10000"},
        BadCase{"--model llama2-7b --cluster dgx-a100:1 --seq 1000000000 --micro-batch 100000000", "63 bits", "size"},
        BadCase{"--model no/such/config.json --cluster dgx-a100:1", "no/such/config.json", "read"},
        BadCase{"--model llama2-7b --cluster no/such/cluster.json", "no/such/cluster.json", "read"}));

// A device like a known one has its efficiencies: a cluster of such devices is the preset, and one node at half of the
// speed holds all others up for twice the time that computing takes.
TEST(DevicesLikeKnownOnes, HaveTheirEfficiencies) {
  const ScratchFolder folder("like");
  const auto cluster = [&](const std::string& device, const std::string& overrides) {
    return folder.write("cluster.json", R"({"name": "c", "nodes": 4, "devices_per_node": 8, "device": )" + device +
                                            R"(, "levels": [
        {"name": "nvlink", "joins": "node", "bandwidth": "450GB/s", "latency": "1us"},
        {"name": "nic", "joins": "cluster", "bandwidth": "400Gb/s", "latency": "5us"}], "overrides": [)" +
                                            overrides + "]}");
  };
  const auto compute_s = [](const std::string& file) {
    const CliResult result = weft_cli(
        "plan --model llama3-8b --layers 4 --seq 8192 --tp 8 --global-batch 16 --policy serial --json --cluster " +
        file);
    EXPECT_TRUE(result.code == kOk) << result.err;
    return nlohmann::json::parse(result.out).at("policies").at("serial").at("step_s").get<double>();
  };
  const double known = compute_s(cluster("\"h100\"", ""));
  EXPECT_EQ(compute_s(cluster(R"({"like": "h100"})", "")), known);
  const double held_up = compute_s(cluster("\"h100\"", R"({"node": 2, "speed": 0.5})"));
  EXPECT_GT(held_up, 1.5 * known);
  EXPECT_LT(held_up, 2 * known);
  const double capped = compute_s(cluster("\"h100\"", R"({"node": 2, "power_cap": 400})"));
  EXPECT_GT(capped, 1.05 * known);
}

TEST(DevicesLikeKnownOnes, AreRecommendedToThoseThatAreLikeNone) {
  const ScratchFolder folder("like_none");
  const std::string file = folder.write("cluster.json", R"({"name": "c", "nodes": 1, "devices_per_node": 1, "device":
      {"name": "mine", "matrix_tflops_16": 989, "matrix_tflops_32": 494, "vector_tflops_32": 67, "memory": "80GiB",
       "memory_bandwidth": "3350GB/s", "compute_units": 132}, "levels": []})");
  const std::vector<std::string> remarks = inputs("--model gpt2 --cluster " + file).remarks;
  ASSERT_EQ(remarks.size(), 1U);
  EXPECT_PRED2(contains, remarks.front(), "device mine: is planned with efficiencies of no device in particular");
}

// The keys that matter of Mistral 7B v0.1, of Qwen2 (a window that is not used) and of DeepSeek-V3 (published in fp8).
TEST(ModelFiles, SayWhatThePlanDoesNotModel) {
  const ScratchFolder folder("model_files");
  const auto file = [&](const std::string& type, const std::string& keys) {
    return folder.write("config.json", R"({"model_type": ")" + type + R"(", "num_hidden_layers": 2, "hidden_size": 64,
      "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 256,
      "max_position_embeddings": 32768)" + keys +
                                           "}");
  };
  const auto remarks = [](const std::string& model, const std::string& flags) {
    return inputs("--model " + model + " --cluster dgx-a100:1 " + flags).remarks;
  };
  const std::string window = file("mistral", R"(, "sliding_window": 4096)");
  ASSERT_EQ(remarks(window, "").size(), 1U);
  EXPECT_EQ(remarks(window, "").front(),
            window +
                ": key 'sliding_window': 4096 is shorter than --seq 32768; attention is planned over whole "
                "sequences, as if there were no window");
  EXPECT_TRUE(remarks(window, "--seq 4096").empty());
  EXPECT_NO_THROW(inputs("--model " + window + " --cluster local:2 --seq 4096"));
  try {
    inputs("--model " + window + " --cluster local:2 --seq 4097");
    ADD_FAILURE() << "a run would attend further back than the model does";
  } catch (const Error& error) {
    EXPECT_PRED2(contains, error.what(), "'sliding_window': 4096 is shorter than --seq 4097");
  }
  EXPECT_TRUE(remarks(file("mistral", R"(, "sliding_window": null)"), "").empty());
  EXPECT_TRUE(remarks(file("qwen2", R"(, "sliding_window": 4096, "use_sliding_window": false)"), "").empty());
  EXPECT_EQ(remarks(file("qwen2", R"(, "sliding_window": 4096, "use_sliding_window": true)"), "").size(), 1U);
  const std::string fp8 = file("llama", R"(, "quantization_config": {"quant_method": "fp8", "fmt": "e4m3"})");
  ASSERT_EQ(remarks(fp8, "").size(), 1U);
  EXPECT_EQ(remarks(fp8, "").front(), fp8 +
                                          ": key 'quantization_config' (fp8) is of the published weights; training is "
                                          "planned in bf16 (--precision)");
  EXPECT_PRED2(contains, weft_cli("plan --policy serial --seq 128 --cluster dgx-a100:1 --model " + fp8).err,
               "quantization_config");
}

}  // namespace
}  // namespace weft
