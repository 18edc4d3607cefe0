// Hanayo, DualPipe, DualPipeV and 1F1B with other warm-ups: their orders by hand, what they hold, and the idle time of
// DualPipe's pairs by its authors' formula.
#include "graph/waves.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "graph/layout.hpp"

namespace weft {
namespace {

PipelineShape waves(std::int64_t stages, std::int64_t micro_batches, std::int64_t chunks = 2) {
  return {stages, chunks, micro_batches, true};
}

// "F0.1": forward of micro-batch 1 in chunk 0; a pair stands in brackets.
std::string written_out(const std::vector<PipelinePass>& order) {
  std::string text;
  for (const PipelinePass& pass : order) {
    if (pass.with_next) text += '(';
    text += pass.kind == BlockKind::forward ? 'F' : pass.kind == BlockKind::weight_grad ? 'W' : 'B';
    text += fmt::format("{}.{}", pass.chunk, pass.micro_batch.value);
    const bool ends_pair = &pass != order.data() && (&pass - 1)->with_next;
    text += ends_pair ? ") " : " ";
  }
  text.pop_back();
  return text;
}

std::int64_t most_held(const std::vector<PipelinePass>& order) {
  std::int64_t now = 0, most = 0;
  for (const PipelinePass& pass : order) {
    now += pass.kind == BlockKind::forward ? 1 : ends_pass(pass.kind) ? -1 : 0;
    most = std::max(most, now);
  }
  return most;
}

// By hand from the eight phases of PyTorch's ScheduleDualPipeV, rank 0 and 1 of 2 with 4 micro-batches: 2 (p - r - 1)
// times F0; r + 1 times F0 F1; p - r - 1 times I1 W1 F1; m - 2p + r + 1 times F0 B1 and F1 B0, overlapped but for the
// first on the last rank; p - r - 1 times B1 and F1 B0 overlapped; r + 1 times B1 B0 of which the second half is split;
// p - r - 1 times W I0; what is left of W. A whole backward B is written as B W.
TEST(DualPipeV, OrderOfTwoStagesAndFourMicroBatches) {
  const PipelineOrders orders = dual_pipe_waves(waves(2, 4), true);
  EXPECT_EQ(written_out(orders[0]),
            "F0.0 F0.1 F0.2 F1.0 B1.0 W1.0 F1.1 (F0.3 B1.1) W1.1 (F1.2 B0.0) W0.0 B1.2 W1.2 (F1.3 B0.1) W0.1 B1.3 W1.3 "
            "B0.2 W0.2 B0.3 W0.3");
  EXPECT_EQ(written_out(orders[1]),
            "F0.0 F1.0 F0.1 F1.1 F0.2 B1.0 W1.0 (F1.2 B0.0) W0.0 (F0.3 B1.1) W1.1 (F1.3 B0.1) W0.1 B1.2 W1.2 B0.2 W0.2 "
            "B1.3 B0.3 W1.3 W0.3");
}

// DeepSeek's table of DualPipe and DualPipeV: the activations of PP + 1 chunks, where PP = 2p chunks are on p stages.
TEST(DualPipeV, HoldsTheActivationsOfOneChunkMoreThanThereAre) {
  for (std::int64_t p = 2; p <= 12; ++p) {
    for (const std::int64_t m : {2 * p, 2 * p + 1, 5 * p}) {
      for (const std::vector<PipelinePass>& order : dual_pipe_waves(waves(p, m), false)) {
        EXPECT_EQ(most_held(order), 2 * p + 1) << p << " stages, " << m << " micro-batches";
      }
    }
  }
}

// Runs all stages against each other; what stands together in a unit begins and ends together. Returns when the last
// stage has ended.
using Unit = std::vector<PipelinePass>;
std::int64_t end_of_units(const PipelineShape& shape, const std::vector<std::vector<Unit>>& units,
                          const PassTimes& times) {
  std::map<std::tuple<bool, std::int64_t, std::int32_t>, std::int64_t>
      ends;  // forward, chunk of the model, micro-batch
  std::vector<std::size_t> at(units.size(), 0);
  std::vector<std::int64_t> free_at(units.size(), 0);
  const auto ready_at = [&](std::int64_t stage, const PipelinePass& pass) -> std::optional<std::int64_t> {
    const std::int64_t number = shape.number_of(stage, pass.chunk);
    const auto ended = [&](bool forward, std::int64_t chunk) -> std::optional<std::int64_t> {
      const auto found = ends.find({forward, chunk, pass.micro_batch.value});
      if (found == ends.end()) return {};
      return found->second;
    };
    if (pass.kind == BlockKind::weight_grad) return 0;  // of its own stage, whose order is kept
    const auto begins = [&](std::int64_t n) { return n == 0 || (shape.two_directions && n == shape.stages); };
    if (pass.kind == BlockKind::forward) return begins(number) ? 0 : ended(true, number - 1);
    const bool is_last = number + 1 == shape.all_chunks() || begins(number + 1);
    return is_last ? ended(true, number) : ended(false, number + 1);
  };
  for (bool moves = true; moves;) {
    moves = false;
    for (std::size_t s = 0; s < units.size(); ++s) {
      if (at[s] == units[s].size()) continue;
      std::int64_t begin = free_at[s], length = 0;
      bool ready = true;
      for (const PipelinePass& pass : units[s][at[s]]) {
        const auto from = ready_at(static_cast<std::int64_t>(s), pass);
        ready = ready && from.has_value();
        begin = std::max(begin, from.value_or(0));
        length += pass.kind == BlockKind::forward      ? times.forward
                  : pass.kind == BlockKind::input_grad ? times.input_grad
                                                       : times.weight_grad;
      }
      if (!ready) continue;
      free_at[s] = begin + length;
      for (const PipelinePass& pass : units[s][at[s]]) {
        if (pass.kind == BlockKind::weight_grad) continue;
        const std::int64_t number = shape.number_of(static_cast<std::int64_t>(s), pass.chunk);
        ends[{pass.kind == BlockKind::forward, number, pass.micro_batch.value}] = free_at[s];
      }
      ++at[s];
      moves = true;
    }
  }
  for (std::size_t s = 0; s < units.size(); ++s) EXPECT_EQ(at[s], units[s].size()) << "stages wait for each other";
  return *std::max_element(free_at.begin(), free_at.end());
}

// Pairs, and the backwards that are whole at the authors': those from the first pair on, and all of the last stage.
std::vector<Unit> with_whole_backwards(const std::vector<PipelinePass>& order, bool is_last_stage) {
  std::vector<Unit> units;
  bool fills = !is_last_stage;
  for (const PipelinePass& pass : order) {
    fills = fills && !pass.with_next;
    const PipelinePass before = units.empty() ? PipelinePass{} : units.back().back();
    const bool is_rest_of_backward = pass.kind == BlockKind::weight_grad && before.kind == BlockKind::input_grad &&
                                     before.chunk == pass.chunk && before.micro_batch == pass.micro_batch;
    if (before.with_next || (is_rest_of_backward && !fills)) {
      units.back().push_back(pass);
    } else {
      units.push_back({pass});
    }
  }
  return units;
}

// DeepSeek's DualPipe gives a bubble of (PP / 2 - 1) (F&B + B - 3W), with B a whole backward and F&B the time of an
// overlapped pair. Where nothing is gained by overlap, F&B = F + B; with all passes equal that is 2 (p - 1) units.
// Whole backwards pass their gradient on when they have ended, pairs when both have. As input gradients that are passed
// on at once, as here, half of it is left.
TEST(DualPipeV, IdlesAsLongAsItsAuthorsSay) {
  for (const std::int64_t p : {2, 3, 4, 8}) {
    for (const std::int64_t m : {2 * p, 2 * p + 1, 4 * p}) {
      SCOPED_TRACE(fmt::format("{} stages, {} micro-batches", p, m));
      const PipelineShape shape = waves(p, m);
      std::vector<std::vector<Unit>> whole, split;
      for (const std::vector<PipelinePass>& order : dual_pipe_waves(shape, true)) {
        split.emplace_back();
        for (const PipelinePass& pass : order) split.back().push_back({pass});
        whole.push_back(with_whole_backwards(order, std::ssize(whole) + 1 == p));
      }
      const std::int64_t work = 6 * m;
      EXPECT_EQ(end_of_units(shape, whole, {}) - work, 2 * (p - 1));
      EXPECT_EQ(end_of_units(shape, split, {}) - work, p - 1);
    }
  }
}

PipelineShape both_ways(std::int64_t stages, std::int64_t pairs) {
  return {.stages = stages, .chunks = 2, .micro_batches = pairs, .in_waves = true, .two_directions = true};
}

// Every stage holds its own part of the model, number s of one copy, and the part of its mirror image, number p + (p -
// 1
// - s) of the other; the earlier one is its first chunk.
TEST(DualPipe, StagesHoldTheirOwnPartAndThatOfTheirMirrorImage) {
  const PipelineShape shape = both_ways(4, 4);
  const std::int64_t first[] = {0, 1, 5, 4}, second[] = {7, 6, 2, 3};
  for (std::int64_t stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(shape.number_of(stage, 0), first[stage]);
    EXPECT_EQ(shape.number_of(stage, 1), second[stage]);
    EXPECT_EQ(shape.stage_of(first[stage]), stage);
    EXPECT_EQ(shape.stage_of(second[stage]), stage);
    EXPECT_EQ(shape.is_copy(stage, 0), stage >= 2);
    EXPECT_EQ(shape.is_copy(stage, 1), stage < 2);
  }
  for (std::int64_t number = 0; number < 8; ++number) {
    EXPECT_EQ(shape.is_first(number), number == 0 || number == 4);
    EXPECT_EQ(shape.is_last(number), number == 3 || number == 7);
  }
}

// By hand from the eight steps of DeepSeek's dualpipe.py, ranks of 4 with 8 micro-batches, 4 in each direction; h is
// the distance from the nearer end: 2 (p / 2 - h - 1) times F0; h + 1 times F0 F1; p / 2 - h - 1 times I1 W1 F1; 4 - p
// + h + 1 times F0 B1 and F1 B0, overlapped but for the first in the middle; p / 2 - h - 1 times B1 and F1 B0
// overlapped; h + 1 times B1 B0 of which the second half is split; p / 2 - h - 1 times W I0; what is left of W.
TEST(DualPipe, OrderOfFourStagesAndFourMicroBatchesEachWay) {
  const PipelineOrders orders = dual_pipe_both_ways(both_ways(4, 4), true);
  ASSERT_EQ(orders.size(), 4U);
  EXPECT_EQ(written_out(orders[0]),
            "F0.0 F0.1 F0.2 F1.0 B1.0 W1.0 F1.1 (F0.3 B1.1) W1.1 (F1.2 B0.0) W0.0 B1.2 W1.2 (F1.3 B0.1) W0.1 B1.3 W1.3 "
            "B0.2 W0.2 B0.3 W0.3");
  EXPECT_EQ(written_out(orders[1]),
            "F0.0 F1.0 F0.1 F1.1 F0.2 B1.0 W1.0 (F1.2 B0.0) W0.0 (F0.3 B1.1) W1.1 (F1.3 B0.1) W0.1 B1.2 W1.2 B0.2 W0.2 "
            "B1.3 B0.3 W1.3 W0.3");
  EXPECT_EQ(orders[2], orders[1]);
  EXPECT_EQ(orders[3], orders[0]);
}

// DeepSeek's table: the activations of PP + 1 stages, and a bubble of (PP / 2 - 1) (F&B + B - 3W), which is PP - 2
// units where all passes are equal and nothing is gained by overlap. Half of it is left where input gradients are
// passed on at once.
TEST(DualPipe, HoldsAndIdlesWhatItsAuthorsSay) {
  for (const std::int64_t p : {2, 4, 6, 8, 16}) {
    for (const std::int64_t pairs : {p, p + 1, 2 * p}) {
      SCOPED_TRACE(fmt::format("{} stages, {} micro-batches each way", p, pairs));
      const PipelineShape shape = both_ways(p, pairs);
      std::vector<std::vector<Unit>> whole, split;
      for (const std::vector<PipelinePass>& order : dual_pipe_both_ways(shape, true)) {
        EXPECT_EQ(most_held(order), p + 1);
        const auto stage = std::ssize(whole);
        split.emplace_back();
        for (const PipelinePass& pass : order) split.back().push_back({pass});
        whole.push_back(with_whole_backwards(order, stage == p / 2 - 1 || stage == p / 2));
      }
      const std::int64_t work = 6 * pairs;
      EXPECT_EQ(end_of_units(shape, whole, {}) - work, p - 2);
      EXPECT_EQ(end_of_units(shape, split, {}) - work, p / 2 - 1);
    }
  }
}

// Hanayo's point: its waves hold no more than 1F1B's first stage does, p micro-batches, on every stage.
TEST(Hanayo, HoldsThePassesOfAsManyMicroBatchesAsThereAreStages) {
  for (std::int64_t p = 2; p <= 8; ++p) {
    for (const std::int64_t chunks : {2, 4, 6}) {
      for (const std::int64_t m : {p, 2 * p, 4 * p}) {
        std::int64_t most = 0;
        for (const std::vector<PipelinePass>& order : hanayo_waves(waves(p, m, chunks))) {
          EXPECT_EQ(std::ssize(order), 2 * chunks * m);
          most = std::max(most, most_held(order));
        }
        EXPECT_EQ(most, chunks * p) << p << " stages, " << m << " micro-batches, " << chunks << " chunks";
      }
    }
  }
}

// By hand, one wave of two stages and two micro-batches: stage 0 has chunks 0 and 3 of the model, stage 1 chunks 1
// and 2.
TEST(Hanayo, OrderOfTwoStagesAndTwoMicroBatches) {
  const PipelineOrders orders = hanayo_waves(waves(2, 2));
  EXPECT_EQ(written_out(orders[0]), "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 B0.0 B0.1");
  EXPECT_EQ(written_out(orders[1]), "F0.0 F1.0 F0.1 F1.1 B1.0 B0.0 B1.1 B0.1");
}

Layout with_depth(std::int64_t stages, std::int64_t micro_batches, std::int64_t depth) {
  return {.pp = stages, .global_batch = micro_batches, .warm_up_depth = depth};
}

TEST(WarmUpDepth, OfAsManyAsStagesIsOneFOneB) {
  for (std::int64_t p = 2; p <= 8; ++p) {
    EXPECT_EQ(pipeline_orders(with_depth(p, 4 * p, p)), pipeline_orders(with_depth(p, 4 * p, 0))) << p;
  }
}

TEST(WarmUpDepth, SaysWhatTheFirstStageHoldsAndFallsToOne) {
  for (std::int64_t p = 2; p <= 8; ++p) {
    for (std::int64_t depth = 1; depth <= 3 * p; ++depth) {
      const PipelineOrders orders = pipeline_orders(with_depth(p, 3 * p, depth));
      EXPECT_EQ(most_held(orders.front()), depth);
      EXPECT_EQ(most_held(orders.back()), 1);
      for (std::size_t s = 1; s < orders.size(); ++s) EXPECT_LE(most_held(orders[s]), most_held(orders[s - 1]));
    }
  }
}

// A message takes c. From stage 0 to stage j and back a micro-batch takes (j + 1)(f + b) + 2jc, and stage 0 is as many
// micro-batches ahead of stage j as the warm-ups differ, and one. So p micro-batches more take p (f + b) + 2 (p - 1) c
// with 1F1B, where j = p - 1 is the worst; with twice the slope, p (f + b) as long as 2c is no more than f + b.
TEST(WarmUpDepth, OfTwiceTheStagesHidesMessages) {
  constexpr std::int64_t kForward = 10, kBackward = 20, kMessage = 7;
  for (const std::int64_t p : {2, 4, 8}) {
    const auto step = [&](std::int64_t micro_batches, std::int64_t depth) {
      PipelineProblem problem = problem_in_units({p, 1, micro_batches});
      for (PassTimes& times : problem.times) times = {kForward, kBackward, 0};
      problem.message = kMessage;
      PipelineOrders orders = pipeline_orders(with_depth(p, micro_batches, depth));
      for (std::vector<PipelinePass>& order : orders) {
        for (PipelinePass& pass : order) {
          if (pass.kind == BlockKind::backward) pass.kind = BlockKind::input_grad;
        }
      }
      return step_time(problem, orders).value();
    };
    const auto of_p_more = [&](std::int64_t depth) { return step(9 * p, depth) - step(8 * p, depth); };
    EXPECT_EQ(of_p_more(p), p * (kForward + kBackward) + 2 * (p - 1) * kMessage);
    EXPECT_EQ(of_p_more(2 * p - 1), p * (kForward + kBackward));
  }
}

}  // namespace
}  // namespace weft
