// Answers one planning question: every policy's plan, verified and simulated, with the figures that people compare.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cost/profile.hpp"
#include "cost/program_cost.hpp"
#include "io/plan_conditions.hpp"
#include "plan/memory/use.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/schedule/layer_order.hpp"
#include "planner/schedule/pipeline_search.hpp"
#include "study/inputs.hpp"
#include "study/progress.hpp"
#include "timeline/accounting.hpp"
#include "timeline/timeline.hpp"

namespace weft {

struct StageMemory {
  std::string name;
  Bytes needed, available;
  std::vector<MemoryTerm> terms;  // largest first
  MemoryPeak peak;
  // The share of the memory that plans may use.
  double share() const { return static_cast<double>(needed.value) / static_cast<double>(available.value); }
};

// The time of the chain of operations that decides the step, by what runs on it.
struct CriticalShare {
  double compute_s = 0;
  EnumArray<TrafficKind, double, kTrafficKinds> transfer_s{};
  double waiting_s = 0;  // nothing on the chain ran
};

// The rate of model FLOPs, and its share of the devices' peak at this precision; hfu also counts what is recomputed.
struct FlopRates {
  double tflops_per_gpu = 0;
  double mfu = 0, hfu = 0;
};
struct Throughput {
  double tokens_per_s = 0;
  FlopRates whole;   // attention counts all of its score matrix, as Megatron and published figures have it
  FlopRates causal;  // without the half of it that the mask hides, which fused kernels do not compute
};

struct PolicyStudy {
  std::string policy;
  std::shared_ptr<const WholePlan> whole;
  std::shared_ptr<ProgramCosts>
      programs;             // what Weft's own programs take, shared by all policies; null: there are none
  LayerOrder layer_order;   // where the policy decided on one
  PipelineChoice pipeline;  // likewise
  Timeline timeline;
  Accounting accounting;
  CriticalShare critical;
  double step_s = 0;
  Throughput throughput;
  double gap_to_bound_pct = 0;
  std::vector<StageMemory> memory;
  Bytes memory_peak;
  bool fits = true;
  std::optional<double> chance_of_fit = {};  // where the framework's memory has a known spread

  const Plan& plan() const { return whole->plan(); }
};

// Above this share of the memory that plans may use, fragmentation decides whether a run fits.
inline constexpr double kTightMemory = 0.95;

// A layout that fits where the one that was asked for does not (fitting_layouts.hpp).
struct FittingLayout {
  std::string flags;  // what to change, e.g. "--tp 4 --pp 2 --zero 1"
  Layout layout;
  Bytes memory;  // of the fullest stage
  double step_s = 0;
};

struct FittingLayouts {
  std::string policy;  // that they were planned with
  std::vector<FittingLayout> layouts;
};

// A policy that was asked for and has no plan, and why.
struct FailedPolicy {
  std::string policy;
  std::string reason;
};

struct PlanStudy {
  Inputs inputs;
  Profile profile;  // the constants in force
  std::int64_t devices = 0;
  std::int64_t parameters = 0;
  double bound_s = 0;
  std::string bound_explanation;
  // Of steps that finish a micro-batch before the next begins; 0 where that is no other bound.
  double bound_in_turn_s = 0;
  std::vector<PolicyStudy> policies;  // those that have a plan
  std::vector<FailedPolicy> failed;
  std::size_t best = 0;            // shortest step among those that fit, or of all where none does
  std::vector<std::string> notes;  // what people should know that no figure says
  FittingLayouts would_fit;        // where none fits and the caller looked for them
};

// Returns the stage that needs the largest share of its device's memory.
const StageMemory& fullest_stage(const PolicyStudy& study);

CriticalShare critical_share(const Timeline& timeline, SpanIndex& index);

// Divides the model FLOPs and the tokens of a step by its time.
Throughput throughput_of(const Transformer& model, const Layout& layout, const StepGraph& graph, double step_s);

// A policy that has no plan, or whose plan fails verification (which is a fault of Weft and is said so), does not stop
// the others. Only where no policy has a plan, the error of the first one is thrown: Error, or UnsafePlan.
// `on_progress` may be empty; the policies that search are its tasks.
PlanStudy study_plan(const Inputs& inputs, const std::vector<std::string>& policies, const Profile& profile,
                     const OnProgress& on_progress = {});
// Adds the programs that the inputs name, and where those made for a topology are kept.
Profile with_programs(Profile profile, const Inputs& inputs);
// Returns the request that make_plan and decide_overlap take. Policies that search simulate on `jobs` threads.
// `programs` holds what is already known of Weft's own programs (cost/program_cost.hpp).
PlanRequest request_of(const Inputs& inputs, const Profile& profile, std::size_t jobs = 1,
                       std::shared_ptr<ProgramCosts> programs = nullptr);
// Returns what the times of a study depend on, as a plan file has it.
PlanConditions conditions_of(const PlanStudy& study);
// Studies given plans, which must be safe and made for these inputs.
PlanStudy study_given_plans(const Inputs& inputs, const std::vector<std::shared_ptr<const WholePlan>>& plans,
                            const Profile& profile);

}  // namespace weft
