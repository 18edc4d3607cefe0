#include "graph/pipeline_schedule.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "graph/layout.hpp"

namespace weft {
namespace {

Layout pipeline(PipelineSchedule schedule, std::int64_t stages, std::int64_t micro_batches, std::int64_t chunks = 1) {
  Layout layout;
  layout.schedule = schedule;
  layout.pp = stages;
  layout.vpp = chunks;
  layout.global_batch = micro_batches;
  return layout;
}

// "F0 F1 B0": forward of micro-batch 0, ...; with several chunks "F0.1" is chunk 0, micro-batch 1.
std::string written(const Layout& layout, std::int64_t stage) {
  std::string text;
  for (const PipelinePass& slot : pipeline_order(layout, stage)) {
    if (!text.empty()) text += ' ';
    text += slot.kind == BlockKind::forward ? 'F' : slot.kind == BlockKind::weight_grad ? 'W' : 'B';
    if (layout.vpp > 1) text += fmt::format("{}.", slot.chunk);
    text += fmt::format("{}", slot.micro_batch.value);
  }
  return text;
}

TEST(GPipe, RunsAllForwardsThenAllBackwards) {
  const Layout layout = pipeline(PipelineSchedule::gpipe, 3, 4);
  for (std::int64_t stage = 0; stage < 3; ++stage) EXPECT_EQ(written(layout, stage), "F0 F1 F2 F3 B0 B1 B2 B3");
}

// Lamy-Poirier 2023, figure 1: all micro-batches pass the first chunk, then all of them the second.
TEST(BreadthFirst, RunsChunkAfterChunk) {
  const Layout layout = pipeline(PipelineSchedule::breadth_first, 2, 3, 2);
  for (std::int64_t stage = 0; stage < 2; ++stage) {
    EXPECT_EQ(written(layout, stage), "F0.0 F0.1 F0.2 F1.0 F1.1 F1.2 B1.0 B1.1 B1.2 B0.0 B0.1 B0.2");
    EXPECT_EQ(passes_in_flight(layout)[stage], 6);
  }
}

TEST(OneFOneB, OrderOfTwoStagesAndFourMicroBatches) {
  const Layout layout = pipeline(PipelineSchedule::one_f_one_b, 2, 4);
  EXPECT_EQ(written(layout, 0), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(written(layout, 1), "F0 B0 F1 B1 F2 B2 F3 B3");
}

// Narayanan et al. 2021, figure 4 (top), micro-batches counted from 0.
TEST(OneFOneB, OrderOfFourStagesAndEightMicroBatches) {
  const Layout layout = pipeline(PipelineSchedule::one_f_one_b, 4, 8);
  EXPECT_EQ(written(layout, 0), "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7");
  EXPECT_EQ(written(layout, 1), "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7");
  EXPECT_EQ(written(layout, 2), "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7");
  EXPECT_EQ(written(layout, 3), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7");
}

// "F0.1" is slice 1 of micro-batch 0. The last stage has both slices of a micro-batch before the first backward, which
// is that of the last slice.
TEST(OneFOneB, OrderOfTwoStagesAndTwoMicroBatchesInTwoSlices) {
  Layout layout = pipeline(PipelineSchedule::one_f_one_b, 2, 2);
  layout.slice_tokens = {3, 2};
  const auto in_slices = [&](std::int64_t stage) {
    std::string text;
    for (const PipelinePass& pass : pipeline_order(layout, stage)) {
      text += fmt::format("{}{}.{} ", pass.kind == BlockKind::forward ? 'F' : 'B', pass.micro_batch.value, pass.slice);
    }
    return text;
  };
  EXPECT_EQ(in_slices(0), "F0.0 F0.1 F1.0 B0.1 F1.1 B0.0 B1.1 B1.0 ");
  EXPECT_EQ(in_slices(1), "F0.0 F0.1 B0.1 F1.0 B0.0 F1.1 B1.1 B1.0 ");
  layout.schedule = PipelineSchedule::gpipe;
  for (std::int64_t stage = 0; stage < 2; ++stage) {
    EXPECT_EQ(in_slices(stage), "F0.0 F0.1 F1.0 F1.1 B0.1 B0.0 B1.1 B1.0 ");
  }
}

// As in SlimPipe: where micro-batches pass in n slices, stage s holds p - s + n - 1 of them.
TEST(OneFOneB, HoldsASliceMoreForEveryStageBehind) {
  for (const std::int64_t slices : {2, 3, 8}) {
    Layout layout = pipeline(PipelineSchedule::one_f_one_b, 4, 6);
    layout.slice_tokens.assign(static_cast<std::size_t>(slices), 1);
    for (std::int64_t stage = 0; stage < 4; ++stage) {
      EXPECT_EQ(passes_in_flight(layout)[static_cast<std::size_t>(stage)], 4 - stage + slices - 1);
    }
  }
}

TEST(OneFOneB, WithFewerMicroBatchesThanStagesWarmsUpWithAll) {
  const Layout layout = pipeline(PipelineSchedule::one_f_one_b, 4, 2);
  EXPECT_EQ(written(layout, 0), "F0 F1 B0 B1");
  EXPECT_EQ(written(layout, 1), "F0 F1 B0 B1");
  EXPECT_EQ(written(layout, 2), "F0 F1 B0 B1");
  EXPECT_EQ(written(layout, 3), "F0 B0 F1 B1");
}

// Megatron-LM: micro-batches in rounds of p through the chunks, backward through the chunks in reverse; warm-up
// 2 (p - 1 - rank) + (v - 1) p, so 4 on rank 0 and 2 on rank 1.
TEST(Interleaved, OrderOfTwoStagesTwoChunksAndFourMicroBatches) {
  const Layout layout = pipeline(PipelineSchedule::interleaved, 2, 4, 2);
  EXPECT_EQ(written(layout, 0), "F0.0 F0.1 F1.0 F1.1 F0.2 B1.0 F0.3 B1.1 F1.2 B0.0 F1.3 B0.1 B1.2 B1.3 B0.2 B0.3");
  EXPECT_EQ(written(layout, 1), "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 F0.2 B0.0 F0.3 B0.1 F1.2 B1.2 F1.3 B1.3 B0.2 B0.3");
}

std::vector<Layout> all_layouts() {
  std::vector<Layout> layouts;
  for (std::int64_t p = 1; p <= 6; ++p) {
    for (std::int64_t m = 1; m <= 12; ++m) {
      layouts.push_back(pipeline(PipelineSchedule::gpipe, p, m));
      layouts.push_back(pipeline(PipelineSchedule::one_f_one_b, p, m));
      for (std::int64_t v = 2; v <= 4 && p > 1 && m % p == 0; ++v) {
        layouts.push_back(pipeline(PipelineSchedule::interleaved, p, m, v));
      }
    }
  }
  return layouts;
}

std::vector<Layout> whole_waves_and_warm_ups() {
  std::vector<Layout> layouts;
  for (std::int64_t p = 2; p <= 6; ++p) {
    for (std::int64_t m = 1; m <= 12; ++m) {
      for (const std::int64_t v : {2, 4, 6}) layouts.push_back(pipeline(PipelineSchedule::hanayo, p, m, v));
      for (std::int64_t depth = 1; depth <= m; ++depth) {
        layouts.push_back(pipeline(PipelineSchedule::one_f_one_b, p, m));
        layouts.back().warm_up_depth = depth;
      }
    }
  }
  return layouts;
}

std::vector<Layout> split_layouts() {
  using enum PipelineSchedule;
  std::vector<Layout> layouts;
  for (std::int64_t p = 1; p <= 6; ++p) {
    for (std::int64_t m = 1; m <= 12; ++m) {
      for (const PipelineSchedule schedule : {zb_h1, zb_h2}) layouts.push_back(pipeline(schedule, p, m));
      if (p == 1) continue;
      for (const PipelineSchedule schedule : {zbv, v_half, v_min, dualpipev})
        layouts.push_back(pipeline(schedule, p, m, 2));
    }
  }
  return layouts;
}

std::string name(const Layout& l) {
  return fmt::format("{}, p {}, m {}, v {}", name_of(l.schedule), l.pp, l.micro_batches(), l.vpp);
}

TEST(PipelineOrder, HasEveryForwardAndBackwardOnceAndBackwardAfterForward) {
  std::vector<Layout> layouts = all_layouts();
  for (const Layout& layout : whole_waves_and_warm_ups()) layouts.push_back(layout);
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(name(layout));
    for (std::int64_t stage = 0; stage < layout.pp; ++stage) {
      std::set<std::pair<std::int32_t, MicroBatch>> forward, backward;
      for (const PipelinePass& slot : pipeline_order(layout, stage)) {
        const std::pair which{slot.chunk, slot.micro_batch};
        EXPECT_TRUE((slot.kind == BlockKind::forward ? forward : backward).insert(which).second) << "twice";
        if (slot.kind != BlockKind::forward) {
          EXPECT_TRUE(forward.contains(which)) << "backward first";
        }
        EXPECT_TRUE(slot.chunk >= 0 && slot.chunk < layout.vpp);
        EXPECT_TRUE(slot.micro_batch.valid() && slot.micro_batch.value < layout.micro_batches());
      }
      const std::size_t all = layout.vpp * layout.micro_batches();
      EXPECT_EQ(forward.size(), all);
      EXPECT_EQ(backward.size(), all);
    }
  }
}

TEST(SplitBackward, HasEveryPassOnceAndEachBehindTheOneItNeeds) {
  constexpr BlockKind kInTurn[] = {BlockKind::forward, BlockKind::input_grad, BlockKind::weight_grad};
  for (const Layout& layout : split_layouts()) {
    SCOPED_TRACE(name(layout));
    for (const std::vector<PipelinePass>& order : pipeline_orders(layout)) {
      std::map<std::pair<std::int32_t, MicroBatch>, std::size_t> passes_done;
      for (const PipelinePass& pass : order) {
        std::size_t& done = passes_done[{pass.chunk, pass.micro_batch}];
        ASSERT_LT(done, std::size(kInTurn));
        EXPECT_EQ(pass.kind, kInTurn[done++]);
      }
      EXPECT_EQ(std::ssize(order), 3 * layout.vpp * layout.micro_batches());
      EXPECT_EQ(std::ssize(passes_done), layout.vpp * layout.micro_batches());
    }
  }
}

std::int64_t most_in_flight(const Layout& layout, std::int64_t stage) {
  std::int64_t now = 0, most = 0;
  for (const PipelinePass& slot : pipeline_order(layout, stage)) {
    now += slot.kind == BlockKind::forward ? 1 : ends_pass(slot.kind) ? -1 : 0;
    most = std::max(most, now);
  }
  return most;
}

TEST(PipelineOrder, KeepsAsManyMicroBatchesInFlightAsThePapersSay) {
  for (const Layout& layout : all_layouts()) {
    SCOPED_TRACE(name(layout));
    const std::int64_t m = layout.micro_batches(), p = layout.pp, v = layout.vpp;
    for (std::int64_t stage = 0; stage < p; ++stage) {
      // Interleaved: warm-up and one more; on stage 0 that is pv + p - 1 of a chunk each, 1 + (p-1)/(pv) times what
      // 1F1B keeps (Korthikanti et al. 2022, section 4.2.3).
      const std::int64_t expected = layout.schedule == PipelineSchedule::gpipe ? m
                                    : layout.schedule == PipelineSchedule::one_f_one_b
                                        ? std::min(m, p - stage)
                                        : std::min(m * v, 2 * (p - 1 - stage) + (v - 1) * p + 1);
      EXPECT_EQ(most_in_flight(layout, stage), expected);
      EXPECT_EQ(passes_in_flight(layout)[stage], expected);
    }
  }
}

// Qi et al. 2024 (Zero Bubble, table 1): H1 holds p passes, as 1F1B's first stage does, H2 2p - 1; both on every stage.
TEST(ZeroBubble, HoldsTheActivationsThatThePaperSays) {
  for (std::int64_t p = 1; p <= 8; ++p) {
    for (const std::int64_t m : {2 * p - 1, 2 * p, 5 * p}) {
      for (std::int64_t stage = 0; stage < p; ++stage) {
        EXPECT_EQ(most_in_flight(pipeline(PipelineSchedule::zb_h1, p, m), stage), p) << m;
        EXPECT_EQ(most_in_flight(pipeline(PipelineSchedule::zb_h2, p, m), stage), 2 * p - 1) << m;
      }
    }
  }
}

// Qi et al. 2024 (Controllable Memory, table 1), in passes of a chunk, which is half a stage: 1F1B holds 2p on its
// first stage, ZBV no more, V-Half a half and V-Min a third of it, and a constant.
TEST(Waves, HoldTheirShareOfTheActivationsOfOneFOneB) {
  for (std::int64_t p = 2; p <= 24; ++p) {
    for (const std::int64_t m : {2 * p, 5 * p}) {
      SCOPED_TRACE(fmt::format("{} stages, {} micro-batches", p, m));
      for (std::int64_t stage = 0; stage < p; ++stage) {
        EXPECT_LE(most_in_flight(pipeline(PipelineSchedule::zbv, p, m, 2), stage), 2 * p);
        EXPECT_LE(most_in_flight(pipeline(PipelineSchedule::v_half, p, m, 2), stage), p + 2);
        EXPECT_LE(3 * most_in_flight(pipeline(PipelineSchedule::v_min, p, m, 2), stage), 2 * p + 8);
      }
    }
  }
}

// Qi et al. 2024 (Zero Bubble), figure 2 shows four stages and eight micro-batches; two and four by hand: the last
// stage puts off its first weight gradients by one, the first stage puts off none.
TEST(ZeroBubble, OrderOfTwoStagesAndFourMicroBatches) {
  const Layout layout = pipeline(PipelineSchedule::zb_h1, 2, 4);
  EXPECT_EQ(written(layout, 0), "F0 F1 B0 W0 F2 B1 W1 F3 B2 W2 B3 W3");
  EXPECT_EQ(written(layout, 1), "F0 B0 F1 B1 W0 F2 B2 W1 F3 B3 W2 W3");
}

// By hand from the phases of PyTorch's ScheduleZBVZeroBubble: stage s begins with 2 (p - s) - 1 forwards of its first
// chunk, then s times both forwards, then p - s times the second chunk forth and back; from there on each chunk goes
// back and the other forth in turn, and weight gradients wait for input gradients at the end.
TEST(Waves, OrderOfZbvWithTwoStagesAndFourMicroBatches) {
  const Layout layout = pipeline(PipelineSchedule::zbv, 2, 4, 2);
  EXPECT_EQ(
      written(layout, 0),
      "F0.0 F0.1 F0.2 F1.0 B1.0 W1.0 F1.1 B1.1 W1.1 F0.3 B0.0 W0.0 F1.2 B1.2 W1.2 B0.1 W0.1 F1.3 B1.3 W1.3 B0.2 W0.2 "
      "B0.3 W0.3");
  EXPECT_EQ(
      written(layout, 1),
      "F0.0 F1.0 F0.1 F1.1 B1.0 W1.0 F0.2 B0.0 W0.0 F1.2 B1.1 W1.1 F0.3 B0.1 W0.1 F1.3 B1.2 W1.2 B0.2 B1.3 B0.3 W0.2 "
      "W1.3 W0.3");
}

// The warm-up of 1F1B is p - 1 - stage forwards; the first backward follows one more.
TEST(OneFOneB, WarmsUpByItsDistanceToTheLastStage) {
  const Layout layout = pipeline(PipelineSchedule::one_f_one_b, 5, 9);
  for (std::int64_t stage = 0; stage < 5; ++stage) {
    const std::vector<PipelinePass> order = pipeline_order(layout, stage);
    const auto first =
        std::find_if(order.begin(), order.end(), [](const PipelinePass& s) { return s.kind != BlockKind::forward; });
    EXPECT_EQ(first - order.begin(), 4 - stage + 1);
  }
}

// Runs all stages against each other: a stage waits at a forward for the chunk before, at a backward for the chunk
// after (at the last chunk for its own forward), and sends without waiting.
bool finishes(const Layout& layout) {
  const PipelineOrders orders = pipeline_orders(layout);
  std::vector<std::size_t> at(orders.size(), 0);
  std::set<std::tuple<bool, std::int64_t, MicroBatch>> done;  // forward?, chunk of the model, micro-batch
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t stage = 0; stage < orders.size(); ++stage) {
      while (at[stage] < orders[stage].size()) {
        const PipelinePass& slot = orders[stage][at[stage]];
        if (slot.kind == BlockKind::weight_grad) {
          ++at[stage];
          continue;
        }
        const bool goes_up = row_of(layout.schedule).in_waves && slot.chunk % 2 == 1;
        const std::int64_t place = static_cast<std::int64_t>(stage);
        const std::int64_t chunk = slot.chunk * layout.pp + (goes_up ? layout.pp - 1 - place : place);
        const bool first = chunk == 0, last = chunk + 1 == layout.chunks();
        const bool ready = slot.kind == BlockKind::forward
                               ? first || done.contains({true, chunk - 1, slot.micro_batch})
                               : done.contains({true, chunk, slot.micro_batch}) &&
                                     (last || done.contains({false, chunk + 1, slot.micro_batch}));
        if (!ready) break;
        done.insert({slot.kind == BlockKind::forward, chunk, slot.micro_batch});
        ++at[stage];
        moved = true;
      }
    }
  }
  for (std::size_t stage = 0; stage < orders.size(); ++stage) {
    if (at[stage] < orders[stage].size()) return false;
  }
  return true;
}

TEST(PipelineOrder, NeverDeadlocks) {
  for (const Layout& layout : all_layouts()) EXPECT_TRUE(finishes(layout)) << name(layout);
  for (const Layout& layout : split_layouts()) EXPECT_TRUE(finishes(layout)) << name(layout);
  for (const Layout& layout : whole_waves_and_warm_ups()) EXPECT_TRUE(finishes(layout)) << name(layout);
}

// Every pair, and every forward or backward that has no partner, takes one unit of time; what it needs of a neighbour
// or of its own stage must have ended. Where the last stage begins its first pair, and how long it takes for all.
struct UnitRun {
  std::int64_t first_pair = -1, last_stage_busy = 0, last_stage_end = 0;
  bool ran = false;
};
UnitRun run_in_units(const Layout& layout) {
  const std::int64_t stages = layout.pp, chunks = layout.vpp;
  std::vector<std::vector<std::vector<PipelinePass>>> units(stages);
  std::size_t left = 0;
  for (std::int64_t s = 0; s < stages; ++s) {
    auto& of_stage = units[s];
    for (const PipelinePass& slot : pipeline_order(layout, s, true)) {
      const bool joins = !of_stage.empty() && of_stage.back().back().with_next;
      if (joins) {
        of_stage.back().push_back(slot);
      } else {
        of_stage.push_back({slot});
      }
    }
    left += of_stage.size();
  }
  using Key = std::tuple<bool, std::int64_t, MicroBatch>;  // forward, virtual stage, micro-batch
  std::map<Key, std::int64_t> ended;
  const auto may_run = [&](std::int64_t stage, const PipelinePass& slot, std::int64_t now) {
    const std::int64_t here = slot.chunk * stages + stage, last = stages * chunks - 1;
    const auto done = [&](bool forward, std::int64_t where) {
      const auto found = ended.find({forward, where, slot.micro_batch});
      return found != ended.end() && found->second <= now;
    };
    if (slot.kind == BlockKind::forward) return here == 0 || done(true, here - 1);
    return done(true, here) && (here == last || done(false, here + 1));
  };
  UnitRun result;
  std::vector<std::size_t> next(units.size(), 0);
  for (std::int64_t now = 0; left > 0 && now < 1000; ++now) {
    std::map<Key, std::int64_t> ending;
    for (std::int64_t s = 0; s < stages; ++s) {
      const std::size_t at = s;
      if (next[at] == units[at].size()) continue;
      const std::vector<PipelinePass>& unit = units[at][next[at]];
      if (!std::all_of(unit.begin(), unit.end(), [&](const PipelinePass& slot) { return may_run(s, slot, now); })) {
        continue;
      }
      for (const PipelinePass& slot : unit)
        ending[{slot.kind == BlockKind::forward, slot.chunk * stages + s, slot.micro_batch}] = now + 1;
      ++next[at];
      --left;
      if (s != stages - 1) continue;
      ++result.last_stage_busy;
      result.last_stage_end = now + 1;
      if (unit.size() == 2 && result.first_pair < 0) result.first_pair = now;
    }
    ended.insert(ending.begin(), ending.end());
  }
  result.ran = left == 0;
  return result;
}

TEST(Pairs, NeverWaitForEachOtherOnceTheLastStageHasBegun) {
  using enum PipelineSchedule;
  for (const std::int64_t stages : {1, 2, 3, 4, 8}) {
    for (const std::int64_t micro_batches : {stages, 2 * stages, 5 * stages}) {
      for (const std::int64_t chunks : {1, 2, 3}) {
        if (chunks > 1 && stages == 1) continue;
        SCOPED_TRACE(fmt::format("{} stages, {} micro-batches, {} chunks", stages, micro_batches, chunks));
        const UnitRun run =
            run_in_units(pipeline(chunks > 1 ? interleaved : one_f_one_b, stages, micro_batches, chunks));
        ASSERT_TRUE(run.ran);
        // It begins when the first micro-batch has come through the stages before it, and is never idle from then on.
        EXPECT_EQ(run.last_stage_end, stages - 1 + run.last_stage_busy);
      }
    }
  }
}

TEST(Pairs, OfTwoStagesAndFourMicroBatches) {
  const auto written_in_pairs = [](std::int64_t stage) {
    std::string text;
    for (const PipelinePass& slot : pipeline_order(pipeline(PipelineSchedule::one_f_one_b, 2, 4), stage, true)) {
      text += fmt::format("{}{} ", slot.kind == BlockKind::forward ? 'F' : 'B', slot.micro_batch.value);
    }
    return text;
  };
  EXPECT_EQ(written_in_pairs(0), "F0 F1 F2 F3 B0 B1 B2 B3 ");
  EXPECT_EQ(written_in_pairs(1), "F0 F1 B0 F2 B1 F3 B2 B3 ");
}

}  // namespace
}  // namespace weft
