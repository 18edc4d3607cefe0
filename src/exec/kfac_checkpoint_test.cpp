// Checkpoints of training with K-FAC, on ranks that are threads: a run goes on to the bits of one that never stopped,
// and factors find their place in other layouts. Needs kernels.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/test_folder.hpp"
#include "comm/test_ranks.hpp"
#include "exec/checkpoint/load_curvature.hpp"
#include "exec/checkpoint/owned_pieces.hpp"
#include "exec/checkpoint/shard_check.hpp"
#include "exec/checkpoint/test_checkpoints.hpp"
#include "exec/test_fake_collectives.hpp"
#include "exec/test_training.hpp"
#include "planner/passes.hpp"

namespace weft {
namespace {

namespace fs = std::filesystem;
using test::ScratchFolder;

constexpr std::int64_t kSteps = 6, kSequences = 8;
const std::string kRun = "00112233445566778899aabbccddeeff";

struct KfacCase {
  Layout layout;
  std::int64_t ranks = 1;
  std::int64_t interval = 1;
  bool fills_bubbles = false;
  std::string name() const {
    return fmt::format("tp {} pp {} zero {} on {} ranks, interval {}{}", layout.tp, layout.pp, layout.zero, ranks,
                       interval, fills_bubbles ? ", in bubbles" : "");
  }
};

// Queries, keys and values are three parts of the rows that tensor-parallel ranks share, and gates and values two.
Transformer model_with_sections() {
  Transformer model = test::small_llama(4);
  model.hidden = 24;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 6;
  model.ffn = 20;
  model.vocab = 256;
  return model;
}

WholePlan plan_of(const KfacCase& c) {
  Layout layout = c.layout;
  layout.kfac_interval = c.interval;
  layout.micro_batch = 1;
  const PlanRequest request = test::PlannedLayout::request_of(model_with_sections(), layout, c.ranks,
                                                              kSequences * layout.pp * layout.tp / c.ranks);
  Overlap overlap;
  overlap.order.fill_bubbles = c.fills_bubbles;
  return overlapped_plan(request, test::build(request), "test", overlap);
}

TrainSettings settings_until(std::int64_t steps) {
  TrainSettings settings;
  settings.steps = steps;
  settings.optimizer = Optimizer::kfac;
  settings.kfac.learning_rate = 0.001;
  settings.kfac.damping = 0.1;
  return settings;
}

struct Stretch {
  std::int64_t from = 0, steps = kSteps, every = 0;
  bool on_streams = false;  // of an accelerator, instead of on this processor
};

// Trains from the checkpoint of step `from` (0: from the start) and saves there. Returns the losses.
std::vector<double> train(const KfacCase& c, const fs::path& folder, const Stretch& stretch) {
  const WholePlan plan = plan_of(c);
  const CheckpointJob checkpoint{
      .folder = folder, .every = stretch.every, .keep = 100, .run = R"({"seed":1})", .run_id = kRun};
  TrainJob job{plan, settings_until(stretch.steps), Corpus::generate(3, 4096), 1, true};
  job.checkpoint = &checkpoint;
  std::unique_ptr<CheckpointReader> reader;
  if (stretch.from > 0) {
    const fs::path saved = folder / checkpoint_name(stretch.from);
    reader = std::make_unique<CheckpointReader>(saved, read_checkpoint(saved));
    job.resume = reader.get();
    job.first_step = stretch.from;
  }
  std::vector<double> losses;
  test::FakeFabric fabric;
  local_ranks::on_ranks({.ranks = c.ranks}, {}, [&](Communicator& communicator) {
    TrainResult own;
    if (stretch.on_streams) {
      test::FakeAccelerator accelerator(5 + static_cast<unsigned>(communicator.rank()));
      test::FakeCollectives collectives(fabric, communicator.rank());
      own = train_rank(job, communicator, Processor(accelerator, &collectives));
    } else {
      own = train_rank(job, communicator, *make_kernels());
    }
    if (communicator.rank() == 0) losses = std::move(own.losses);
  });
  return losses;
}

std::map<std::string, std::vector<float>> pieces_in(const fs::path& checkpoint) {
  std::map<std::string, std::vector<float>> pieces;
  for (const StoredFile& file : read_checkpoint(checkpoint).files) {
    for (NamedTensor& tensor : read_safetensors(checkpoint / file.name)) pieces[tensor.name] = std::move(tensor.data);
  }
  return pieces;
}

class KfacCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  }
};

// After the first of three steps in which factors have their turns two thirds of them are not there yet.
TEST_F(KfacCheckpoint, GoesOnAsIfItHadNeverStopped) {
  using enum PipelineSchedule;
  const std::vector<KfacCase> cases{{{}, 1, 3},
                                    {{}, 2, 1, true},
                                    {{.pp = 2}, 2, 1, true},
                                    {{.pp = 2, .schedule = gpipe}, 4, 3, true},
                                    {{.tp = 2}, 2, 2},
                                    {{.pp = 2, .zero = 1}, 4, 2, true},
                                    {{.zero = 2}, 2, 1},
                                    {{.tp = 2, .pp = 2, .sequence_parallel = true}, 4, 1, true}};
  for (const KfacCase& c : cases) {
    SCOPED_TRACE(c.name());
    const ScratchFolder straight("kfac_straight"), parts("kfac_parts");
    const std::vector<double> expected = train(c, straight.path(), {.every = 1});
    std::vector<double> found;
    for (const Stretch& stretch : {Stretch{0, 1}, Stretch{1, 4, 2}, Stretch{4, kSteps}}) {
      const std::vector<double> losses = train(c, parts.path(), stretch);
      found.insert(found.end(), losses.begin(), losses.end());
    }
    EXPECT_EQ(found, expected);
    for (const std::int64_t step : {1, 2, 4, 6}) {
      EXPECT_EQ(pieces_in(parts.path() / checkpoint_name(step)), pieces_in(straight.path() / checkpoint_name(step)))
          << "step " << step;
    }
    if (HasFailure()) return;
  }
}

// The factors of data-parallel and pipeline ranks are those of one rank, so only the order of sums differs.
TEST_F(KfacCheckpoint, GoesOnInAnotherLayout) {
  const ScratchFolder straight("kfac_one"), chain("kfac_chain");
  const std::vector<double> expected = train({{}, 1, 2}, straight.path(), {.steps = 10});
  const std::vector<KfacCase> layouts{
      {{}, 1, 2}, {{}, 2, 2, true}, {{.pp = 2}, 2, 2, true}, {{.pp = 2, .zero = 1}, 4, 2}, {{.pp = 4}, 4, 2, true}};
  std::vector<double> found;
  for (const KfacCase& c : layouts) {
    const std::int64_t from = std::ssize(found);
    const bool on_streams = c.ranks == 2;
    const std::vector<double> losses = train(c, chain.path(), {from, from + 2, 0, on_streams});
    found.insert(found.end(), losses.begin(), losses.end());
  }
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t step = 0; step < found.size(); ++step) {
    EXPECT_NEAR(found[step] / expected[step], 1, 1e-4) << "step " << step;
  }
}

// The ranks of a layout with what a checkpoint gives them, without training.
struct LoadedRanks {
  LoadedRanks(const KfacCase& c, const fs::path& checkpoint) : plan(plan_of(c)) {
    const CheckpointReader reader(checkpoint, read_checkpoint(checkpoint));
    const std::unique_ptr<Kernels> kernels = make_kernels();
    for (std::int64_t rank = 0; rank < c.ranks; ++rank) {
      views.push_back(std::make_unique<RankView>(plan, make_id<Rank>(rank)));
      parameters.push_back(std::make_unique<ParameterStates>(*views.back()));
      const TrainSettings settings = settings_until(kSteps);
      load_state(reader, *views.back(), *parameters.back(), kinds_of(settings));
      known.push_back(load_curvature(reader, *views.back(), *parameters.back(), settings.kfac, *kernels));
    }
  }

  void save(const fs::path& folder, std::int64_t step) const {
    for (std::size_t r = 0; r < views.size(); ++r) {
      const std::size_t items = saved_items(*parameters[r]);
      ShardWriter writer(views[r]->memory(), owned_pieces(*parameters[r], kinds_of(settings_until(kSteps))), items,
                         static_cast<std::int64_t>(r), kRun);
      for (std::size_t item = 0; item < items; ++item) writer.copy(item);
      writer.write(partial_folder(folder, step, kRun), step);
    }
    put_together(folder, {step, {}, std::ssize(views), 100, kRun});
  }

  const CurvatureFactor& factor(std::size_t rank, std::size_t number) const {
    return parameters[rank]->factors()[number];
  }

  WholePlan plan;
  std::vector<std::unique_ptr<RankView>> views;
  std::vector<std::unique_ptr<ParameterStates>> parameters;
  std::vector<std::deque<bool>> known;
};

float element(const Matrix& x, std::int64_t row, std::int64_t column) {
  return floats_of(x.row(row))[static_cast<std::size_t>(column)];
}

// Numbers of the rows of the whole that a rank has. Of 4 heads of 6 and 2 key/value heads, rank r of 2 has queries
// 12 r to 12 r + 11, keys 24 + 6 r and on, values 36 + 6 r and on; of 20 gates and 20 values ten each; of the inputs of
// the products that go back into the stream, half.
std::vector<std::int64_t> rows_of_part(Role role, std::int32_t part, std::int64_t rank) {
  std::vector<std::int64_t> rows;
  const auto add = [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) rows.push_back(first + i);
  };
  if (role == Role::qkv && part == 1) {
    add(12 * rank, 12);
    add(24 + 6 * rank, 6);
    add(36 + 6 * rank, 6);
  } else if (role == Role::ffn_in && part == 1) {
    add(10 * rank, 10);
    add(20 + 10 * rank, 10);
  } else if (role == Role::attention_out && part == 0) {
    add(12 * rank, 12);
  } else if (role == Role::ffn_out && part == 0) {
    add(10 * rank, 10);
  } else {
    add(0, 24);
  }
  return rows;
}

TEST_F(KfacCheckpoint, GivesTensorParallelRanksTheBlocksOfTheirParts) {
  const ScratchFolder scratch("kfac_blocks");
  const KfacCase one{{}, 1, 1}, two{{.tp = 2}, 2, 1};
  train(one, scratch.path(), {.steps = 2});
  const LoadedRanks whole(one, scratch.path() / checkpoint_name(2)), halves(two, scratch.path() / checkpoint_name(2));
  halves.save(scratch.path(), 3);
  const LoadedRanks joined(one, scratch.path() / checkpoint_name(3));
  const std::size_t factors = whole.parameters[0]->factors().size();
  ASSERT_EQ(factors, 4U * 4U * 2U);  // layers, products, of inputs and of outputs
  for (std::size_t f = 0; f < factors; ++f) {
    const CurvatureFactor& all = whole.factor(0, f);
    const Role role = whole.parameters[0]->all()[all.parameter].role;
    SCOPED_TRACE(fmt::format("{} {}", all.tensor, all.part));
    EXPECT_TRUE(whole.known[0][f] && joined.known[0][f]);
    std::vector<std::vector<bool>> together(all.average.rows, std::vector<bool>(all.average.rows));
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      const Matrix& part = halves.factor(rank, f).average;
      const std::vector<std::int64_t> rows = rows_of_part(role, all.part, rank);
      ASSERT_EQ(part.rows, std::ssize(rows));
      for (std::int64_t r = 0; r < part.rows; ++r) {
        for (std::int64_t c = 0; c < part.rows; ++c) {
          ASSERT_EQ(element(part, r, c), element(all.average, rows[r], rows[c]));
          together[rows[r]][rows[c]] = true;
        }
      }
    }
    for (std::int64_t r = 0; r < all.average.rows; ++r) {
      for (std::int64_t c = 0; c < all.average.rows; ++c) {
        ASSERT_EQ(element(joined.factor(0, f).average, r, c), together[r][c] ? element(all.average, r, c) : 0.0F);
      }
    }
  }
}

TEST_F(KfacCheckpoint, SaysWhichFactorItLacks) {
  const ScratchFolder scratch("kfac_lacks");
  train({{.tp = 2}, 2, 1}, scratch.path(), {.steps = 1});
  CheckpointManifest manifest = read_manifest(scratch.path() / checkpoint_name(1));
  const std::vector<TensorKind> kinds = kinds_of(settings_until(1));
  const auto words = [&] { return test::error_of([&] { check_cover("c", manifest, model_with_sections(), kinds); }); };
  EXPECT_EQ(words(), "");
  auto& pieces = manifest.files[1].pieces;
  std::erase_if(pieces, [](const StoredPiece& p) {
    return p.kind == TensorKind::output_factor && p.tensor == "layers.2.qkv.weight";
  });
  EXPECT_EQ(words(), "c: has 24 of 48 elements of the diagonal of layers.2.qkv.weight output_factor");
  std::erase_if(pieces, [](const StoredPiece& p) { return is_of_curvature(p.kind); });
  std::erase_if(manifest.files[0].pieces, [](const StoredPiece& p) { return is_of_curvature(p.kind); });
  EXPECT_EQ(words(), "c: has 0 of 24 elements of the diagonal of layers.0.qkv.weight input_factor");
}

}  // namespace
}  // namespace weft
