// Pipeline schedules on the engine with messages that cost nothing: the bubble has a closed form.
#include <gtest/gtest.h>

#include "graph/layout.hpp"
#include "graph/pipeline_schedule.hpp"
#include "sim/engine.hpp"
#include "sim/test_problems.hpp"

namespace weft::test {
namespace {

struct Pipeline {
  PipelineSchedule schedule;
  std::int64_t stages, micro_batches, chunks;
  std::int64_t slices = 1;
  std::int64_t warm_up_depth = 0;
};

// Stage s holds chunks s, s + p, s + 2p, ... of the model. A forward waits for the chunk before, a backward for the
// chunk behind (the last chunk's for its own forward).
struct Times {
  std::int64_t forward, input_grad, weight_grad;
};

double period_of(const Pipeline& pipeline, const Times& times) {
  Layout layout;
  layout.pp = pipeline.stages;
  layout.vpp = pipeline.chunks;
  const bool both_ways = pipeline.schedule == PipelineSchedule::dualpipe;
  layout.global_batch = pipeline.micro_batches * (both_ways ? 2 : 1);
  layout.schedule = pipeline.schedule;
  layout.warm_up_depth = pipeline.warm_up_depth;
  if (pipeline.slices > 1) layout.slice_tokens.assign(static_cast<std::size_t>(pipeline.slices), 1);
  TestProblem p;
  using enum BlockKind;
  std::map<std::tuple<BlockKind, std::int64_t, std::int64_t>, std::int32_t> operations;  // by chunk of the model
  for (std::int64_t s = 0; s < pipeline.stages; ++s) {
    const auto rank = p.rank();
    for (const PipelinePass& slot : pipeline_order(layout, s)) {
      // Of two directions, the first chunk of the later half of the stages is of the way back.
      const std::int64_t way = both_ways && 2 * s >= pipeline.stages ? 1 - slot.chunk : slot.chunk;
      const bool goes_up = row_of(pipeline.schedule).in_waves && way % 2 == 1;
      const std::int64_t chunk = way * pipeline.stages + (goes_up ? pipeline.stages - 1 - s : s);
      const std::int64_t time = slot.kind == forward       ? times.forward
                                : slot.kind == input_grad  ? times.input_grad
                                : slot.kind == weight_grad ? times.weight_grad
                                                           : times.input_grad + times.weight_grad;
      const BlockKind kind = slot.kind == backward ? input_grad : slot.kind;
      const std::int64_t slice = slot.micro_batch.value * pipeline.slices + slot.slice;
      EXPECT_TRUE(operations.try_emplace({kind, chunk, slice}, p.compute(rank, time)).second);
    }
  }
  const std::int64_t chunks = pipeline.stages * pipeline.chunks;
  const std::int64_t passes = row_of(pipeline.schedule).splits_backward ? 3 : 2;
  EXPECT_EQ(static_cast<std::int64_t>(operations.size()), passes * chunks * pipeline.micro_batches * pipeline.slices);
  for (const auto& [key, operation] : operations) {
    const auto [kind, chunk, micro_batch] = key;
    const auto begins = [&](std::int64_t number) { return number == 0 || (both_ways && number == pipeline.stages); };
    if (kind == forward && !begins(chunk)) p.wait(operation, operations.at({forward, chunk - 1, micro_batch}));
    if (kind == weight_grad) p.wait(operation, operations.at({input_grad, chunk, micro_batch}));
    if (kind != input_grad) continue;
    const bool is_last = chunk + 1 == chunks || begins(chunk + 1);
    p.wait(operation, operations.at({is_last ? forward : input_grad, is_last ? chunk : chunk + 1, micro_batch}));
  }
  const SimResult result = simulate(p.build());
  EXPECT_TRUE(result.repeats);
  return result.period_ns;
}

double period_of(const Pipeline& pipeline, std::int64_t forward, std::int64_t backward) {
  return period_of(pipeline, Times{forward, backward, 0});
}

class PipelineBubble : public testing::TestWithParam<std::pair<std::int64_t, std::int64_t>> {
 protected:
  std::int64_t forward() const { return GetParam().first; }
  std::int64_t backward() const { return GetParam().second; }
};

// The first stage starts a step with its first forward and ends it with its last backward. In between it works
// m (f + b), and idles while its last forward of the ramp travels through the other p - 1 stages and its gradient
// back: (p - 1)(f + b). So a step takes (m + p - 1)(f + b), a bubble of (p - 1) / (m + p - 1) (Huang et al. 2019 for
// GPipe; Narayanan et al. 2021, section 2.2, for 1F1B: the same bubble, less memory).
TEST_P(PipelineBubble, OfGPipeAndOneForwardOneBackwardIsTheRamp) {
  for (const std::int64_t p : {1, 2, 3, 4, 8}) {
    for (const std::int64_t m : {p, p + 1, 2 * p, 4 * p}) {
      const auto expected = static_cast<double>((m + p - 1) * (forward() + backward()));
      EXPECT_EQ(period_of({PipelineSchedule::gpipe, p, m, 1}, forward(), backward()), expected) << p << " " << m;
      EXPECT_EQ(period_of({PipelineSchedule::one_f_one_b, p, m, 1}, forward(), backward()), expected) << p << " " << m;
    }
  }
}

// Where messages cost nothing, a deeper warm-up changes no step; one of a single forward leaves one micro-batch at a
// time in the pipeline, which passes p stages forth and back.
TEST_P(PipelineBubble, OfADeeperWarmUpIsTheRampAndOfNoneIsEverything) {
  for (const std::int64_t p : {2, 3, 4, 8}) {
    for (const std::int64_t m : {2 * p, 4 * p}) {
      const auto period = [&](std::int64_t depth) {
        return period_of({PipelineSchedule::one_f_one_b, p, m, 1, 1, depth}, forward(), backward());
      };
      const auto pass = static_cast<double>(forward() + backward());
      for (const std::int64_t depth : {p, p + 1, 2 * p - 1, 2 * p}) {
        EXPECT_EQ(period(depth), static_cast<double>(m + p - 1) * pass) << p << " " << m << " " << depth;
      }
      EXPECT_EQ(period(1), static_cast<double>(m * p) * pass) << p << " " << m;
    }
  }
}

// Slices fill and drain the pipeline as micro-batches would that are n times as many and as short: even one sequence
// keeps stages busy for n / (n + p - 1) of a step (Li et al. 2021, TeraPipe).
TEST_P(PipelineBubble, OfSlicesIsThatOfShorterMicroBatches) {
  for (const std::int64_t p : {2, 3, 4, 8}) {
    for (const std::int64_t m : {std::int64_t{1}, std::int64_t{3}, p, 2 * p}) {
      for (const std::int64_t n : {2, 3, 8}) {
        const auto expected = static_cast<double>((m * n + p - 1) * (forward() + backward()));
        for (const PipelineSchedule schedule : {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b}) {
          EXPECT_EQ(period_of({schedule, p, m, 1, n}, forward(), backward()), expected)
              << p << " stages, " << m << " micro-batches in " << n << " slices, " << name_of(schedule);
        }
      }
    }
  }
}

// With v chunks a stage the ramp passes chunks a v-th as long: v m + p - 1 units of f + b (Narayanan et al. 2021,
// section 2.2.2: bubble (p - 1) / v of a micro-batch's whole time).
TEST_P(PipelineBubble, OfInterleavedChunksShrinksWithTheirNumber) {
  for (const std::int64_t p : {2, 3, 4}) {
    for (const std::int64_t v : {2, 3}) {
      for (const std::int64_t m : {p, 2 * p, 4 * p}) {
        const auto expected = static_cast<double>((v * m + p - 1) * (forward() + backward()));
        EXPECT_EQ(period_of({PipelineSchedule::interleaved, p, m, v}, forward(), backward()), expected)
            << p << " stages, " << m << " micro-batches, " << v << " chunks";
      }
    }
  }
}

// With w waves a stage has 2w chunks. Where forwards and backwards take as long as each other and micro-batches come in
// rounds of p, waves idle as interleaved chunks do: the ramp passes p - 1 of these chunks forth and back.
TEST(Hanayo, OfEqualPassesHasTheBubbleOfInterleavedChunks) {
  for (const std::int64_t p : {2, 3, 4, 8}) {
    for (const std::int64_t v : {2, 4, 6}) {
      for (const std::int64_t m : {p, 2 * p, 4 * p}) {
        const double expected = period_of({PipelineSchedule::interleaved, p, m, v}, 10, 10);
        EXPECT_EQ(expected, static_cast<double>((v * m + p - 1) * 20));
        EXPECT_EQ(period_of({PipelineSchedule::hanayo, p, m, v}, 10, 10), expected)
            << p << " stages, " << m << " micro-batches, " << v << " chunks";
      }
    }
  }
}

// The idle time of DualPipeV by its authors, (p - 1)(F&B + B - 3W) with p stages of two chunks and B a whole backward,
// is of pairs that end together and gradients that wait for those of weights. Here they do not: it is never more.
TEST(DualPipeV, OfEqualStagesIdlesNoLongerThanItsAuthorsSay) {
  for (const Times& t : {Times{1, 1, 1}, Times{12, 14, 10}, Times{10, 12, 8}}) {
    const std::int64_t whole = t.input_grad + t.weight_grad, all = t.forward + whole;
    for (const std::int64_t p : {2, 3, 4, 8}) {
      for (const std::int64_t m : {2 * p, 2 * p + 1, 4 * p}) {
        const double bubble = period_of({PipelineSchedule::dualpipev, p, m, 2}, t) - static_cast<double>(2 * m * all);
        EXPECT_LE(bubble, static_cast<double>((p - 1) * (t.forward + 2 * whole - 3 * t.weight_grad))) << p << " " << m;
        EXPECT_GE(bubble, static_cast<double>((p - 1) * (t.forward + t.input_grad - t.weight_grad))) << p << " " << m;
      }
    }
  }
}

// The same of DualPipe, (p / 2 - 1)(F&B + B - 3W) with one chunk of each direction a stage.
TEST(DualPipe, OfEqualStagesIdlesNoLongerThanItsAuthorsSay) {
  for (const Times& t : {Times{1, 1, 1}, Times{12, 14, 10}, Times{10, 12, 8}}) {
    const std::int64_t whole = t.input_grad + t.weight_grad, all = t.forward + whole;
    for (const std::int64_t p : {2, 4, 6, 8}) {
      for (const std::int64_t pairs : {p, p + 1, 2 * p}) {
        const double bubble =
            period_of({PipelineSchedule::dualpipe, p, pairs, 2}, t) - static_cast<double>(2 * pairs * all);
        const std::int64_t ramp = p / 2 - 1;
        EXPECT_LE(bubble, static_cast<double>(ramp * (t.forward + 2 * whole - 3 * t.weight_grad))) << p << " " << pairs;
        EXPECT_GE(bubble, static_cast<double>(ramp * (t.forward + t.input_grad - t.weight_grad))) << p << " " << pairs;
      }
    }
  }
}

// Qi et al. 2024 (Zero Bubble, table 1): of the ramp 1F1B idles (p - 1)(f + b + w) of the first stage's time, H1
// (p - 1)(f + b - w) and H2 (p - 1)(f + b - 2w), the latter where steps follow each other without a pause and there are
// as many micro-batches as H2 holds.
TEST(ZeroBubble, OfEqualStagesHasTheBubbleOfThePaper) {
  for (const Times& t : {Times{1, 1, 1}, Times{10, 10, 10}, Times{12, 14, 10}}) {
    const std::int64_t all = t.forward + t.input_grad + t.weight_grad, chain = t.forward + t.input_grad;
    for (const std::int64_t p : {1, 2, 3, 4, 8}) {
      for (const std::int64_t m : {2 * p, 3 * p + 1, 5 * p}) {
        SCOPED_TRACE(testing::Message() << p << " stages, " << m << " micro-batches, times " << t.forward);
        EXPECT_EQ(period_of({PipelineSchedule::one_f_one_b, p, m, 1}, t), static_cast<double>((m + p - 1) * all));
        EXPECT_EQ(period_of({PipelineSchedule::zb_h1, p, m, 1}, t),
                  static_cast<double>(m * all + (p - 1) * (chain - t.weight_grad)));
        EXPECT_EQ(period_of({PipelineSchedule::zb_h2, p, m, 1}, t),
                  static_cast<double>(m * all + (p - 1) * (chain - 2 * t.weight_grad)));
      }
    }
  }
}

// Slices fill and drain a pipeline that splits backward as shorter micro-batches would, whose passes take one unit: H2
// idles (p - 1)(f + b - 2w), nothing. H1, whose backward begins with the last slice, gets between the (p - 1)(f + b -
// w) of such micro-batches and twice that, still less than the (p - 1)(f + b + w) of 1F1B.
TEST(ZeroBubble, OfSlicesHasTheBubbleOfShorterMicroBatches) {
  for (const std::int64_t p : {2, 3, 4}) {
    for (const std::int64_t n : {2, 3, 8}) {
      const std::int64_t m = 2 * p;
      SCOPED_TRACE(testing::Message() << p << " stages, " << n << " slices");
      const auto bubble = [&](PipelineSchedule schedule) {
        return period_of({schedule, p, m, 1, n}, Times{1, 1, 1}) - static_cast<double>(3 * m * n);
      };
      EXPECT_EQ(bubble(PipelineSchedule::zb_h2), 0);
      EXPECT_GE(bubble(PipelineSchedule::zb_h1), static_cast<double>(p - 1));
      EXPECT_LE(bubble(PipelineSchedule::zb_h1), static_cast<double>(2 * (p - 1)));
      EXPECT_EQ(bubble(PipelineSchedule::one_f_one_b), static_cast<double>(3 * (p - 1)));
    }
  }
}

// In units of one pass of a chunk, of which 1F1B idles 6(p - 1): ZBV is never idle (Qi et al. 2024, Zero Bubble,
// section 6); V-Half idles no more than a half of 1F1B's bubble and V-Min no more
// than two thirds (Qi et al. 2024, Controllable Memory, table 1). Where the number of stages is odd, passes of V-Half
// get in each other's way: it idles up to a tenth more and holds one pass less.
TEST(Waves, OfEqualStagesHaveTheBubbleOfThePaper) {
  for (std::int64_t p = 2; p <= 16; p = p < 8 ? p + 1 : 2 * p) {
    for (const std::int64_t m : {2 * p, 3 * p + 1, 5 * p}) {
      SCOPED_TRACE(testing::Message() << p << " stages, " << m << " micro-batches");
      const auto bubble = [&](PipelineSchedule schedule) {
        return period_of({schedule, p, m, 2}, Times{1, 1, 1}) - static_cast<double>(6 * m);
      };
      EXPECT_EQ(bubble(PipelineSchedule::zbv), 0);
      EXPECT_LE(bubble(PipelineSchedule::v_half), (p % 2 == 0 ? 3.0 : 3.3) * static_cast<double>(p - 1));
      EXPECT_LE(bubble(PipelineSchedule::v_min), static_cast<double>(4 * (p - 1)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Times, PipelineBubble, testing::Values(std::pair{1, 1}, std::pair{10, 20}, std::pair{7, 13}));

}  // namespace
}  // namespace weft::test
