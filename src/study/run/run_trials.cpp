// Which plans a run tries before it trains, and what it makes of that (rank_trials.hpp).
#include <algorithm>

#include "planner/policy/policy.hpp"
#include "study/run/rank_trials.hpp"

namespace weft {
namespace {

constexpr std::size_t kPlansOnGpus = 8, kPlans = 4;
constexpr std::size_t kPlansToLearnFrom = 1 + kMostLessons;  // the serial one, and those that a search chose
// On processors a run tries plans by itself where that takes a twentieth of its steps at most: four plans and three of
// them again, six steps each.
constexpr std::int64_t kStepsThatPay = 840;

}  // namespace

// Where the user does not say it: on GPUs whose collectives were measured always, on processors in long runs that have
// something to choose.
std::size_t RunSession::plans_to_try(const Communicator& communicator) const {
  if (communicator.size() < 2) return 0;
  if (options_.trials) return static_cast<std::size_t>(*options_.trials);
  if (learns_from_trials()) return kPlansOnGpus;
  if (on_gpus() || options_.profile || !options_.lengths.empty()) return 0;
  return options_.settings.steps - first_step_ >= kStepsThatPay ? kPlans : 0;
}

void RunSession::try_steps(Communicator& communicator) {
  const std::size_t most = plans_to_try(communicator);
  if (most == 0) return;
  const Stay here(communicator.whereabouts(), "the trial of steps");
  RankTrials trials(*this, communicator, most);
  trials.learn();
  trials.decide();
}

void RunSession::learn_from_steps(Communicator& communicator) {
  if (!learns_from_trials() || communicator.size() < 2 || options_.trials == 0) return;
  const Stay here(communicator.whereabouts(), "the trial of steps");
  RankTrials(*this, communicator, kPlansToLearnFrom).learn();
}

// Returns the plan of the search that was tried and is to be taken, under the search's own name; none where none was
// tried.
std::optional<PolicyStudy> RunSession::taken_plan(const std::string& searched) const {
  const auto taken = std::ranges::find_if(tried_, &TriedPlan::taken);
  if (taken == tried_.end()) return std::nullopt;
  const PolicyStudy& tried = taken->policy();
  Plan plan = tried.plan();
  plan.policy = searched;
  const auto whole = std::make_shared<const WholePlan>(std::move(plan), tried.whole->shared_original());
  PolicyStudy study = study_given_plans(options_.inputs, {whole}, profile_).policies.front();
  study.layer_order = tried.layer_order;
  study.pipeline = tried.pipeline;
  return study;
}

// Where plans were tried, the search is over. What was fastest then is the best, whatever others promise.
PlanStudy RunSession::study_policies() const {
  std::vector<std::string> policies = options_.policies;
  const auto searched = std::ranges::find_if(policies, [](const std::string& policy) { return searches(policy); });
  std::optional<PolicyStudy> taken;
  if (searched != policies.end()) taken = taken_plan(*searched);
  if (!taken) return study_plan(options_.inputs, policies, profile_);
  const auto place = searched - policies.begin();
  policies.erase(searched);
  PlanStudy study = policies.empty() ? study_given_plans(options_.inputs, {taken->whole}, profile_)
                                     : study_plan(options_.inputs, policies, profile_);
  if (policies.empty()) study.policies.clear();
  taken->gap_to_bound_pct = 100 * (taken->step_s / study.bound_s - 1);
  study.best = std::min(static_cast<std::size_t>(place), study.policies.size());
  study.policies.insert(study.policies.begin() + static_cast<std::ptrdiff_t>(study.best), *std::move(taken));
  return study;
}

std::vector<TriedStep> RunSession::tried_steps() const {
  std::vector<TriedStep> steps;
  for (const TriedPlan& plan : tried_) {
    steps.push_back({plan.name, plan.predicted_s, plan.measured_s(), plan.taken});
  }
  return steps;
}

}  // namespace weft
