// Many layouts, clusters and policies tried at once: each combination planned and simulated, or the reason why not.
#pragma once

#include <cstddef>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "app/inputs.hpp"
#include "app/plan/sweep_spec.hpp"
#include "cost/profile.hpp"

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
  std::vector<std::size_t> choice;      // by key of the spec: index of its value
  std::optional<SweepFigures> figures;  // nothing: infeasible
  std::optional<Bytes> memory_peak;     // of the fullest device; nothing where no plan was made
  std::optional<bool> fits;             // in memory; nothing where it failed before that question
  bool tight = false;                   // it fits, and needs more than kTightMemory of what a stage has
  std::string reason;                   // why it is infeasible
};

struct Sweep {
  SweepSpec spec;              // with `policy` among its keys
  std::vector<SweepRow> rows;  // in order of combination
  double seconds = 0;          // it took

  // Feasible rows, fastest first: by time per token, which is the order of step times where all process as many tokens;
  // ties by combination.
  std::vector<std::size_t> ranking() const;
  std::string describe(const SweepRow& row) const;  // "tp=8 pp=2"
};

struct SweepOptions {
  std::size_t jobs = 1;
  std::ostream* progress = nullptr;  // a terminal, or null
};

// Adds the policies to vary where `policy` is no key of `spec`. Throws Error where the flags themselves are wrong; what
// only some combination makes wrong is that row's reason. The rows do not depend on the number of jobs.
Sweep run_sweep(const Flags& flags, SweepSpec spec, const std::vector<std::string>& policies, const Profile& profile,
                const SweepOptions& options);

}  // namespace weft
