// What one layout saves, any other loads: weights and moments, element by element. No kernels needed.
#include <gtest/gtest.h>

#include <memory>

#include "base/test_folder.hpp"
#include "exec/checkpoint/checkpoint_reader.hpp"
#include "exec/checkpoint/shard_check.hpp"
#include "exec/checkpoint/shard_writer.hpp"
#include "exec/checkpoint/test_checkpoints.hpp"

namespace weft {
namespace {

namespace fs = std::filesystem;
using test::PlannedLayout, test::ScratchFolder, test::WholeTensors;

const std::string kRunId = "0123456789abcdef0123456789abcdef";
const std::vector<TensorKind> kAllKinds = {TensorKind::weight, TensorKind::first_moment, TensorKind::second_moment};

struct Case {
  std::string name;
  Layout layout;
  std::int64_t ranks;
};

std::vector<Case> cases() {
  using enum PipelineSchedule;
  return {
      {"one rank", {}, 1},
      {"dp 2", {}, 2},
      {"dp 3, zero 1", {.zero = 1}, 3},
      {"dp 2, zero 2", {.zero = 2}, 2},
      {"dp 3, zero 3", {.zero = 3}, 3},
      {"dp 4, zero 1, 2 shards", {.zero = 1, .zero_shards = 2}, 4},
      {"dp 4, zero 2", {.zero = 2}, 4},
      {"dp 6, zero 2, 3 shards", {.zero = 2, .zero_shards = 3}, 6},
      {"dp 4, zero 3, 2 shards", {.zero = 3, .zero_shards = 2}, 4},
      {"dp 3, zero 1, 1 shard", {.zero = 1, .zero_shards = 1}, 3},
      {"tp 2", {.tp = 2}, 2},
      {"tp 2, sequence parallel, dp 2, zero 1", {.tp = 2, .zero = 1, .sequence_parallel = true}, 4},
      {"pp 2", {.pp = 2}, 2},
      {"pp 2, vpp 2, dp 2, zero 2", {.pp = 2, .vpp = 2, .zero = 2, .schedule = interleaved}, 4},
      {"pp 4, dualpipe", {.pp = 4, .vpp = 2, .schedule = dualpipe}, 4},
      {"pp 2, dp 2, dualpipe, zero 1", {.pp = 2, .vpp = 2, .zero = 1, .schedule = dualpipe}, 4},
      {"pp 3, uneven", {.pp = 3, .stage_layers = {1, 2, 1}}, 3},
      {"cp 2", {.cp = 2}, 2},
      {"cp 2, dp 2, zero 3", {.cp = 2, .zero = 3}, 4},
      {"tp 2, pp 2", {.tp = 2, .pp = 2}, 4},
      {"tp 2, cp 2, pp 2, dp 2, zero 3, 2 shards", {.tp = 2, .cp = 2, .pp = 2, .zero = 3, .zero_shards = 2}, 16},
      {"tp 2, cp 2, pp 2, dp 2, zero 1", {.tp = 2, .cp = 2, .pp = 2, .zero = 1}, 16},
  };
}

// For models with experts: what one rank holds of them, others do not.
std::vector<Case> expert_cases() {
  return {
      {"one rank", {}, 1},
      {"dp 2, ep 2", {.ep = 2}, 2},
      {"dp 4, ep 2, zero 1", {.ep = 2, .zero = 1}, 4},
      {"tp 2, dp 2, ep 2", {.tp = 2, .ep = 2}, 4},
      {"dp 6, ep 2, zero 3", {.ep = 2, .zero = 3}, 6},
      {"dp 2, etp 2", {.etp = 2}, 2},
      {"pp 2, dp 2, ep 2, zero 2", {.pp = 2, .ep = 2, .zero = 2}, 4},
      {"dp 4, ep 4", {.ep = 4}, 4},
      {"tp 2, sequence parallel, dp 4, ep 2, zero 2", {.tp = 2, .ep = 2, .zero = 2, .sequence_parallel = true}, 8},
  };
}

std::vector<Transformer> models() {
  // A vocabulary that no tensor-parallel size divides.
  Transformer gpt = test::small_gpt(4), llama = test::small_llama(4);
  for (Transformer* model : {&gpt, &llama}) {
    model->hidden = 24;
    model->heads = 4;
    model->kv_heads = 2;
    model->head_dim = 8;
    model->ffn = 40;
    model->vocab = 251;
    model->max_seq = 16;
  }
  Transformer copied = llama;  // tensor-parallel ranks share the only key/value head
  copied.name = "one key head";
  copied.kv_heads = 1;
  copied.qkv_bias = true;
  Transformer latent = llama;
  latent.name = "latent";
  latent.kv_heads = 4;
  latent.head_dim = 6;
  latent.latent =
      LatentAttention{.q_rank = 7, .kv_rank = 5, .nope_head_dim = 4, .rope_head_dim = 2, .value_head_dim = 3};
  return {gpt, llama, copied, latent};
}

// Biases, and shared experts without them.
std::vector<Transformer> expert_models() {
  std::vector<Transformer> all = models();
  for (Transformer& model : all) {
    model.experts = Experts{.count = 4, .top_k = 2, .ffn = 12, .capacity_factor = 1.5, .every = 2};
    model.name += "-moe";
  }
  all.back().experts->shared_ffn = 20;
  return all;
}

// Every element of the model a number of its own.
WholeTensors numbered(const Transformer& model) {
  WholeTensors tensors;
  float next = 1;
  for (const TensorKind kind : kAllKinds) {
    for (const auto& [name, shape] : test::shapes_of(model)) {
      std::vector<float>& tensor = tensors[{kind, name}];
      tensor.resize(test::size_of(shape));
      for (float& element : tensor) element = next++;
    }
  }
  EXPECT_LT(next, 1 << 24);  // beyond it numbers would be equal
  return tensors;
}

// As one rank that holds everything would: each tensor one rectangle.
void write_whole(const fs::path& folder, std::int64_t step, const Transformer& model, const WholeTensors& tensors) {
  const auto shapes = test::shapes_of(model);
  std::int64_t bytes = 0;
  for (const auto& [key, data] : tensors) bytes += std::ssize(data) * 4;
  const RankMemory memory(Bytes{bytes}, nullptr);
  Vector next{{memory.data(), ElementType::fp32}, 0};
  std::vector<OwnedPiece> pieces;
  for (const auto& [key, data] : tensors) {
    const std::vector<std::int64_t>& shape = shapes.at(key.second);
    const std::int64_t size = std::ssize(data), rows = shape.front();
    next = {next.data + next.size, size};
    memory.write(data, next);
    pieces.push_back({{key.second, key.first, {0, rows}, {0, size / rows}, {0, size}, 0},
                      0,
                      Matrix::dense(next.data, 1, size),
                      shape});
  }
  ShardWriter writer(memory, std::move(pieces), 1, 0, kRunId);
  writer.copy(0);
  writer.write(partial_folder(folder, step, kRunId), step);
  put_together(folder, {step, {}, 1, 100, kRunId});
}

// The ranks of a layout, with their memory.
class Ranks {
 public:
  Ranks(const Transformer& model, const Case& c) : planned_(model, c.layout, c.ranks, "serial", 2) {
    for (std::int64_t rank = 0; rank < c.ranks; ++rank) {
      views_.push_back(std::make_unique<RankView>(planned_.whole, make_id<Rank>(rank)));
      parameters_.push_back(std::make_unique<ParameterStates>(*views_.back()));
    }
  }

  void load(const fs::path& checkpoint) const {
    const CheckpointReader reader(checkpoint, read_checkpoint(checkpoint));
    for (std::size_t r = 0; r < views_.size(); ++r) load_state(reader, *views_[r], *parameters_[r], kAllKinds);
  }

  void save(const fs::path& folder, std::int64_t step) const {
    for (std::size_t r = 0; r < views_.size(); ++r) {
      const std::size_t count = parameters_[r]->all().size();
      ShardWriter writer(views_[r]->memory(), owned_pieces(*parameters_[r], kAllKinds), count,
                         static_cast<std::int64_t>(r), kRunId);
      for (std::size_t p = 0; p < count; ++p) writer.copy(p);
      writer.write(partial_folder(folder, step, kRunId), step);
    }
    put_together(folder, {step, {}, std::ssize(views_), 100, kRunId});
  }

  // Everything that a rank holds, copies too, against the whole.
  void expect_holds(const WholeTensors& tensors) const {
    for (std::size_t r = 0; r < views_.size(); ++r) {
      for (const ParameterState& p : parameters_[r]->all()) {
        const bool whole = parameters_[r]->holds_whole(p, p.weight);
        const ElementRange own = parameters_[r]->own(p), held = whole ? ElementRange{0, p.elements} : own;
        expect_part(p, TensorKind::weight, held, floats_of({views_[r]->data(p.weight), held.size()}), tensors);
        for (const int which : {0, 1}) {
          expect_part(p, static_cast<TensorKind>(which + 1), own, floats_of(parameters_[r]->own_moment(p, which)),
                      tensors);
        }
      }
    }
  }

 private:
  static void expect_part(const ParameterState& p, TensorKind kind, ElementRange range, std::span<const float> data,
                          const WholeTensors& tensors) {
    for (const HeldTensor& held : p.tensors) {
      const std::vector<float>& whole = tensors.at({kind, held.whole.name});
      for_each_range(held, {range.begin - held.offset, range.end - held.offset}, [&](const HeldRange& held_range) {
        for (std::int64_t i = 0; i < held_range.count; ++i) {
          ASSERT_EQ(data[held.offset + held_range.in_part + i - range.begin], whole[held_range.in_whole + i])
              << held.whole.name << " element " << held_range.in_whole + i;
        }
      });
    }
  }

  PlannedLayout planned_;
  std::vector<std::unique_ptr<RankView>> views_;
  std::vector<std::unique_ptr<ParameterStates>> parameters_;
};

// From each layout to the next in the list, and from that on: so every layout saves and every layout loads.
void expect_all_load_what_all_save(const Transformer& model, const std::vector<Case>& cases) {
  const ScratchFolder scratch("ckpt_layouts_" + model.name);
  const WholeTensors tensors = numbered(model);
  std::int64_t step = 1;
  write_whole(scratch.path(), step, model, tensors);
  for (const Case& c : cases) {
    SCOPED_TRACE(model.name + ", " + c.name);
    const Ranks ranks(model, c);
    ranks.load(scratch.path() / checkpoint_name(step));
    ranks.expect_holds(tensors);
    ranks.save(scratch.path(), ++step);
    EXPECT_EQ(test::whole_tensors(scratch.path() / checkpoint_name(step), model, kAllKinds), tensors);
    EXPECT_EQ(test::error_of(
                  [&] { check_cover("", read_manifest(scratch.path() / checkpoint_name(step)), model, kAllKinds); }),
              "");
    if (testing::Test::HasFailure()) return;
  }
}

// A test for every model, so that processes share them.
class CheckpointOfModel : public testing::TestWithParam<std::size_t> {};

TEST_P(CheckpointOfModel, LoadsIntoAnyLayout) {
  expect_all_load_what_all_save(models()[GetParam()], cases());
}
INSTANTIATE_TEST_SUITE_P(Models, CheckpointOfModel, testing::Range<std::size_t>(0, models().size()));

class CheckpointOfExperts : public testing::TestWithParam<std::size_t> {};

TEST_P(CheckpointOfExperts, LoadsWhereverTheyLie) {
  expect_all_load_what_all_save(expert_models()[GetParam()], expert_cases());
}
INSTANTIATE_TEST_SUITE_P(Models, CheckpointOfExperts, testing::Range<std::size_t>(0, expert_models().size()));

TEST(Checkpoint, IsSharedByRanksThatHoldTheSame) {
  const ScratchFolder scratch("ckpt_shared");
  const Transformer model = models().front();
  std::int64_t step = 0;
  for (const Layout& layout : {Layout{}, Layout{.zero = 1, .zero_shards = 2}, Layout{.zero = 3, .zero_shards = 2}}) {
    const Ranks ranks(model, {"dp 4", layout, 4});
    ranks.save(scratch.path(), ++step);
    std::vector<std::int64_t> elements;
    for (const StoredFile& file : read_checkpoint(scratch.path() / checkpoint_name(step)).files) {
      elements.push_back(0);
      for (const StoredPiece& piece : file.pieces) elements.back() += piece.elements.size();
    }
    ASSERT_EQ(elements.size(), 4U);
    // Each parameter in four, rounded up for all but the last.
    const std::int64_t all = elements[0] + elements[1] + elements[2] + elements[3];
    for (const std::int64_t own : elements)
      EXPECT_NEAR(static_cast<double>(own) / static_cast<double>(all), 0.25, 0.01) << "zero " << layout.zero;
  }
}

TEST(Checkpoint, SaysWhichTensorItLacks) {
  const ScratchFolder scratch("ckpt_lacks");
  const Transformer model = models().front();
  WholeTensors tensors = numbered(model);
  tensors.erase({TensorKind::second_moment, "layers.1.qkv.weight"});
  write_whole(scratch.path(), 1, model, tensors);
  const Ranks ranks(model, {"one rank", {}, 1});
  const std::string words = test::error_of([&] { ranks.load(scratch.path() / "step-00000001"); });
  EXPECT_TRUE(words.ends_with("of layers.1.qkv.weight second_moment")) << words;
  EXPECT_NE(words.find("has 0 of "), std::string::npos) << words;
  const CheckpointManifest manifest = read_manifest(scratch.path() / "step-00000001");
  const std::string at_once = test::error_of([&] { check_cover("c", manifest, model, kAllKinds); });
  EXPECT_TRUE(at_once.starts_with("c: has 0 of ")) << at_once;
  EXPECT_TRUE(at_once.ends_with("of layers.1.qkv.weight second_moment")) << at_once;
}

}  // namespace
}  // namespace weft
