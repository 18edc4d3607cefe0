// ZeRO++ on ranks that are threads, two to a node, against what the definition of each part gives: weights and
// gradients are put through the formats here, one shard after the other, and compared bit by bit. Needs kernels.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>

#include "base/test_folder.hpp"
#include "compress/compressor.hpp"
#include "exec/checkpoint/checkpoint_reader.hpp"
#include "exec/checkpoint/test_checkpoints.hpp"
#include "exec/test_training.hpp"
#include "graph/held_tensor.hpp"
#include "plan/verify/verify_plan.hpp"

namespace weft {
namespace {

namespace fs = std::filesystem;
using test::ScratchFolder;

constexpr std::int64_t kSeq = 8, kLeast = 100;  // tokens; elements of the smallest parameter that travels encoded

ClusterSpec in_nodes_of_two(std::int64_t ranks) {
  if (ranks < 4) return parse_cluster(fmt::format("local:{},nic=1Gb/s", ranks));
  ClusterSpec spec = parse_cluster(fmt::format("local:{},nic=1Gb/s", ranks / 2));
  spec.name = "nodes of two";
  spec.devices_per_node = 2;
  LevelSpec inside = spec.levels.front();
  inside.name = "shm";
  inside.joins = Domain::node;
  inside.bandwidth = {10 * inside.bandwidth.bytes_per_second};
  spec.levels.insert(spec.levels.begin(), inside);
  return spec;
}

// Every sequence is the same, so all ranks have the same gradient: that of one rank over their number.
class RepeatedText final : public Corpus {
 public:
  RepeatedText() {
    for (int i = 0; i < 4096; ++i) bytes_.push_back(static_cast<std::uint8_t>("weaving "[i % kSeq]));
  }
  std::span<const std::uint8_t> bytes() const override { return bytes_; }
  const std::string& name() const override { return name_; }

 private:
  std::vector<std::uint8_t> bytes_;
  std::string name_ = "repeated text";
};

struct EncodedRun {
  Layout layout = {};
  std::int64_t ranks = 4, micro_batches = 1, steps = 1;
  std::string policy = "fsdp";
  bool trains = false;   // else the learning rate is 0, and moments are sums of gradients
  fs::path folder = {};  // where the last state is saved; empty: nowhere
  fs::path from = {};    // a checkpoint whose state it begins with, as `described`
  fs::path described = {};
  bool repeats = true;
};

std::vector<double> train(const EncodedRun& run) {
  Layout layout = run.layout;
  layout.precision = layout.grad_dtype = ElementType::fp32;
  layout.dropout = false;
  layout.seq = kSeq;
  layout.compress.min_elements = kLeast;
  const PlanRequest request = test::request(test::tiny_gpt(), in_nodes_of_two(run.ranks), layout, run.micro_batches);
  const WholePlan made = make_whole_plan(request, test::build(request), run.policy);
  const std::optional<Violation> violation = verify_plan(made);
  EXPECT_FALSE(violation.has_value()) << violation->message;
  TrainSettings settings;
  settings.steps = run.steps;
  if (!run.trains) {
    settings.optimizer = Optimizer::sgd;
    settings.sgd = {.learning_rate = 0, .momentum = 1};
  }
  std::shared_ptr<const Corpus> corpus = Corpus::generate(3, 4096);
  if (run.repeats) corpus = std::make_shared<RepeatedText>();
  TrainJob job{made, settings, corpus, 0, true};
  const CheckpointJob checkpoint{run.folder, 0, 100, true, R"({"seed":1})", {}, {}, "00112233445566778899aabbccddeeff"};
  if (!run.folder.empty()) job.checkpoint = &checkpoint;
  std::unique_ptr<CheckpointReader> reader;
  if (!run.from.empty()) {
    reader = std::make_unique<CheckpointReader>(run.from, read_checkpoint(run.described));
    job.resume = reader.get();
  }
  std::vector<double> losses;
  const Cluster paced(request.cluster);
  local_ranks::on_ranks({.ranks = run.ranks, .cluster = &paced}, {}, [&](Communicator& communicator) {
    const TrainResult own = train_rank(job, communicator, *make_kernels());
    if (communicator.rank() == 0) losses = own.losses;
  });
  return losses;
}

using Tensors = std::map<std::string, std::vector<float>>;

Tensors saved_tensors(const fs::path& folder, std::int64_t step, TensorKind kind) {
  Tensors tensors;
  for (auto& [name, data] : test::whole_tensors(folder / checkpoint_name(step), test::tiny_gpt(),
                                                {TensorKind::weight, TensorKind::first_moment})) {
    if (name.first == kind) tensors[name.second] = data;
  }
  return tensors;
}

std::vector<float> through(CompressionFormat format, std::span<const float> values) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(encoded_bytes(format, std::ssize(values)).value));
  std::vector<float> decoded(values.size());
  encode(compressor_of(format), values, {}, bytes);
  decode(compressor_of(format), bytes, decoded);
  return decoded;
}

// Calls change(elements of a shard) for all shards of a parameter, which is its tensors one after the other.
template <class Change>
void change_shards(Tensors& tensors, std::int64_t ranks, const Change& change) {
  const Transformer model = test::tiny_gpt();
  for (const ParameterPlace& place : parameter_places(model)) {
    std::vector<float> whole;
    const std::vector<ParameterTensor> parts = parameter_tensors(model, place.layer, place.role);
    for (const ParameterTensor& part : parts) {
      const std::vector<float>& data = tensors.at(part.name);
      whole.insert(whole.end(), data.begin(), data.end());
    }
    const std::int64_t elements = std::ssize(whole), shard = (elements + ranks - 1) / ranks;
    for (std::int64_t begin = 0; elements >= kLeast && begin < elements; begin += shard) {
      change(std::span(whole).subspan(begin, std::min(shard, elements - begin)));
    }
    auto next = whole.begin();
    for (const ParameterTensor& part : parts) {
      std::vector<float>& data = tensors.at(part.name);
      std::copy_n(next, data.size(), data.begin());
      next += std::ssize(data);
    }
  }
}

// qgZ by its definition: all ranks have the gradient x / ranks. Nodes add up what their members have, encoded; then
// the nodes' sums are encoded and added up.
void exchange_shard(CompressionFormat format, std::int64_t ranks, std::span<float> shard) {
  const auto sum_of = [&](std::span<const float> values, std::int64_t times) {
    const std::vector<float> decoded = through(format, values);
    std::vector<float> sum = decoded;
    for (std::int64_t i = 1; i < times; ++i) {
      for (std::size_t e = 0; e < sum.size(); ++e) sum[e] += decoded[e];
    }
    return sum;
  };
  std::vector<float> own(shard.begin(), shard.end());
  for (float& x : own) x /= static_cast<float>(ranks);
  std::vector<float> sum = sum_of(own, ranks < 4 ? ranks : 2);
  if (ranks >= 4) sum = sum_of(sum, ranks / 2);
  std::ranges::copy(sum, shard.begin());
}

TEST(ZeroPlusPlusRun, AddsUpGradientsAsTheTwoHopsSay) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const ScratchFolder scratch("weft-zpp-gradients");
  // The whole gradient is that of one sequence on one rank.
  train({.layout = {}, .ranks = 1, .policy = "serial", .folder = scratch.path() / "one"});
  const Tensors of_one = saved_tensors(scratch.path() / "one", 1, TensorKind::first_moment);
  for (const CompressionFormat format : {CompressionFormat::int4, CompressionFormat::int8}) {
    for (const std::int64_t ranks : {2, 4, 8}) {
      Tensors expected = of_one;
      change_shards(expected, ranks, [&](std::span<float> shard) { exchange_shard(format, ranks, shard); });
      for (const int zero : {2, 3}) {
        const std::string policy = (zero == 2) == (format == CompressionFormat::int4) ? "serial" : "fsdp";
        SCOPED_TRACE(fmt::format("{} on {} ranks at zero {}, {}", name_of(format), ranks, zero, policy));
        const fs::path folder = scratch.path() / fmt::format("{}-{}-{}-{}", name_of(format), ranks, zero, policy);
        train({.layout = {.zero = zero, .compress = {format}}, .ranks = ranks, .policy = policy, .folder = folder});
        const Tensors found = saved_tensors(folder, 1, TensorKind::first_moment);
        for (const auto& [name, values] : expected) {
          if (name.find("embedding") != std::string::npos) continue;  // tied: its two gradients travel apart
          if (name.find("norm") == std::string::npos) {
            EXPECT_EQ(found.at(name), values) << name;
            continue;
          }
          // Norms are below kLeast and go round a ring, which adds them up in fp32.
          for (std::size_t i = 0; i < values.size(); ++i) {
            EXPECT_NEAR(found.at(name)[i], values[i], 1e-6 * std::abs(values[i])) << name;
          }
        }
      }
    }
  }
}

// Ranks with different gradients: of fp16, which is off by 2^-11 at each of the two hops, the sums are those of ZeRO 3.
TEST(ZeroPlusPlusRun, AddsUpWhatEveryRankHas) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  for (const std::int64_t ranks : {3, 4, 8}) {
    const ScratchFolder scratch(fmt::format("weft-zpp-ranks-{}", ranks));
    EncodedRun plain{.layout = {.zero = 3}, .ranks = ranks, .micro_batches = 2, .repeats = false};
    EncodedRun encoded = plain;
    encoded.layout.compress.format = CompressionFormat::fp16;
    plain.folder = scratch.path() / "plain";
    encoded.folder = scratch.path() / "encoded";
    train(plain);
    train(encoded);
    const Tensors expected = saved_tensors(plain.folder, 1, TensorKind::first_moment),
                  found = saved_tensors(encoded.folder, 1, TensorKind::first_moment);
    for (const auto& [name, values] : expected) {
      float largest = 0;
      for (const float value : values) largest = std::max(largest, std::abs(value));
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_NEAR(found.at(name)[i], values[i], 0.002 * largest) << name << " on " << ranks;
      }
    }
  }
}

TEST(ZeroPlusPlusRun, ComputesWithWeightsThatWentThroughTheFormat) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const ScratchFolder scratch("weft-zpp-weights");
  const fs::path plain = scratch.path() / "plain", at = plain / checkpoint_name(1);
  train({.layout = {}, .ranks = 1, .policy = "serial", .folder = plain});
  for (const CompressionFormat format : {CompressionFormat::int8, CompressionFormat::int4, CompressionFormat::bf16}) {
    for (const std::int64_t ranks : {2, 4}) {
      // The same state with weights that were encoded and decoded in `ranks` shards.
      const fs::path rounded = scratch.path() / fmt::format("rounded-{}-{}", name_of(format), ranks);
      fs::copy(at, rounded, fs::copy_options::recursive);
      Tensors weights = saved_tensors(plain, 1, TensorKind::weight);
      change_shards(weights, ranks,
                    [&](std::span<float> shard) { std::ranges::copy(through(format, shard), shard.begin()); });
      const CheckpointManifest manifest = read_checkpoint(at);
      ASSERT_EQ(manifest.files.size(), 1U);
      std::vector<NamedTensor> stored = read_safetensors(at / manifest.files.front().name);
      std::map<std::string, StoredPiece> pieces;
      for (const StoredPiece& piece : manifest.files.front().pieces) {
        if (piece.kind == TensorKind::weight) pieces[piece.name()] = piece;
      }
      const auto shapes = test::shapes_of(test::tiny_gpt());
      int changed = 0;
      for (NamedTensor& tensor : stored) {
        if (!pieces.contains(tensor.name)) continue;
        const StoredPiece& piece = pieces.at(tensor.name);
        const std::vector<float>& whole = weights.at(piece.tensor);
        const std::vector<float> before = tensor.data;
        const std::int64_t width = std::ssize(whole) / shapes.at(piece.tensor).front();
        for (std::int64_t e = piece.elements.begin; e < piece.elements.end; ++e) {
          const std::int64_t row = piece.rows.begin + e / piece.columns.size();
          tensor.data[e - piece.elements.begin] = whole[row * width + piece.columns.begin + e % piece.columns.size()];
        }
        changed += tensor.data != before ? 1 : 0;
      }
      ASSERT_GT(changed, 5);
      // In their places: what else the file says stays as it is.
      std::fstream file(rounded / manifest.files.front().name, std::ios::in | std::ios::out | std::ios::binary);
      for (const NamedTensor& tensor : stored) {
        if (!pieces.contains(tensor.name)) continue;
        file.seekp(pieces.at(tensor.name).offset);
        file.write(reinterpret_cast<const char*>(tensor.data.data()),
                   static_cast<std::streamsize>(tensor.data.size() * sizeof(float)));
      }
      file.close();
      ASSERT_TRUE(file.good());
      struct Case {
        int zero;
        std::int64_t secondary;
        std::string policy;
      };
      for (const auto& [zero, secondary, policy] :
           {Case{3, 0, "fsdp"}, Case{3, 2, "fsdp"}, Case{1, 0, "priority"}, Case{2, 0, "megatron-param"}}) {
        if (secondary == ranks) continue;
        SCOPED_TRACE(fmt::format("{} on {} ranks, zero {}, secondary {}", name_of(format), ranks, zero, secondary));
        EncodedRun expected{.layout = {.zero = zero},
                            .ranks = ranks,
                            .micro_batches = 2,
                            .steps = zero == 3 ? 1 : 2,  // the second one reads what the first one gathered
                            .policy = policy,
                            .from = rounded,
                            .described = at,
                            .repeats = false};
        EncodedRun found = expected;
        found.from = at;
        found.layout.compress_weights = format;
        found.layout.zero_secondary = secondary;
        const std::string name = fmt::format("{}-{}-{}-{}", name_of(format), ranks, zero, secondary);
        expected.folder = scratch.path() / ("expected-" + name);
        found.folder = scratch.path() / ("found-" + name);
        EXPECT_EQ(train(found), train(expected));
        EXPECT_EQ(saved_tensors(found.folder, found.steps, TensorKind::first_moment),
                  saved_tensors(expected.folder, found.steps, TensorKind::first_moment));
        // The shards themselves are not rounded.
        EXPECT_EQ(saved_tensors(found.folder, found.steps, TensorKind::weight),
                  saved_tensors(plain, 1, TensorKind::weight));
      }
    }
  }
}

// All together train, through several steps and micro-batches; coarse formats stay near what ZeRO 3 gives.
TEST(ZeroPlusPlusRun, TrainsLikeZero3) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  for (const char* policy : {"serial", "fsdp", "priority"}) {
    EncodedRun plain{
        .layout = {.zero = 3}, .micro_batches = 3, .steps = 6, .policy = policy, .trains = true, .repeats = false};
    EncodedRun encoded = plain;
    encoded.layout.zero_secondary = 2;
    encoded.layout.compress.format = CompressionFormat::int4;
    encoded.layout.compress_weights = CompressionFormat::int8;
    const std::vector<double> expected = train(plain), found = train(encoded);
    ASSERT_EQ(found.size(), expected.size());
    EXPECT_NE(found, expected);
    EXPECT_LT(found.back(), found.front());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i] / expected[i], 1, 0.01) << policy << " " << i;
  }
}

// ZeRO 1, 2 and 3 compute with the same weights, which went through the format shard by shard, and update from the same
// ones, which did not. One micro-batch on two ranks adds up the same two gradients.
TEST(ZeroPlusPlusRun, TrainsAlikeAtEveryStageThatGathersEncodedWeights) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  EncodedRun run{.layout = {.zero = 3, .compress_weights = CompressionFormat::int4},
                 .ranks = 2,
                 .steps = 5,
                 .policy = "serial",
                 .trains = true,
                 .repeats = false};
  const std::vector<double> expected = train(run);
  EncodedRun plain = run;
  plain.layout.compress_weights = CompressionFormat::none;
  EXPECT_NE(train(plain), expected);
  for (const int zero : {1, 2}) {
    for (const char* policy : {"serial", "megatron-param", "priority"}) {
      run.layout.zero = zero;
      run.policy = policy;
      const std::vector<double> found = train(run);
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_NEAR(found[i], expected[i], 1e-6 * expected[i]) << policy << ", zero " << zero << ", step " << i;
      }
    }
  }
}

// Micro-batches, layer groups and orders of execution add up the same gradients, and encoding repeats.
TEST(ZeroPlusPlusRun, IsTheSameInEveryOrder) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  EncodedRun run{.layout = {.zero = 3, .compress = {CompressionFormat::int4_stochastic}},
                 .micro_batches = 3,
                 .steps = 3,
                 .policy = "serial",
                 .trains = true,
                 .repeats = false};
  const std::vector<double> expected = train(run);
  for (const char* policy : {"serial", "fsdp", "megatron-param"}) {
    run.policy = policy;
    EXPECT_EQ(train(run), expected) << policy;
  }
}

}  // namespace
}  // namespace weft
