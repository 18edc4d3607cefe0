// Simulated steps of small plans for the tests of this folder.
#pragma once

#include <gtest/gtest.h>

#include <utility>

#include "planner/test_plans.hpp"
#include "sim/simulate_plan.hpp"
#include "timeline/accounting.hpp"
#include "timeline/folded_spans.hpp"

namespace weft::test {

// Every execution as a span.
inline Timeline simulated(const Plan& plan, const Profile& profile) {
  const Cluster cluster(plan.cluster);
  return expanded(simulate_plan(WholePlan(plan), CostModel(plan.graph, cluster, profile)));
}
inline Timeline simulated(const PlanRequest& request) {
  return simulated(serial(request), request.profile);
}
// For policies that search: a little.
inline PlanRequest searching(PlanRequest request) {
  request.search.step_seconds = [profile = request.profile](const WholePlan& made) {
    const Cluster cluster(made.plan().cluster);
    return simulate_plan(made, CostModel(made.plan().graph, cluster, profile)).period_ns * 1e-9;
  };
  request.search.budget_s = 0.05;
  return request;
}
inline Timeline simulated(const PlanRequest& request, std::string_view policy) {
  return simulated(make_plan(searching(request), build(request), policy), request.profile);
}

// Kernels and messages without fixed costs, links at their stated rate, nothing in each other's way.
inline void idealize(PlanRequest& request) {
  remove_overheads(request.profile);
  request.cluster.device.compute_slowdown = request.cluster.device.transfer_slowdown = 0;
  for (LevelSpec& level : request.cluster.levels) level.latency = Nanos{0};
}

// The host is never late.
inline void issue_at_once(PlanRequest& request) {
  for (auto& [name, device] : request.profile.devices) {
    device.launch = device.transfer_launch = device.resync = Nanos{0};
  }
}

// compute + slowdown + exposed + bubble + idle = step, on every rank. Returns the accounts for further questions.
inline Accounting checked_accounting(const Timeline& timeline) {
  Accounting accounting = account(timeline);
  for (const RankAccount& a : accounting.ranks) {
    EXPECT_NEAR(a.step_s, timeline.period_ns * 1e-9, 1e-9);
    EXPECT_NEAR(a.compute_s + a.slowdown_s + a.exposed_s + a.bubble_s + a.idle_s, a.step_s, 1e-12 + 1e-9 * a.step_s);
    for (const double term : {a.compute_s, a.slowdown_s, a.exposed_s, a.bubble_s, a.idle_s}) EXPECT_GE(term, 0);
  }
  return accounting;
}

}  // namespace weft::test
