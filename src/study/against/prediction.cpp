#include "study/against/prediction.hpp"

#include <algorithm>
#include <cmath>

#include "cost/cost_model.hpp"
#include "planner/policy/policy.hpp"
#include "sim/simulate_plan.hpp"
#include "planner/framework_memory.hpp"
#include "planner/memory_needs.hpp"
#include "study/plan/plan_study.hpp"

namespace weft {

namespace {

WholePlan plan_of(const PlanRequest& request, const SharedGraph& graph, const std::string& policy,
                  std::int64_t most_held) {
  if (most_held == 0) return make_whole_plan(request, graph, policy);
  Overlap overlap = decide_overlap(request, *graph, policy);
  overlap.order.pipeline.most_held = most_held;
  return make_whole_plan(request, graph, policy, overlap);
}

}  // namespace

RunPrediction predict_run(const Inputs& inputs, const Profile& profile, const std::string& policy,
                          std::int64_t most_held) {
  const Cluster cluster(inputs.cluster);
  const SharedGraph graph = build_step_graph(inputs.model, cluster, inputs.layout);
  const WholePlan whole = plan_of(request_of(inputs, profile), graph, policy, most_held);
  const Plan& plan = whole.plan();
  RunPrediction run;
  const Timeline timeline = simulate_plan(whole, CostModel(plan.graph, cluster, profile));
  run.step_s = timeline.period_ns * 1e-9;
  run.account = account(timeline).mean;
  std::vector<MemoryNeed> needs;
  for (DetailedMemoryNeed& need : detailed_memory_needs(plan, profile)) {
    needs.push_back(need);
    run.memory.push_back(std::move(need.use));
  }
  const MemoryVerdict memory = judge_memory(needs);
  run.first_stage = needs.front().needed;
  run.fullest_stage = memory.needed;
  run.fits = memory.fits;
  run.fullest_share = memory.share;
  if (profile.framework) run.chance_of_fit = chance_of_fit(*profile.framework, run.fullest_share);
  return run;
}

Profile with_links(Profile profile, const Inputs& inputs, const std::vector<MeasuredCollective>& links) {
  if (!links.empty()) apply_measured_links(profile, Cluster(inputs.cluster), links);
  return profile;
}

std::vector<double> predict_steps(const Inputs& inputs, const std::vector<Profile>& profiles,
                                  const std::string& policy) {
  const Cluster cluster(inputs.cluster);
  const SharedGraph graph = build_step_graph(inputs.model, cluster, inputs.layout);
  const WholePlan whole = plan_of(request_of(inputs, profiles.front()), graph, policy, 0);
  std::vector<double> steps;
  for (const Profile& profile : profiles) {
    steps.push_back(simulate_plan(whole, CostModel(whole.plan().graph, cluster, profile)).period_ns * 1e-9);
  }
  return steps;
}

ErrorSummary summarize(const std::vector<double>& errors) {
  ErrorSummary summary;
  summary.rows = errors.size();
  if (errors.empty()) return summary;
  std::vector<double> sizes;
  for (const double error : errors) {
    sizes.push_back(100 * std::abs(error));
    summary.mean_pct += sizes.back();
    summary.bias_pct += 100 * error;
  }
  const auto n = static_cast<double>(errors.size());
  summary.mean_pct /= n;
  summary.bias_pct /= n;
  std::sort(sizes.begin(), sizes.end());
  summary.median_pct = sizes[sizes.size() / 2];
  summary.worst_pct = sizes.back();
  return summary;
}

}  // namespace weft
