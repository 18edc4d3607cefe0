// Chains against a walk over every way through small random graphs.
#include "bound/chains.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace weft {
namespace {

// The most that a way from one node to another takes, by total distance; the first node counts, the last does not.
// Whether a way of no edge counts (`at_once`) is up to the caller. -1: there is none.
double longest_way(const BoundProblem& problem, std::int32_t from, std::int32_t to, int distance, bool at_once) {
  double longest = at_once && from == to && distance == 0 ? 0 : -1;
  for (const BoundEdge& edge : problem.edges) {
    if (edge.from != from || edge.distance > distance) continue;
    const double rest = longest_way(problem, edge.to, to, distance - edge.distance, true);
    if (rest >= 0) longest = std::max(longest, problem.nodes[from].part_ns + rest);
  }
  return longest;
}

BoundProblem random_problem(std::mt19937& random, std::int32_t nodes) {
  BoundProblem problem;
  for (std::int32_t i = 0; i < nodes; ++i) {
    problem.nodes.emplace_back().part_ns = static_cast<double>(1 + random() % 9);
  }
  // Numbers that are not in the order of the edges.
  std::vector<std::int32_t> name(nodes);
  std::iota(name.begin(), name.end(), 0);
  std::shuffle(name.begin(), name.end(), random);
  for (std::size_t i = 0; i < name.size(); ++i) {
    for (std::size_t j = 0; j < name.size(); ++j) {
      if (i < j && random() % 4 == 0) problem.edges.push_back({name[i], name[j], 0});
      if (random() % 16 == 0) problem.edges.push_back({name[i], name[j], 1});
    }
  }
  return problem;
}

TEST(Chains, AreTheLongestWaysInEveryLane) {
  std::mt19937 random(11);
  for (int round = 0; round < 40; ++round) {
    const std::int32_t nodes = 10;
    const BoundProblem problem = random_problem(random, nodes);
    Chains chains(problem);
    std::vector<std::int32_t> all(nodes);
    std::iota(all.begin(), all.end(), 0);
    const auto half = all.begin() + 5;
    for (const auto& starts : {std::vector(all.begin(), half), std::vector(half, all.end())}) {
      chains.find(starts);
      for (std::size_t start = 0; start < starts.size(); ++start) {
        const std::int32_t v = starts[start];
        for (std::int32_t s = 0; s < nodes; ++s) {
          for (int d = 0; d < 2; ++d) {
            EXPECT_EQ(std::max(-1.0, chains.head(d, s, start)), longest_way(problem, v, s, d, true));
            // A tail leaves out s, which the way from s counts.
            const double way = longest_way(problem, s, v, d, false);
            const double tail = s == v && d == 0 ? 0 : way < 0 ? -1 : way - problem.nodes[s].part_ns;
            EXPECT_EQ(std::max(-1.0, chains.tail(d, s, start)), tail) << "round " << round;
          }
        }
      }
    }
  }
}

TEST(Chains, LongestFromEachIsNoShorterThanAnyOfThisAndTheNextIteration) {
  std::mt19937 random(12);
  for (int round = 0; round < 40; ++round) {
    const BoundProblem problem = random_problem(random, 8);
    const std::vector<double> longest = Chains(problem).longest_from_each();
    for (std::int32_t v = 0; v < 8; ++v) {
      double expected = 0;
      for (std::int32_t end = 0; end < 8; ++end) {
        for (int d = 0; d < 2; ++d) {
          const double way = longest_way(problem, v, end, d, true);
          if (way >= 0) expected = std::max(expected, way + problem.nodes[end].part_ns);
        }
      }
      EXPECT_EQ(longest[v], expected) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace weft
