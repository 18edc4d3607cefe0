#include "planner/partition/slice_choice.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "model/presets.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

std::int64_t step_of(const SliceProblem& problem, const std::vector<std::int64_t>& lengths) {
  std::int64_t begin = 0, sum = 0, longest = 0;
  for (const std::int64_t length : lengths) {
    const std::int64_t time = problem.times[begin][length - 1];
    sum += time;
    longest = std::max(longest, time);
    begin += length;
  }
  EXPECT_EQ(begin, problem.units);
  return problem.sequences * sum + (problem.stages - 1) * longest;
}

// Every way to cut: bit i says whether a slice ends behind unit i.
std::int64_t least_step_of_all(const SliceProblem& problem) {
  std::int64_t least = INT64_MAX;
  for (std::uint32_t ends = 0; ends < 1u << (problem.units - 1); ++ends) {
    std::vector<std::int64_t> lengths{1};
    for (std::int64_t unit = 0; unit + 1 < problem.units; ++unit) {
      if ((ends >> unit & 1u) != 0) {
        lengths.push_back(1);
      } else {
        ++lengths.back();
      }
    }
    least = std::min(least, step_of(problem, lengths));
  }
  return least;
}

TEST(BestSlices, AreAsShortAsTheBestOfAll) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    std::mt19937_64 random(seed);
    const auto draw = [&](std::int64_t low, std::int64_t high) {
      return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
    };
    SliceProblem problem{draw(1, 10), draw(1, 12), draw(1, 4), {}};
    const std::int64_t fixed = draw(0, 40), dense = draw(1, 20), attention = draw(0, 5);
    for (std::int64_t begin = 0; begin < problem.units; ++begin) {
      problem.times.emplace_back();
      for (std::int64_t length = 1; begin + length <= problem.units; ++length) {
        const bool any = seed % 2 == 0;  // times need not follow a rule
        problem.times.back().push_back(any ? draw(1, 100)
                                           : fixed + dense * length + attention * length * (2 * begin + length));
      }
    }
    EXPECT_EQ(step_of(problem, best_slices(problem)), least_step_of_all(problem)) << "seed " << seed;
  }
}

// Where time is proportional to tokens, the shortest slices are best; where it does not depend on them, one is.
TEST(BestSlices, AreShortestWhereNothingIsLostAndOneWhereAllIs) {
  for (const std::int64_t per_unit : {1, 0}) {
    SliceProblem problem{8, 4, 1, {}};
    for (std::int64_t begin = 0; begin < 8; ++begin) {
      problem.times.emplace_back();
      for (std::int64_t length = 1; begin + length <= 8; ++length)
        problem.times.back().push_back(per_unit > 0 ? 10 * length : 10);
    }
    EXPECT_EQ(best_slices(problem).size(), per_unit > 0 ? 8u : 1u);
  }
}

// At such a length the last tokens meet so many keys that they take several times as long as the first: slices are
// shorter towards the end, so that all take about as long.
TEST(ChooseSlices, CutsLongSequencesShorterTowardsTheirEnd) {
  Transformer model = model_preset("llama2-7b");
  model.layers = 4;
  const PlanRequest request = test::request(model, parse_cluster("dgx-a100:1"), {.pp = 4, .seq = 65536}, 1);
  const Cluster cluster(request.cluster);
  const std::vector<std::int64_t> slices = choose_slices(request.model, cluster, request.layout, request.profile);
  ASSERT_GT(slices.size(), 1u);
  EXPECT_EQ(std::accumulate(slices.begin(), slices.end(), std::int64_t{0}), 65536);
  EXPECT_GT(slices.front(), slices.back());
  Layout cut = request.layout;
  cut.slice_tokens = slices;
  EXPECT_NO_THROW(validate(cut, request.model, cluster.device_count()));
}

}  // namespace
}  // namespace weft
