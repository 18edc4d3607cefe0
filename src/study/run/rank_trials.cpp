#include "study/run/rank_trials.hpp"

#include <algorithm>

#include "base/parallel.hpp"
#include "base/text.hpp"
#include "calibrate/trial_times.hpp"
#include "planner/policy/policy.hpp"
#include "sim/simulate_plan.hpp"

namespace weft {
namespace {

// Steps of a trial, and those of them that do not count.
constexpr std::int64_t kStepsOnGpus = 9, kWarmUpOnGpus = 3;
constexpr std::size_t kMostOfOthers = 3;    // plans of other policies
constexpr std::size_t kMostTurnsAgain = 3;  // plans that are tried a second time
constexpr double kTooShort = 0.97;          // predictions below that part of the measured step are corrected
constexpr double kScale = 1e6;              // of numbers as text

std::string to_text(const OverlapFacts& facts) {
  return fmt::format("{} {} {}", std::llround(facts.at_once * kScale), std::llround(facts.transfer_slowdown * kScale),
                     std::llround(facts.compute_slowdown * kScale));
}

OverlapFacts overlap_facts_from(const std::string& text) {
  const std::vector<std::string> numbers = split(text, ' ');
  const auto number = [&](std::size_t i) {
    return static_cast<double>(parse_integer(numbers.at(i), "what a trial found")) / kScale;
  };
  return {number(0), number(1), number(2)};
}

}  // namespace

RunSession::RankTrials::RankTrials(RunSession& session, Communicator& communicator, std::size_t most)
    : session_(session), communicator_(communicator), most_(most), options_(session.options_) {
  const auto searched =
      std::ranges::find_if(options_.policies, [](const std::string& policy) { return searches(policy); });
  if (searched != options_.policies.end() && options_.plans.empty()) searched_ = *searched;
}

void RunSession::RankTrials::learn() {
  once([&] { session_.settle_profile(communicator_); });
  const bool learns = session_.learns_from_trials();
  if (learns || searched_) try_serial_step(learns);
  alone_ = facts_known();
  if (searched_) try_searched(learns);
}

void RunSession::RankTrials::decide() {
  if (!has_searched_) return;
  try_others();
  try_cautious();
  try_close_ones_again();
  if (session_.learns_from_trials()) learn_from_all();
  once([&] { session_.tried_[fastest_of(session_.tried_)].taken = true; });
}

bool RunSession::RankTrials::add_plan(const std::string& policy, const std::string& name, const Profile& profile) {
  const std::size_t before = tried();
  once([&] {
    add(name, study_plan(options_.inputs, {policy}, profile));
    if (!may_run(session_.tried_.back()) || is_known(session_.tried_.back())) session_.tried_.pop_back();
  });
  return tried() > before;
}

void RunSession::RankTrials::add(const std::string& name, PlanStudy study) {
  TriedPlan plan{.name = name, .study = std::move(study)};
  plan.predicted_s = plan.policy().step_s;
  session_.tried_.push_back(std::move(plan));
}

bool RunSession::RankTrials::may_run(const TriedPlan& plan) const {
  return plan.policy().fits || !options_.memory_given;
}

bool RunSession::RankTrials::is_known(const TriedPlan& plan) const {
  const std::string digest = digest_without_name(plan.policy().plan());
  return std::ranges::any_of(session_.tried_, [&](const TriedPlan& other) {
    return &other != &plan && digest_without_name(other.policy().plan()) == digest;
  });
}

std::optional<PolicyRun> RunSession::RankTrials::try_plan(std::size_t number) {
  const PlanStudy& study = session_.tried_[number].study;
  const bool on_gpus = session_.on_gpus();
  TrainSettings settings = options_.settings;
  settings.steps = on_gpus ? kStepsOnGpus : kStepsOfTrial;
  TrainJob job{*study.policies.front().whole, settings, options_.corpus, on_gpus ? kWarmUpOnGpus : kWarmUpOfTrial,
               !session_.processes(),         nullptr};
  job.graphs = GraphWish::never;
  job.is_trial = true;
  const RankProcessor own = session_.make_processor(communicator_);
  const TrainResult result = train_rank(job, communicator_, own.get());
  std::optional<PolicyRun> measured;
  if (is_first()) measured = study_run(study, study.policies.front(), result.run, result.losses);
  keep_turn(number, measured ? measured->median_step_s() : 0);
  return measured;
}

// All ranks know it as rank 0 measured it, and so decide alike.
void RunSession::RankTrials::keep_turn(std::size_t number, double measured_s) {
  const std::string said =
      text_of_rank_0(communicator_, is_first() ? std::to_string(std::llround(measured_s * 1e9)) : "");
  once([&] {
    session_.tried_[number].turns.push_back(static_cast<double>(parse_integer(said, "a trial's step")) * 1e-9);
  });
}

// All its transfers are waited for, so what compute and transfers take shows by itself.
void RunSession::RankTrials::try_serial_step(bool learns) {
  if (!add_plan("serial", "serial", session_.profile_)) return;
  const std::size_t number = tried() - 1;
  const std::optional<PolicyRun> run = try_plan(number);
  if (!learns) return;
  const PolicyStudy& predicted = session_.tried_[number].policy();
  const std::string said = run ? to_text(compare_trial(predicted.timeline, run->measured.timeline)) : "";
  const TrialRatios ratios = trial_ratios_from(text_of_rank_0(communicator_, said));
  once([&] {
    scale_by_trial(ratios, session_.profile_.library);
    scale_by_trial(ratios, session_.profile_.devices[options_.inputs.cluster.device.name]);
    session_.settle_profile(communicator_);
  });
  if (!run) return;
  session_.listener_.remark(fmt::format(
      "a trial of serial took {:.1f} ms, predicted {:.1f}; with its times for compute and transfers {:.1f}",
      run->median_step_s() * 1e3, predicted.step_s * 1e3, step_of(*predicted.whole, session_.profile_) * 1e3));
}

// Where the search's plan takes longer than was promised, it chooses again under what that says.
void RunSession::RankTrials::try_searched(bool learns) {
  for (std::size_t lessons = 0; tried() < most_; ++lessons) {
    const std::string name = lessons == 0 ? *searched_ : fmt::format("{}, chosen again", *searched_);
    const bool is_new = add_plan(*searched_, name, session_.profile_);
    has_searched_ = true;
    if (!is_new) return;
    const std::size_t number = tried() - 1;
    try_plan(number);
    if (!learns || lessons == kMostLessons || !learn_overlap(number)) return;
  }
}

// Simpler plans may be faster than they are predicted beside one that a search chose.
void RunSession::RankTrials::try_others() {
  const std::size_t before = tried();
  if (before >= most_) return;
  once([&] { add_others(std::min(kMostOfOthers, most_ - before)); });
  const std::size_t end = tried();
  for (std::size_t number = before; number < end; ++number) try_plan(number);
}

void RunSession::RankTrials::add_others(std::size_t most) {
  std::vector<std::string> policies = policy_names();
  for (const std::string& asked : options_.policies) {
    if (std::ranges::find(policies, asked) == policies.end()) policies.push_back(asked);
  }
  std::erase_if(policies, [&](const std::string& policy) {
    return searches(policy) || (facts_of(policy).of_experts && options_.inputs.layout.ep == 1);
  });
  const PlanStudy all = study_plan(options_.inputs, policies, session_.profile_);
  std::vector<std::string> known;
  double best_s = all.policies[all.best].step_s;
  for (const TriedPlan& plan : session_.tried_) {
    known.push_back(digest_without_name(plan.policy().plan()));
    best_s = std::min(best_s, plan.measured_s());
  }
  for (const std::size_t i : worth_a_trial(all.policies, known, best_s, most)) {
    PlanStudy one = all;
    one.policies = {all.policies[i]};
    one.best = 0;
    add(all.policies[i].policy, std::move(one));
  }
}

// Where the model errs about what runs at the same time, a plan that hides less may be faster.
void RunSession::RankTrials::try_cautious() {
  if (tried() >= most_) return;
  const Profile careful = cautious(session_.profile_, options_.inputs.cluster.device);
  if (!add_plan(*searched_, fmt::format("{}, cautious", *searched_), careful)) return;
  const std::size_t number = tried() - 1;
  try_plan(number);
  once([&] {
    TriedPlan& plan = session_.tried_[number];
    plan.predicted_s = step_of(*plan.policy().whole, session_.profile_);
  });
}

void RunSession::RankTrials::try_close_ones_again() {
  const double spread = session_.on_gpus() ? kTrialSpreadOnGpus : kTrialSpread;
  for (const std::size_t number : too_close_to_call(session_.tried_, spread, kMostTurnsAgain)) try_plan(number);
}

// Returns whether it changed what is known, so that the search would choose again.
bool RunSession::RankTrials::learn_overlap(std::size_t number) {
  const TriedPlan& plan = session_.tried_[number];
  const OverlapFacts assumed = facts_known();
  OverlapFacts found = assumed;
  if (is_first() && plan.predicted_s < kTooShort * plan.measured_s()) {
    found = fit_overlap(assumed, plan.measured_s(), [&](const OverlapFacts& facts) {
      return step_of(*plan.policy().whole, with_facts(session_.profile_, facts));
    });
    session_.listener_.remark(
        fmt::format("a trial of {} took {:.1f} ms, predicted {:.1f}: at once {:.2f} -> {:.2f} times the "
                    "bytes of one transfer, beside compute {:.0f} -> {:.0f} % longer",
                    plan.name, plan.measured_s() * 1e3, plan.predicted_s * 1e3, assumed.at_once, found.at_once,
                    100 * assumed.transfer_slowdown, 100 * found.transfer_slowdown));
  }
  found = overlap_facts_from(text_of_rank_0(communicator_, to_text(found)));
  take_over(found);
  return std::abs(found.at_once - assumed.at_once) + std::abs(found.transfer_slowdown - assumed.transfer_slowdown) >
         2 / kScale;
}

// When all have been tried.
void RunSession::RankTrials::learn_from_all() {
  const OverlapFacts found = is_first() ? fit_of_all() : OverlapFacts{};
  take_over(overlap_facts_from(text_of_rank_0(communicator_, to_text(found))));
}

// Returns what explains the steps of all plans together. The serial step says nothing of it.
OverlapFacts RunSession::RankTrials::fit_of_all() const {
  std::vector<const WholePlan*> plans;
  std::vector<double> measured_s;
  for (const TriedPlan& plan : session_.tried_) {
    if (plan.name == "serial") continue;
    plans.push_back(plan.policy().whole.get());
    measured_s.push_back(plan.measured_s());
  }
  if (plans.empty()) return facts_known();
  return fit_overlap_of_all(alone_, facts_known(), measured_s, [&](const OverlapFacts& facts) {
    const Profile profile = with_facts(session_.profile_, facts);
    std::vector<double> steps(plans.size());
    parallel_for(plans.size(), plans.size(), [&](std::size_t i) { steps[i] = step_of(*plans[i], profile); });
    return steps;
  });
}

OverlapFacts RunSession::RankTrials::facts_known() const {
  const Device& device = options_.inputs.cluster.device;
  const DeviceProfile& known = session_.profile_.device(device.name);
  return {session_.profile_.library.at_once, known.transfer_slowdown.value_or(device.transfer_slowdown),
          known.compute_slowdown.value_or(device.compute_slowdown)};
}

Profile RunSession::RankTrials::with_facts(Profile profile, const OverlapFacts& facts) const {
  const std::string& name = options_.inputs.cluster.device.name;
  DeviceProfile device = profile.device(name);
  device.transfer_slowdown = facts.transfer_slowdown;
  device.compute_slowdown = facts.compute_slowdown;
  profile.devices[name] = device;
  profile.library.at_once = facts.at_once;
  return profile;
}

void RunSession::RankTrials::take_over(const OverlapFacts& facts) {
  once([&] {
    session_.profile_ = with_facts(session_.profile_, facts);
    session_.settle_profile(communicator_);
  });
}

double RunSession::RankTrials::step_of(const WholePlan& whole, const Profile& profile) const {
  const Cluster cluster(options_.inputs.cluster);
  const CostModel cost(whole.plan().graph, cluster, profile);
  return simulated_period_ns(whole, cost) * 1e-9;
}

}  // namespace weft
