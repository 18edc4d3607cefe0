// What receiving beside compute is worth.
#include "planner/schedule/overlap_receives.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "plan/memory/place.hpp"
#include "sim/test_steps.hpp"

namespace weft::test {
namespace {

TEST(OverlappedReceives, AreNotSlowerAndHideMessagesOfAnInterleavedPipeline) {
  for (const std::int64_t stages : {2, 4}) {
    for (const std::int64_t m : {4, 8, 16}) {
      SCOPED_TRACE(fmt::format("{} stages, {} micro-batches", stages, m));
      PlanRequest r = request(small_llama(8), parse_cluster(fmt::format("local:{},nic=1Gb/s", stages)),
                              {.pp = stages, .vpp = 2, .seq = 512, .schedule = PipelineSchedule::interleaved}, m);
      idealize(r);
      const Plan blocking = serial(r);
      Plan beside = blocking;
      overlap_receives(beside);
      place_values(beside);
      const Timeline before = simulated(blocking, r.profile), after = simulated(beside, r.profile);
      EXPECT_LE(after.period_ns, before.period_ns);
      const auto exposed = [](const Timeline& timeline) {
        double sum = 0;
        for (const RankAccount& account : checked_accounting(timeline).ranks) {
          sum += account.exposed_by[TrafficKind::pp];
        }
        return sum;
      };
      EXPECT_LT(exposed(after), 0.9 * exposed(before));
    }
  }
}

}  // namespace
}  // namespace weft::test
