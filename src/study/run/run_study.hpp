// The figures of one run: what was predicted and measured for every policy, and the loss.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "exec/measured_timeline.hpp"
#include "study/plan/plan_study.hpp"
#include "study/run/checkpoint_study.hpp"

namespace weft {

struct PolicyRun {
  PolicyStudy measured;  // plan and memory as predicted; timeline and figures measured
  double predicted_step_s = 0;
  Timeline predicted;  // timeline
  Accounting predicted_accounting;
  std::vector<double> step_times_s;  // of the steps that count
  std::vector<double> losses;        // by step
  std::vector<double> learning_rates = {};
  std::vector<double> compression_errors = {};  // by step, where gradients are compressed
  std::vector<ValidationLoss> validation = {};  // where it was asked for
  std::optional<HostReport> host = {};          // on GPUs

  double prediction_error_pct() const { return 100 * (predicted_step_s / measured.step_s - 1); }
  double median_step_s() const;
};

// A plan that ran for a few steps before the training.
struct TriedStep {
  std::string name;
  double predicted_s = 0, measured_s = 0;  // of a step; the median
  bool taken = false;                      // by the policy that searches
};

struct RunStudy {
  PlanStudy plan;                // the prediction, all policies that were asked for
  std::vector<TriedStep> tried;  // in the order in which they were tried first
  std::vector<PolicyRun> runs;
  std::size_t best = 0;  // shortest measured step
  std::string world;     // "threads", "processes"
  std::string links;     // "emulated: local:2,nic=200Mb/s", "real, measured: messages over TCP sockets"
  std::int64_t ranks = 1;
  int threads = 1;                             // inside a kernel
  std::string profile;                         // where the durations come from
  std::optional<CheckpointStudy> checkpoints;  // where they were asked for
};

// Turns what the ranks measured into figures, beside those of the prediction.
PolicyRun study_run(const PlanStudy& plan, const PolicyStudy& predicted, const MeasuredRun& run,
                    std::vector<double> losses);

// Returns the first steps of the steady state (at most `most`), with the step before and the step after where they
// exist: they show what the first step waits for and what follows the last one.
Timeline first_steady_steps(const Timeline& measured, std::int32_t most);

}  // namespace weft
