#include "calibrate/program_fit.hpp"

#include <gtest/gtest.h>

#include "cluster/presets.hpp"
#include "collective/algorithms.hpp"
#include "collective/verify/symbolic_run.hpp"
#include "cost/program_time.hpp"

namespace weft {
namespace {

const LibraryLink kLink{{3e9}, Nanos{20'000}};
constexpr std::int64_t kRanks = 4;
constexpr Bytes kSmall{16 << 10}, kLarge{16 << 20};

// Four ranks, 3 GB/s, 20 us, 50 us of a group, 100 GB/s of a reduction: 6 rounds of 4 KiB in 70 us and 1.365 us each;
// 6 rounds of 4 MiB in 70 us and 1398.1 us each, and 3 reductions of 41.94 us.
TEST(ProgramFit, FindsWhatAClosedFormWasMadeOf) {
  const auto ring = [](Bytes bytes, double reduce) {
    const double piece = static_cast<double>(bytes.value) / 4;
    return TimedRing{bytes, nanos_from_seconds(6 * (70e-6 + piece / 3e9) + 3 * piece / reduce)};
  };
  const ProgramOverheads found = fit_rings(kLink, kRanks, ring(kSmall, 1e30), ring(kLarge, 100e9));
  EXPECT_NEAR(static_cast<double>(found.message_overhead.value), 50'000, 2);
  EXPECT_NEAR(found.reduce.bytes_per_second, 100e9, 1e6);
}

TEST(ProgramFit, TakesNoTimeOffTheLinks) {
  const ProgramOverheads found = fit_rings(kLink, kRanks, {kSmall, Nanos{1}}, {kLarge, Nanos{2}});
  EXPECT_EQ(found.message_overhead, Nanos{0});
  EXPECT_EQ(found.reduce.bytes_per_second, 0);
}

// What is fitted is what predictions then say of the same ring (to a rounding of every message).
TEST(ProgramFit, MakesPredictionsOfTheRingWhatWasMeasured) {
  const TimedRing small{kSmall, Nanos{500'000}}, large{kLarge, Nanos{10'000'000}};
  const ProgramOverheads found = fit_rings(kLink, kRanks, small, large);
  ClusterSpec spec = parse_cluster("gpu:4,nic=3GB/s");
  spec.execution = {LinkTiming::measured, CollectiveMaker::programs, Runtime::cuda};
  spec.levels.front().bandwidth = kLink.bandwidth;
  spec.levels.front().latency = kLink.latency;
  const Program program =
      make_program({.algorithm = Algorithm::ring, .kind = Collective::all_reduce, .ranks = kRanks, .in_place = true});
  const std::vector<Rank> members = {{0}, {1}, {2}, {3}};
  const auto predicted = [&](Bytes bytes) {
    const auto lowered = lower(program, run_symbolically(program), even_sizes(program.spec, bytes.value / 4), Bytes{4});
    return static_cast<double>(
        program_time(lowered, Cluster(spec), members, {.reduce = found.reduce, .per_message = found.message_overhead})
            .value);
  };
  EXPECT_NEAR(predicted(kLarge), 10'000'000, 100'000);
  EXPECT_NEAR(predicted(kSmall), 500'000, 5'000);
}

}  // namespace
}  // namespace weft
