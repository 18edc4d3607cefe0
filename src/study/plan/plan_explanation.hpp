// Explains a policy's plan: what hides each kind of communication or why it stays exposed (timeline/explain.hpp), and
// what would remove the three largest exposures (docs/explain.md).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cost/cost_model.hpp"
#include "plan/unfold.hpp"
#include "planner/partition/choice_tree.hpp"
#include "study/plan/plan_study.hpp"
#include "timeline/explain.hpp"

namespace weft {

// Operations that are reported as one: all layers, micro-batches and parts of a role in a phase.
struct OperationKind {
  std::string name;          // "ffn_reduce forward"
  std::string words;         // as the frameworks have it (framework_words.hpp)
  bool is_transfer = false;  // the rest is of transfers
  std::string collective, group;
  TrafficKind traffic = TrafficKind::other;
  std::int32_t first_layer = -1, last_layer = -1;  // -1: it belongs to no layer, or to several at once
};

struct StageExplanation {
  std::string name;  // of the rank class
  std::int64_t ranks = 1;
  std::vector<ExplainedTransfer> transfers;  // largest exposed first
};

// A change that shortens the step, planned and simulated.
struct Remedy {
  std::string change;  // "--sequence-parallel", "nic 2 times as fast (50 GB/s a link)"
  double step_s = 0;
  bool fits = true;
};

struct LargestExposure {
  std::int32_t kind = 0;
  double exposed_s = 0;  // mean over ranks
  ExposureReason reason = ExposureReason::dependency;
  double reason_s = 0;        // the part of exposed_s that has this reason
  double step_without_s = 0;  // of the same plan with this communication at no cost
  std::vector<Remedy> remedies;
};

struct PlanExplanation {
  std::vector<OperationKind> kinds;
  std::vector<StageExplanation> stages;  // by rank class
  // Times are means over all ranks. Calls, bytes and time alone are those of a rank that has it. Largest exposed first.
  std::vector<ExplainedTransfer> mean;
  std::map<std::int32_t, ChoiceNode> choices;  // by kind of transfer: the ways to carry it out, with their cost
  std::vector<LargestExposure> largest;        // at most three; add_remedies adds their remedies
  std::vector<Remedy> against_bubble;          // what add_remedies finds for the time that stages wait
  std::vector<Remedy> against_recomputation;   // and for what backward computes again
};

PlanExplanation explain_plan(const PolicyStudy& study, const Profile& profile);

// For each of the largest exposures, tries the changes that suit its reason, and for a bubble those of the pipeline
// (explain_remedies.cpp).
void add_remedies(PlanExplanation& explanation, const PlanStudy& study, const PolicyStudy& explained,
                  const Profile& profile);

// Returns the kind and the fixed time of each timeline operation, which explain() takes, and fills `kinds`.
ExplainedOperations describe_kinds(const WholePlan& whole, const CostModel& cost, std::vector<OperationKind>& kinds);

}  // namespace weft
