// Random problems: without sharing and interference the engine's times are longest paths, which this file computes on
// its own; with everything on, the same problem always gives the same times.
#include <gtest/gtest.h>

#include <random>

#include "sim/engine.hpp"
#include "sim/test_problems.hpp"

namespace weft::test {
namespace {

struct RandomOptions {
  bool sharing = false, interference = false, extra = false;
};

// Edges of distance 0 go from lower to higher operations, queues are in the order of operations: no cycle. Operation 0
// is a long one that all others wait for, in this iteration or the next; mostly its next execution waits for them in
// turn. Otherwise queues may fall behind it for ever, and nothing repeats.
TestProblem random_problem(std::mt19937& random, const RandomOptions& options) {
  TestProblem p;
  const auto ranks = static_cast<std::int32_t>(1 + random() % 3);
  const auto slowdown = [&] { return options.interference ? 0.1 * static_cast<double>(random() % 6) : 0.0; };
  for (std::int32_t r = 0; r < ranks; ++r) {
    const double compute = slowdown(), transfer = slowdown(), further = slowdown(), waiting = slowdown();
    p.rank(compute, transfer, options.interference ? static_cast<std::int64_t>(random() % 4) : 0, further, waiting);
  }
  const auto operations = static_cast<std::int32_t>(2 + random() % 14);
  const bool drifts = random() % 8 == 0 && !options.extra;
  p.compute(0, 20);
  std::int32_t joints = 0, added = 1;
  while (added < operations) {
    const auto rank = static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(ranks));
    const auto duration = static_cast<std::int64_t>(random() % 20);
    Message message{.moving = duration,
                    .latency = static_cast<std::int64_t>(random() % 5),
                    .queue = static_cast<std::int32_t>(random() % 2)};
    if (options.sharing)
      message.use = {{static_cast<std::int32_t>(random() % 2), 0.1 * static_cast<double>(1 + random() % 10)}};
    const std::int32_t first = added;
    const auto kind = random() % 8;
    if (kind < 4) {
      p.compute(rank, duration);
    } else if (kind < 5 && options.extra) {
      p.extra(rank, duration);
    } else if (kind < 7 || ranks == 1) {
      p.transfer(rank, message);
    } else {
      message.joint = joints++;
      p.transfer(rank, message);
      p.transfer((rank + 1) % ranks, message);
      ++added;
    }
    ++added;
    for (std::int32_t i = first; i < added; ++i) {
      for (std::int32_t from = 0; from < first; ++from) {
        if (random() % 5 == 0) p.wait(i, from);
      }
      p.wait(i, 0, static_cast<std::int8_t>(random() % 2));
      if (!drifts) p.wait(0, i, 1);
    }
  }
  for (std::int32_t to = 0; to < added; ++to) {
    for (std::int32_t from = 0; from < added; ++from) {
      if (random() % 8 == 0 || options.extra) p.wait(to, from, 1);
    }
  }
  return p;
}

// start(i, k) = the latest end of what i, or any member of its joint, waits for; end = start + duration.
std::vector<std::vector<std::int64_t>> longest_paths(const SimProblem& p, std::size_t iterations) {
  std::vector<std::vector<std::int64_t>> starts;
  std::vector<std::vector<std::int64_t>> ends;
  for (std::size_t k = 0; k < iterations; ++k) {
    starts.emplace_back(p.operations.size(), 0);
    ends.emplace_back(p.operations.size(), 0);
    for (bool changed = true; changed;) {  // Bellman-Ford: small problems, no cycle of distance 0
      changed = false;
      for (std::size_t i = 0; i < p.operations.size(); ++i) {
        std::int64_t start = starts[k][i];
        for (std::size_t j = 0; j < p.operations.size(); ++j) {
          const bool member =
              i == j || (p.operations[i].joint.valid() && p.operations[i].joint == p.operations[j].joint);
          if (!member) continue;
          for (auto e = p.edge_begin[j]; e < p.edge_begin[j + 1]; ++e) {
            const Dependency& edge = p.edges[e];
            if (static_cast<std::size_t>(edge.distance) > k) continue;
            start = std::max(start, ends[k - static_cast<std::size_t>(edge.distance)][edge.operation]);
          }
        }
        const SimCost& cost = p.costs[p.operations[i].cost];
        const std::int64_t end = start + cost.fixed.value + cost.moving.value;
        changed |= start != starts[k][i] || end != ends[k][i];
        starts[k][i] = start;
        ends[k][i] = end;
      }
    }
  }
  return starts;
}

TEST(EngineProperty, WithoutSharingAndInterferenceStartsAreLongestPaths) {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    const SimProblem problem = random_problem(random, {}).build();
    const SimResult result = simulate(problem);
    const auto expected = longest_paths(problem, result.iterations.size() + 20);
    for (std::size_t k = 0; k < result.iterations.size(); ++k) {
      for (std::size_t i = 0; i < problem.operations.size(); ++i) {
        ASSERT_EQ(result.iterations[k][i].start.value, expected[k][i]) << "round " << round << ", operation " << i;
      }
    }
    if (!result.repeats) continue;
    // The pattern that was found goes on for ever: the iterations after the simulated ones keep it.
    const std::size_t every = result.periods;
    const auto elapsed = static_cast<std::int64_t>(result.period_ns * result.periods);
    for (std::size_t k = result.steady_first; k + every < expected.size(); ++k) {
      for (std::size_t i = 0; i < problem.operations.size(); ++i) {
        ASSERT_EQ(expected[k + every][i] - expected[k][i], elapsed) << "round " << round << ", iteration " << k;
      }
    }
  }
}

bool same_times(const SimResult& a, const SimResult& b) {
  if (a.iterations.size() != b.iterations.size() || a.period_ns != b.period_ns) return false;
  for (std::size_t k = 0; k < a.iterations.size(); ++k) {
    for (std::size_t i = 0; i < a.iterations[k].size(); ++i) {
      const SimTimes &x = a.iterations[k][i], &y = b.iterations[k][i];
      if (x.issued != y.issued || x.ready != y.ready || x.start != y.start || x.end != y.end) return false;
    }
  }
  return true;
}

TEST(EngineProperty, TimesDependNeitherOnTheRunNorOnTheOrderOfEdges) {
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    const TestProblem p = random_problem(random, {.sharing = true, .interference = true, .extra = true});
    const SimResult result = simulate(p.build());
    ASSERT_TRUE(same_times(result, simulate(p.build()))) << "round " << round;
    ASSERT_TRUE(same_times(result, simulate(p.build(static_cast<std::uint32_t>(round + 1))))) << "round " << round;
  }
}

TEST(EngineProperty, SpansNeitherOverlapOnAWorkerNorStartBeforeTheyMay) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const SimProblem problem = random_problem(random, {.sharing = true, .interference = true, .extra = true}).build();
    const SimResult result = simulate(problem);
    std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> busy(problem.ranks.size());
    for (const auto& iteration : result.iterations) {
      for (std::size_t i = 0; i < iteration.size(); ++i) {
        const SimTimes& t = iteration[i];
        const SimOperation& op = problem.operations[i];
        const SimCost& cost = problem.costs[op.cost];
        EXPECT_GE(t.start, std::max(t.issued, t.ready));
        EXPECT_GE(t.end - t.start, op.joint.valid() ? Nanos{0} : cost.fixed + cost.moving);
        if (op.queue != SimQueue::transfer) busy[op.rank].emplace_back(t.start.value, t.end.value);
      }
    }
    for (auto& spans : busy) {
      std::sort(spans.begin(), spans.end());
      for (std::size_t i = 1; i < spans.size(); ++i)
        ASSERT_GE(spans[i].first, spans[i - 1].second) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace weft::test
