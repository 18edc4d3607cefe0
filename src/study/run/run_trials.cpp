// Between GPUs: before a run plans, it tries a few steps and takes over what these say of transfers. Nothing of what
// they train is kept. Plans are those of the run's own inputs, on the connections that the run will use.
#include <algorithm>

#include "base/text.hpp"
#include "calibrate/trial_overlap.hpp"
#include "calibrate/trial_times.hpp"
#include "exec/rank_exchange.hpp"
#include "planner/policy/policy.hpp"
#include "sim/simulate_plan.hpp"
#include "study/run/run_session.hpp"

namespace weft {
namespace {

constexpr std::int64_t kSteps = 9, kWarmUp = 3;
constexpr int kMostTrials = 2;      // of plans that a search chose
constexpr double kTooShort = 0.97;  // predictions below that part of the measured step are corrected
constexpr double kScale = 1e6;      // of numbers as text

}  // namespace

void RunSession::try_steps(Communicator& communicator) {
  const Stay here(communicator.whereabouts(), "the trial of steps");
  use_links_of_library();
  try_serial_step(communicator);
  const auto searched =
      std::ranges::find_if(options_.policies, [](const std::string& policy) { return searches(policy); });
  if (searched == options_.policies.end() || !options_.plans.empty()) return;
  for (int trial = 0; trial < kMostTrials; ++trial) {
    use_links_of_library();
    if (!try_overlapped_step(communicator, *searched)) break;
  }
}

TrainResult RunSession::try_plan(Communicator& communicator, const PolicyStudy& predicted) {
  TrainSettings settings = options_.settings;
  settings.steps = kSteps;
  TrainJob job{*predicted.whole, settings, options_.corpus, kWarmUp, !processes(), nullptr};
  job.graphs = GraphWish::never;
  const RankProcessor own = make_processor(communicator);
  return train_rank(job, communicator, own.get());
}

// All its transfers are waited for, so what compute and transfers take shows by itself.
void RunSession::try_serial_step(Communicator& communicator) {
  const PlanStudy study = study_plan(options_.inputs, {"serial"}, profile_);
  const PolicyStudy& predicted = study.policies.front();
  if (options_.memory_given && !predicted.fits) return;
  const TrainResult result = try_plan(communicator, predicted);
  std::string said;
  double measured_s = 0;
  if (reports(communicator)) {
    const PolicyRun run = study_run(study, predicted, result.run, result.losses);
    measured_s = run.median_step_s();
    said = to_text(compare_trial(predicted.timeline, run.measured.timeline));
  }
  const TrialRatios ratios = trial_ratios_from(text_of_rank_0(communicator, said));
  scale_by_trial(ratios, profile_.library);
  scale_by_trial(ratios, profile_.devices[options_.inputs.cluster.device.name]);
  if (!reports(communicator)) return;
  const Cluster cluster(options_.inputs.cluster);
  const CostModel cost(predicted.plan().graph, cluster, profile_);
  listener_.remark(
      fmt::format("a trial of serial took {:.1f} ms, predicted {:.1f}; with its times for compute and transfers {:.1f}",
                  measured_s * 1e3, predicted.step_s * 1e3,
                  simulate_plan(*predicted.whole, cost, {.names = false}).period_ns * 1e-6));
}

// Returns whether it changed what is known, so that the search would choose again.
bool RunSession::try_overlapped_step(Communicator& communicator, const std::string& policy) {
  const PlanStudy study = study_plan(options_.inputs, {policy}, profile_);
  const PolicyStudy& predicted = study.policies.front();
  if (options_.memory_given && !predicted.fits) return false;
  const TrainResult result = try_plan(communicator, predicted);
  DeviceProfile& device = profile_.devices[options_.inputs.cluster.device.name];
  const OverlapFacts assumed{profile_.library.at_once,
                             device.transfer_slowdown.value_or(options_.inputs.cluster.device.transfer_slowdown)};
  std::string said;
  if (reports(communicator)) {
    const double measured_s = study_run(study, predicted, result.run, result.losses).median_step_s();
    OverlapFacts found = assumed;
    if (predicted.step_s < kTooShort * measured_s) {
      const Cluster cluster(options_.inputs.cluster);
      found = fit_overlap(assumed, measured_s, [&](const OverlapFacts& facts) {
        Profile profile = profile_;
        profile.library.at_once = facts.at_once;
        profile.devices[options_.inputs.cluster.device.name].transfer_slowdown = facts.transfer_slowdown;
        const CostModel cost(predicted.plan().graph, cluster, profile);
        return simulate_plan(*predicted.whole, cost, {.names = false}).period_ns * 1e-9;
      });
    }
    said = fmt::format("{} {}", std::llround(found.at_once * kScale), std::llround(found.transfer_slowdown * kScale));
    if (found != assumed) {
      listener_.remark(
          fmt::format("a trial of {} took {:.1f} ms, predicted {:.1f}: at once {:.2f} -> {:.2f} times the "
                      "bytes of one transfer, beside compute {:.0f} -> {:.0f} % longer",
                      policy, measured_s * 1e3, predicted.step_s * 1e3, assumed.at_once, found.at_once,
                      100 * assumed.transfer_slowdown, 100 * found.transfer_slowdown));
    }
  }
  const std::vector<std::string> numbers = split(text_of_rank_0(communicator, said), ' ');
  const auto number = [&](std::size_t i) {
    return static_cast<double>(parse_integer(numbers.at(i), "what a trial found")) / kScale;
  };
  profile_.library.at_once = number(0);
  device.transfer_slowdown = number(1);
  return std::abs(number(0) - assumed.at_once) + std::abs(number(1) - assumed.transfer_slowdown) > 2 / kScale;
}

}  // namespace weft
