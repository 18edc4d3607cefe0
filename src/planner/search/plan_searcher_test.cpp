// The search of policy `weft` with step times that are made up, so that the best plan is known: by construction, or by
// trying every point of a small space.
#include "planner/search/plan_searcher.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <limits>

#include "plan/happens_before.hpp"
#include "planner/passes.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

using Space = DecisionSpace;
// Made-up seconds of a plan. They are far above the time that the cost model knows for these small models, so that the
// search leaves out no policy because of it.
using StepTime = std::function<double(const Plan&)>;
constexpr double kSlow = 1e3;
constexpr double kAmple = 1e4;  // a budget that no search of these spaces ends

double operations_of(const Plan& plan) {
  return static_cast<double>(plan.graph.operations.size());
}

// Transfers that computation waits for.
double blocking_of(const Plan& plan) {
  return static_cast<double>(
      std::count_if(plan.issues.begin(), plan.issues.end(), [](const Issue& issue) { return issue.blocking; }));
}

double memory_of(const Plan& plan) {
  double most = 0;
  for (const ClassPlan& cls : plan.classes) most = std::max(most, static_cast<double>(cls.memory.value));
  return most;
}

struct Problem {
  Problem(const Layout& layout, StepTime step_time)
      : request(test::request(test::small_gpt(2), parse_cluster("local:2"), layout, 2)),
        graph(test::build(request)),
        time(std::move(step_time)) {
    request.search.budget_s = kAmple;
    request.search.step_seconds = [this](const WholePlan& made) {
      ++evaluations;
      return kSlow + time(made.plan());
    };
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  Overlap search() { return PlanSearcher(request, graph).best_of({decide_overlap(request, graph, "serial")}).overlap; }
  Plan plan_of(const Overlap& overlap) const { return overlapped_plan(request, graph, "weft", overlap).plan(); }
  void give_memory(Bytes memory) {
    StepGraph changed = *graph;
    for (auto& cls : changed.classes) cls.device.memory = memory;
    graph = std::move(changed);
  }
  bool fits(const Plan& plan) const {
    for (std::size_t c = 0; c < plan.classes.size(); ++c) {
      if (plan.classes[c].memory > graph->classes[c].device.memory) return false;
    }
    return true;
  }

  PlanRequest request;
  SharedGraph graph;
  StepTime time;
  std::atomic<int> evaluations = 0;
};

// Every point whose plan can run. The effort of weaving is left at nothing: it takes long and these times ignore order.
void for_every_point(const Problem& problem, const std::function<void(const Decisions&, const Plan&)>& visit) {
  const DecisionSpace space(problem.request, problem.graph);
  Decisions point = space.start();
  for (;;) {
    const WholePlan made = overlapped_plan(problem.request, problem.graph, "weft", space.overlap(point));
    if (find_run_order(made.unfolded()).cycle.empty()) visit(point, made.plan());
    std::size_t d = 0;
    for (; d < Space::kWeaveVisits && ++point.chosen[d] == space.options(d); ++d) point.chosen[d] = 0;
    if (d == Space::kWeaveVisits) return;
  }
}

struct NamedTime {
  std::string name;
  StepTime time;
};
// Each depends on what few dimensions decide, one after the other: no search can miss its best plan but by mistake.
const std::vector<NamedTime>& simple_times() {
  static const std::vector<NamedTime> times = {
      {"few operations", operations_of},
      {"many operations", [](const Plan& plan) { return -operations_of(plan); }},
      {"little memory", [](const Plan& plan) { return memory_of(plan) * 1e-9; }},
      {"much memory", [](const Plan& plan) { return -memory_of(plan) * 1e-9; }},
      {"few that wait", blocking_of},
  };
  return times;
}

TEST(PlanSearcher, FindsWhatTryingEveryPointFinds) {
  for (const Layout& layout : {Layout{}, Layout{.zero = 3}, Layout{.pp = 2}}) {
    std::vector<Plan> plans;
    {
      const Problem problem(layout, operations_of);
      plans.push_back(problem.plan_of(decide_overlap(problem.request, problem.graph, "serial")));
      for_every_point(problem, [&](const Decisions&, const Plan& plan) { plans.push_back(plan); });
    }
    for (const auto& [name, time] : simple_times()) {
      SCOPED_TRACE(fmt::format("zero {}, pp {}, {}", layout.zero, layout.pp, name));
      double least = std::numeric_limits<double>::infinity();
      for (const Plan& plan : plans) least = std::min(least, time(plan));
      Problem problem(layout, time);
      // Orders by layers and what is refined are not points of the space. They are searched on top of it.
      const Overlap best = problem.search();
      EXPECT_LE(time(problem.plan_of(best)), least);
    }
  }
}

// Only the serial plan waits for every transfer: where waiting is what is fast, it is best, and it is not in the space.
// At ZeRO 2 nothing is refined, which could cut a transfer into several to wait for.
TEST(PlanSearcher, TakesANamedPolicyThatIsBetterThanAllItFinds) {
  Problem problem({.zero = 2}, [](const Plan& plan) { return -blocking_of(plan); });
  const Overlap serial = decide_overlap(problem.request, problem.graph, "serial");
  const double most = blocking_of(problem.plan_of(serial));
  for_every_point(problem, [&](const Decisions&, const Plan& plan) { ASSERT_LT(blocking_of(plan), most); });
  EXPECT_EQ(problem.search(), serial);
}

TEST(PlanSearcher, SearchesNothingWithoutABudget) {
  Problem problem({}, operations_of);
  problem.request.search.budget_s = 0;
  const Overlap serial = decide_overlap(problem.request, problem.graph, "serial");
  EXPECT_EQ(problem.search(), serial);
  EXPECT_EQ(problem.evaluations, 1);
}

// A second is 400,000 operations to simulate. A candidate has at least the operations of the step, and one may be under
// way when the budget ends; the named policy comes on top.
TEST(PlanSearcher, KeepsWithinItsBudget) {
  int before = 0;
  for (const double budget_s : {0.0005, 0.002, 0.01, 0.05}) {
    Problem problem({.zero = 3}, [](const Plan& plan) { return operations_of(plan); });
    problem.request.search.budget_s = budget_s;
    problem.search();
    const double operations = operations_of(problem.plan_of(decide_overlap(problem.request, problem.graph, "serial")));
    const double micro_batches = 2;
    EXPECT_LE(problem.evaluations, 2 + budget_s * 400e3 / (operations * micro_batches)) << budget_s;
    EXPECT_GE(problem.evaluations, before) << budget_s;
    before = problem.evaluations;
  }
  EXPECT_GT(before, 2);
}

// A time without any pattern, so that where the search goes depends on every one of its choices.
double scattered(const Plan& plan) {
  std::uint64_t hash = 1469598103934665603ULL;
  for (const double figure : {operations_of(plan), blocking_of(plan), memory_of(plan)}) {
    hash = (hash ^ static_cast<std::uint64_t>(figure)) * 1099511628211ULL;
  }
  return static_cast<double>(hash >> 40) * 1e-6;
}

TEST(PlanSearcher, FindsTheSameWithAnyNumberOfThreads) {
  for (const Layout& layout : {Layout{.zero = 3}, Layout{.pp = 2}}) {
    Problem one(layout, scattered), again(layout, scattered), three(layout, scattered);
    three.request.search.jobs = 3;
    const Overlap found = one.search();
    EXPECT_EQ(again.search(), found);
    EXPECT_EQ(three.search(), found);
    EXPECT_EQ(again.evaluations, one.evaluations);
    EXPECT_EQ(three.evaluations, one.evaluations);
  }
}

TEST(PlanSearcher, EverySeedEndsWhereNoSingleChangeHelps) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    Problem problem({.zero = 3}, scattered);
    problem.request.search.seed = seed;
    const Overlap found = problem.search();
    const double time = scattered(problem.plan_of(found));
    const DecisionSpace space(problem.request, problem.graph);
    int points = 0;
    for_every_point(problem, [&](const Decisions& point, const Plan&) {
      Overlap overlap = space.overlap(point);
      overlap.weave.visits = found.weave.visits;
      if (overlap != found) return;
      ++points;
      for (std::size_t d = 0; d < Space::kWeaveVisits; ++d) {
        for (std::size_t option = 0; option < space.options(d); ++option) {
          Decisions other = point;
          other.chosen[d] = option;
          EXPECT_GE(scattered(problem.plan_of(space.overlap(other))), time) << "seed " << seed << ", dimension " << d;
        }
      }
    });
    EXPECT_GE(points, 1) << "seed " << seed;
  }
}

// ZeRO 3 holds more the further it gathers ahead. With room for the middle of all that points need, the more a plan
// needs the faster it is said to be: the search must come near the plan that needs most of those that fit.
TEST(PlanSearcher, PrefersWhatFits) {
  Problem problem({.zero = 3}, [](const Plan& plan) { return -memory_of(plan) * 1e-9; });
  std::vector<double> needs;
  for_every_point(problem, [&](const Decisions&, const Plan& plan) { needs.push_back(memory_of(plan)); });
  std::sort(needs.begin(), needs.end());
  const double middle = (needs.front() + needs.back()) / 2;
  ASSERT_LT(needs.front(), middle);
  ASSERT_GT(needs.back(), middle);
  const double most_that_fits = *std::prev(std::upper_bound(needs.begin(), needs.end(), middle));
  problem.give_memory(Bytes{static_cast<std::int64_t>(middle)});
  const Plan found = problem.plan_of(problem.search());
  EXPECT_TRUE(problem.fits(found));
  EXPECT_LE(memory_of(found), most_that_fits);
  EXPECT_GE(memory_of(found), 0.95 * most_that_fits);
}

TEST(PlanSearcher, TakesTheFastestWhereNothingFits) {
  Problem problem({.zero = 3}, [](const Plan& plan) { return -memory_of(plan) * 1e-9; });
  problem.give_memory(Bytes{1});
  const Overlap serial = decide_overlap(problem.request, problem.graph, "serial");
  const DecisionSpace space(problem.request, problem.graph);
  const Plan found = problem.plan_of(problem.search());
  EXPECT_FALSE(problem.fits(found));
  EXPECT_GE(memory_of(found), memory_of(problem.plan_of(serial)));
  EXPECT_GE(memory_of(found), memory_of(problem.plan_of(space.overlap(space.start()))));
}

TEST(PlanSearcher, ProgressRisesToOne) {
  Problem problem({.zero = 3}, scattered);
  problem.request.search.budget_s = 0.05;
  std::vector<double> shares;
  problem.request.search.progress = [&](double share) { shares.push_back(share); };
  problem.search();
  ASSERT_FALSE(shares.empty());
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  EXPECT_GE(shares.front(), 0);
  EXPECT_EQ(shares.back(), 1);
}

}  // namespace
}  // namespace weft
