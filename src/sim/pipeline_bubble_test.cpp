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
};

// Stage s holds chunks s, s + p, s + 2p, ... of the model. A forward waits for the chunk before, a backward for the
// chunk behind (the last chunk's for its own forward).
double period_of(const Pipeline& pipeline, std::int64_t forward, std::int64_t backward) {
  Layout layout;
  layout.pp = pipeline.stages;
  layout.vpp = pipeline.chunks;
  layout.global_batch = pipeline.micro_batches;
  layout.schedule = pipeline.schedule;
  TestProblem p;
  std::map<std::tuple<bool, std::int64_t, MicroBatch>, std::int32_t> operations;  // forward, chunk, micro-batch
  for (std::int64_t s = 0; s < pipeline.stages; ++s) {
    const auto rank = p.rank();
    for (const PipelinePass& slot : pipeline_order(layout, s)) {
      const std::int64_t chunk = slot.chunk * pipeline.stages + s;
      const bool is_forward = slot.kind == BlockKind::forward;
      const bool added =
          operations
              .try_emplace({is_forward, chunk, slot.micro_batch}, p.compute(rank, is_forward ? forward : backward))
              .second;
      EXPECT_TRUE(added);
    }
  }
  const std::int64_t chunks = pipeline.stages * pipeline.chunks;
  EXPECT_EQ(static_cast<std::int64_t>(operations.size()), 2 * chunks * pipeline.micro_batches);
  for (const auto& [key, operation] : operations) {
    const auto [is_forward, chunk, micro_batch] = key;
    if (is_forward && chunk > 0) p.wait(operation, operations.at({true, chunk - 1, micro_batch}));
    if (!is_forward && chunk + 1 < chunks) p.wait(operation, operations.at({false, chunk + 1, micro_batch}));
    if (!is_forward && chunk + 1 == chunks) p.wait(operation, operations.at({true, chunk, micro_batch}));
  }
  const SimResult result = simulate(p.build());
  EXPECT_TRUE(result.repeats);
  return result.period_ns;
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

INSTANTIATE_TEST_SUITE_P(Times, PipelineBubble, testing::Values(std::pair{1, 1}, std::pair{10, 20}, std::pair{7, 13}));

}  // namespace
}  // namespace weft::test
