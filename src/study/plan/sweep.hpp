// Tries many layouts, clusters and policies: each combination is planned and simulated, or has a reason why it is not.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cost/profile.hpp"
#include "study/inputs.hpp"
#include "study/plan/sweep_spec.hpp"
#include "study/progress.hpp"

namespace weft {

// The figures of one plan, means over ranks.
struct SweepFigures {
  double step_s = 0;
  double tokens_per_s = 0;
  double tflops_per_gpu = 0;
  double mfu = 0;
  double exposed_comm_s = 0;
  double hidden_pct = 0;  // NaN without communication
  double bubble_s = 0;
  friend bool operator==(const SweepFigures&, const SweepFigures&) = default;
};

struct SweepRow {
  std::size_t combination = 0;
  SweepChoice choice;
  std::optional<SweepFigures> figures;  // nothing: infeasible
  std::optional<Bytes> memory_peak;     // of the fullest device; nothing where no plan was made
  std::optional<bool> fits;             // in memory; nothing where it failed earlier
  bool tight = false;                   // it fits, and needs more than kTightMemory of what a stage has
  std::string decided;                  // "schedule auto-loops stage-layers 9,9,8,6 recompute-layers 3,1,0,0"
  std::string reason;                   // why it is infeasible
};

struct Sweep {
  SweepSpec spec;
  std::vector<SweepRow> rows;  // in order of combination
  double seconds = 0;          // that the sweep took

  // Returns the feasible rows, fastest first, by time per token; ties by combination. Where all rows process as many
  // tokens, this is the order of step times.
  std::vector<std::size_t> ranking() const;
  std::string describe(const SweepRow& row) const;  // "tp=8 pp=2"
};

// What a sweep asks about a combination. It asks once for all combinations that cannot differ in the answer.
struct SweepSource {
  std::function<Transformer(const SweepChoice&)> model;
  std::function<ClusterSpec(const SweepChoice&)> cluster;
  // What the model or the cluster does not allow throws Error, which is the reason of the combination's rows. May
  // change the model as the layout needs it.
  std::function<Layout(const SweepChoice&, const Cluster&, Transformer&)> layout;
  PolicyOptions options = {};
  double budget_s = PlanSearch{}.budget_s;  // of policies that search
  // Decides what flags leave to prediction, for the policy of a combination, and says it; null: they leave nothing.
  std::function<std::string(const SweepChoice&, Inputs&)> decide = {};
};

struct SweepOptions {
  std::size_t jobs = 1;
  OnProgress on_progress = {};
};

// `policy` must be a key of `spec`. The rows do not depend on the number of jobs.
Sweep run_sweep(SweepSpec spec, const SweepSource& source, const Profile& profile, const SweepOptions& options);

}  // namespace weft
