// Training that saves and goes on, on ranks that are threads. Needs kernels.
#include <gtest/gtest.h>

#include <atomic>

#include "base/test_folder.hpp"
#include "comm/test_ranks.hpp"
#include "exec/checkpoint/owned_pieces.hpp"
#include "exec/checkpoint/test_checkpoints.hpp"
#include "exec/test_fake_collectives.hpp"
#include "exec/test_training.hpp"

namespace weft {
namespace {

namespace fs = std::filesystem;
using test::PlannedLayout, test::ScratchFolder, test::WholeTensors;

constexpr std::int64_t kSteps = 6;
const std::string kTrainingRun = "00112233445566778899aabbccddeeff";

Transformer even_gpt() {
  Transformer model = test::tiny_gpt();
  model.heads = model.kv_heads = 2;  // for two tensor-parallel ranks
  model.head_dim = 12;
  return model;
}

struct Case {
  std::string policy = "serial";
  Layout layout;
  std::int64_t ranks = 2;
  Optimizer optimizer = Optimizer::adam;
  std::string name() const {
    return fmt::format("{} tp {} pp {} cp {} zero {} on {} ranks", policy, layout.tp, layout.pp, layout.cp, layout.zero,
                       ranks);
  }
};

// A run of `c` that saves to `folder`, from the checkpoint of step `from` there (0: from the start).
struct Run {
  std::int64_t steps = kSteps, from = 0, every = 0, keep = 100;
  bool stop_on_error = true;
  std::function<bool()> asked_to_stop = {};
  KeptTensors* kept = nullptr;
  bool on_streams = false;  // of an accelerator, instead of on this processor
};

TrainSettings settings_of(const Case& c, std::int64_t steps) {
  TrainSettings settings;
  settings.steps = steps;
  settings.optimizer = c.optimizer;
  settings.sgd.momentum = 0.9;
  return settings;
}

TrainResult train(const Case& c, const fs::path& folder, const Run& run) {
  Layout layout = c.layout;
  layout.micro_batch = 2;
  const std::int64_t data_ranks = c.ranks / (layout.tp * layout.pp * layout.cp);
  const PlannedLayout planned(even_gpt(), layout, c.ranks, c.policy, 8 / (2 * data_ranks));
  CheckpointJob checkpoint{folder,          run.every,         run.keep, run.stop_on_error,
                           R"({"seed":1})", run.asked_to_stop, {},       kTrainingRun};
  TrainJob job{planned.whole, settings_of(c, run.steps), Corpus::generate(3, 4096), 1, true, run.kept};
  job.checkpoint = &checkpoint;
  std::unique_ptr<CheckpointReader> reader;
  if (run.from > 0) {
    const fs::path saved = folder / checkpoint_name(run.from);
    reader = std::make_unique<CheckpointReader>(saved, read_checkpoint(saved));
    job.resume = reader.get();
    job.first_step = run.from;
  }
  TrainResult result;
  test::FakeFabric fabric;
  local_ranks::on_ranks({.ranks = c.ranks}, {}, [&](Communicator& communicator) {
    TrainResult own;
    if (run.on_streams) {
      test::FakeAccelerator accelerator(5 + static_cast<unsigned>(communicator.rank()));
      test::FakeCollectives collectives(fabric, communicator.rank());
      own = train_rank(job, communicator, Processor(accelerator, &collectives));
    } else {
      own = train_rank(job, communicator, *make_kernels());
    }
    if (communicator.rank() == 0) result = std::move(own);
  });
  return result;
}

WholeTensors saved(const Case& c, const fs::path& folder, std::int64_t step) {
  return test::whole_tensors(folder / checkpoint_name(step), even_gpt(), kinds_of(settings_of(c, kSteps)));
}

// Every ZeRO stage, policy, kind of parallelism and optimizer.
std::vector<Case> cases() {
  using enum PipelineSchedule;
  return {{"serial", {}, 2},
          {"serial", {.zero = 2}, 2},
          {"ddp", {}, 2, Optimizer::sgd},
          {"ddp", {.zero = 1}, 2},
          {"priority", {}, 2},
          {"priority", {.zero = 1, .clip_grad = 1e-3}, 2},
          {"priority", {.zero = 3}, 2},
          {"fsdp", {.zero = 2}, 2},
          {"fsdp", {.zero = 3}, 2},
          {"megatron-param", {.zero = 1}, 2},
          {"serial", {.tp = 2}, 2},
          {"ddp", {.pp = 2}, 2},
          {"priority", {.cp = 2}, 2},
          {"ddp", {.pp = 2, .zero = 1}, 4},
          {"priority", {.pp = 2, .vpp = 1, .schedule = gpipe}, 2}};
}

class CheckpointTraining : public testing::Test {
 protected:
  void SetUp() override {
    if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  }
};

// Six steps in one go, and three, then three more from what was saved: the same bits.
TEST_F(CheckpointTraining, GoesOnAsIfItHadNeverStopped) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name());
    const ScratchFolder straight("ckpt_straight"), halves("ckpt_halves");
    const TrainResult whole = train(c, straight.path(), {});
    const TrainResult first = train(c, halves.path(), {.steps = 3});
    const TrainResult second = train(c, halves.path(), {.from = 3});
    ASSERT_EQ(first.losses.size(), 3U);
    std::vector<double> losses = first.losses;
    losses.insert(losses.end(), second.losses.begin(), second.losses.end());
    EXPECT_EQ(losses, whole.losses);
    EXPECT_EQ(saved(c, halves.path(), kSteps), saved(c, straight.path(), kSteps));
    if (HasFailure()) return;
  }
}

// Three steps on processors and three in the streams of an accelerator, or the other way round, in another layout too.
// Sums over ranks may be taken in another order; a parameter or moment that is lost or mixed up shows at the next step.
TEST_F(CheckpointTraining, GoesOnOnAnotherKindOfDevice) {
  const std::vector<std::pair<Case, Case>> pairs = {
      {{"serial", {}, 1}, {"serial", {}, 1}},
      {{"priority", {.zero = 1}, 2}, {"priority", {.zero = 1}, 2}},
      {{"fsdp", {.zero = 3}, 2}, {"serial", {.tp = 2}, 2}},
      {{"ddp", {.pp = 2}, 2}, {"priority", {.zero = 3}, 2}},
  };
  for (const auto& [first, second] : pairs) {
    SCOPED_TRACE(first.name() + ", then " + second.name());
    const ScratchFolder straight("ckpt_straight");
    const std::vector<double> expected = train({}, straight.path(), {}).losses;
    for (const bool streams_first : {false, true}) {
      SCOPED_TRACE(streams_first);
      const ScratchFolder halves("ckpt_halves");
      std::vector<double> losses = train(first, halves.path(), {.steps = 3, .on_streams = streams_first}).losses;
      const std::vector<double> rest = train(second, halves.path(), {.from = 3, .on_streams = !streams_first}).losses;
      losses.insert(losses.end(), rest.begin(), rest.end());
      ASSERT_EQ(losses.size(), expected.size());
      for (std::size_t step = 0; step < losses.size(); ++step) {
        EXPECT_NEAR(losses[step], expected[step], 1e-5 * expected[step]) << "step " << step + 1;
      }
    }
  }
}

// A save in the midst of training has what a run that ends there leaves: nothing of the steps that were under way.
TEST_F(CheckpointTraining, SavesOneStepWhateverRunsBeside) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name());
    const ScratchFolder every("ckpt_every"), last("ckpt_last");
    const TrainResult result = train(c, every.path(), {.every = 2});
    EXPECT_EQ(checkpoints_in(every.path()), (std::vector<std::int64_t>{6, 4, 2}));
    EXPECT_EQ(result.saves.saved, 3);
    EXPECT_EQ(result.saves.failed, 0);
    train(c, last.path(), {.steps = 4});
    EXPECT_EQ(saved(c, every.path(), 4), saved(c, last.path(), 4));
    if (HasFailure()) return;
  }
}

TEST_F(CheckpointTraining, SavesEveryStepIfAskedTo) {
  for (const char* policy : {"serial", "priority"}) {
    const Case c{policy, {.zero = 1}, 2};
    const ScratchFolder scratch("ckpt_each");
    const TrainResult result = train(c, scratch.path(), {.every = 1, .keep = 3});
    EXPECT_EQ(result.saves.saved, kSteps);
    EXPECT_EQ(checkpoints_in(scratch.path()), (std::vector<std::int64_t>{6, 5, 4}));
    const ScratchFolder last("ckpt_each_last");
    train(c, last.path(), {.steps = 5});
    EXPECT_EQ(saved(c, scratch.path(), 5), saved(c, last.path(), 5));
  }
}

// What is on disk is what the ranks hold at the end.
TEST_F(CheckpointTraining, SavesTheWeightsThatWereTrained) {
  for (const Case& c : {Case{"priority", {.zero = 2}, 2}, Case{"ddp", {}, 2}}) {
    const ScratchFolder scratch("ckpt_weights");
    KeptTensors kept;
    train(c, scratch.path(), {.kept = &kept});
    const WholeTensors tensors = saved(c, scratch.path(), kSteps);
    std::size_t weights = 0;
    for (const NamedTensor& tensor : kept.last.take()) {
      EXPECT_EQ(tensors.at({TensorKind::weight, tensor.name}), tensor.data) << tensor.name;
      ++weights;
    }
    EXPECT_EQ(tensors.size(), 3 * weights);
  }
}

// Asked during step 2, all ranks run one more step after they know, and save.
TEST_F(CheckpointTraining, StopsTogetherWhenOneIsAsked) {
  for (const char* policy : {"serial", "priority"}) {
    const Case c{policy, {.zero = 1}, 2};
    const ScratchFolder scratch("ckpt_stop"), straight("ckpt_stop_straight");
    std::atomic<int> asked = 0;
    // Asked once by each rank at the end of every step: the fifth question is in the third step.
    const TrainResult result =
        train(c, scratch.path(), {.steps = 50, .asked_to_stop = [&] { return asked.fetch_add(1) == 4; }});
    EXPECT_TRUE(result.stopped);
    const std::int64_t steps = std::ssize(result.losses);
    EXPECT_EQ(steps, 5);  // said at the end of the third, read at the end of the fourth, so the fifth is the last
    EXPECT_EQ(result.run.steps, steps);
    EXPECT_EQ(checkpoints_in(scratch.path()), (std::vector<std::int64_t>{steps}));
    const TrainResult other = train(c, straight.path(), {.steps = steps});
    EXPECT_EQ(result.losses, other.losses);
    EXPECT_EQ(saved(c, scratch.path(), steps), saved(c, straight.path(), steps));
  }
}

// A folder that cannot be made: a file has its name.
TEST_F(CheckpointTraining, StopsOrGoesOnWhereItCannotSave) {
  const Case c{"ddp", {}, 2};
  const ScratchFolder scratch("ckpt_unsavable");
  train(c, scratch.path(), {.steps = 2});
  const auto block = [&](std::int64_t step) {
    std::ofstream(partial_folder(scratch.path(), step, kTrainingRun)) << "in the way";
  };
  block(4);
  std::string words;
  try {
    train(c, scratch.path(), {.from = 2, .every = 2});
  } catch (const RunFailed& failure) {
    words = failure.what();
  }
  EXPECT_NE(words.find("the checkpoint of step 4 was not saved"), std::string::npos) << words;
  EXPECT_NE(words.find(".step-00000004." + kTrainingRun + ".partial"), std::string::npos) << words;
  EXPECT_EQ(checkpoints_in(scratch.path()), (std::vector<std::int64_t>{2}));

  block(4);
  const TrainResult result = train(c, scratch.path(), {.from = 2, .every = 2, .stop_on_error = false});
  EXPECT_EQ(result.saves.failed, 1);
  EXPECT_EQ(result.saves.saved, 1);
  EXPECT_EQ(checkpoints_in(scratch.path()), (std::vector<std::int64_t>{6, 2}));
}

// All shards are there, but rank 0 cannot give the folder its name: something has it already.
TEST_F(CheckpointTraining, IsNotSavedWhereItCannotBePutTogether) {
  const Case c{"priority", {.zero = 1}, 2};
  const ScratchFolder scratch("ckpt_no_name");
  fs::create_directories(scratch.path() / "step-00000002" / "in the way");
  const TrainResult result = train(c, scratch.path(), {.steps = 4, .every = 2, .stop_on_error = false});
  EXPECT_EQ(result.saves.failed, 1);
  EXPECT_EQ(result.saves.saved, 1);
  EXPECT_FALSE(fs::exists(partial_folder(scratch.path(), 2, kTrainingRun)));
  EXPECT_EQ(read_checkpoint(scratch.path() / "step-00000004").step, 4);
  const ScratchFolder again("ckpt_no_name_stop");
  fs::create_directories(again.path() / "step-00000002" / "in the way");
  EXPECT_THROW(train(c, again.path(), {.steps = 4, .every = 2}), RunFailed);
  EXPECT_FALSE(fs::exists(partial_folder(again.path(), 2, kTrainingRun)));
}

}  // namespace
}  // namespace weft
