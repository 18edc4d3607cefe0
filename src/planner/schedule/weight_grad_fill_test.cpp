#include "planner/schedule/weight_grad_fill.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "graph/operation_part.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

// Every assignment there is.
double most_hidden(const FillProblem& problem) {
  const std::size_t gaps = problem.gaps_ns.size(), fillers = problem.fillers_ns.size();
  std::vector<std::size_t> choice(fillers, 0);  // 0: none
  double most = 0;
  while (true) {
    std::vector<double> filled(gaps, 0);
    bool allowed = true;
    for (std::size_t f = 0; f < fillers; ++f) {
      if (choice[f] == 0) continue;
      const auto& usable = problem.usable[choice[f] - 1];
      allowed = allowed && std::find(usable.begin(), usable.end(), static_cast<std::int32_t>(f)) != usable.end();
      filled[choice[f] - 1] += problem.fillers_ns[f];
    }
    double hidden = 0;
    for (std::size_t g = 0; g < gaps; ++g) hidden += std::min(filled[g], problem.gaps_ns[g]);
    if (allowed) most = std::max(most, hidden);
    std::size_t f = 0;
    while (f < fillers && ++choice[f] > gaps) choice[f++] = 0;
    if (f == fillers) return most;
  }
}

// As in backward: the weight gradients of one layer after the other become ready before the next two all-to-alls.
FillProblem drawn(std::mt19937& random) {
  FillProblem problem;
  const std::size_t layers = 1 + random() % 3;
  for (std::size_t l = 0; l < layers; ++l) {
    for (std::size_t i = 0; i < 2 && problem.gaps_ns.size() < 4; ++i) {
      problem.gaps_ns.push_back(static_cast<double>(1 + random() % 50));
      problem.usable.emplace_back();
      for (std::size_t f = 0; f < problem.fillers_ns.size(); ++f) {
        problem.usable.back().push_back(static_cast<std::int32_t>(f));
      }
    }
    for (std::size_t i = 0; i < 2; ++i) problem.fillers_ns.push_back(static_cast<double>(1 + random() % 40));
  }
  return problem;
}

TEST(FillExactly, HidesTheMostThatAnyAssignmentDoes) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const FillProblem problem = drawn(random);
    EXPECT_DOUBLE_EQ(fill_exactly(problem).hidden_ns, most_hidden(problem)) << round;
  }
}

TEST(FillGreedily, TakesWhatFitsBest) {
  // 10 are left: 9 is nearest; then 1 of the rest fits what is left.
  const FillProblem problem{{10, 7}, {4, 9, 1, 7}, {{0, 1, 2, 3}, {0, 1, 2, 3}}};
  const FillFound found = fill_greedily(problem);
  EXPECT_EQ(found.gap_of, (std::vector<std::int32_t>{-1, 0, 0, 1}));
  EXPECT_DOUBLE_EQ(found.hidden_ns, 17);
}

TEST(FillGreedily, AssignsWhatIsAllowedAndNeverHidesMoreThanCanBe) {
  std::mt19937 random(5);
  double greedy = 0, exact = 0;
  for (int round = 0; round < 500; ++round) {
    const FillProblem problem = drawn(random);
    const FillFound found = fill_greedily(problem);
    std::vector<double> filled(problem.gaps_ns.size(), 0);
    for (std::size_t f = 0; f < found.gap_of.size(); ++f) {
      if (found.gap_of[f] < 0) continue;
      const auto& usable = problem.usable[found.gap_of[f]];
      EXPECT_NE(std::find(usable.begin(), usable.end(), static_cast<std::int32_t>(f)), usable.end());
      filled[found.gap_of[f]] += problem.fillers_ns[f];
    }
    double hidden = 0;
    for (std::size_t g = 0; g < filled.size(); ++g) hidden += std::min(filled[g], problem.gaps_ns[g]);
    EXPECT_DOUBLE_EQ(found.hidden_ns, hidden);
    EXPECT_LE(found.hidden_ns, fill_exactly(problem).hidden_ns + 1e-9);
    greedy += found.hidden_ns;
    exact += fill_exactly(problem).hidden_ns;
  }
  EXPECT_GE(greedy, 0.75 * exact);  // no theorem: a floor for a rule that is broken
}

// What an all-to-all waits for cannot hide it, nor can what waits for it.
TEST(FillExchanges, GivesNoAllToAllWhatItWaitsForOrWhatWaitsForIt) {
  const PlanRequest r = test::request(test::small_moe(4), parse_cluster("dgx-a100:1"), {.ep = 8, .micro_batch = 4});
  const StepGraph graph = test::build(r);
  const Cluster cluster(r.cluster);
  const std::vector<OpId> hides = fill_exchanges(graph, CostModel(graph, cluster, r.profile)).hides;
  const auto reaches = [&](OpId from, OpId to) {
    std::vector<bool> reached(graph.operations.size(), false);
    reached[from.index()] = true;
    for (std::size_t i = from.index() + 1; i < graph.operations.size(); ++i) {
      for (std::size_t j = from.index(); j < i; ++j) {
        if (!reached[j]) continue;
        for (const Write& write : graph.operations[j].writes) {
          for (const Read& read : graph.operations[i].reads) {
            if (read.value == write.value && read.distance == 0) reached[i] = true;
          }
        }
      }
    }
    return bool(reached[to.index()]);
  };
  int hidden = 0;
  for (std::size_t i = 0; i < hides.size(); ++i) {
    if (!hides[i].valid()) continue;
    ++hidden;
    EXPECT_EQ(graph.operations[i].phase, Phase::weight_grad);
    EXPECT_EQ(graph.op(hides[i]).communication->group, GroupKind::ep);
    EXPECT_FALSE(reaches(make_id<OpId>(i), hides[i])) << describe(graph.operations[i]);
    EXPECT_FALSE(reaches(hides[i], make_id<OpId>(i))) << describe(graph.operations[i]);
  }
  EXPECT_GT(hidden, 4);
}

}  // namespace
}  // namespace weft
