// The space that the search decides in: what travels together, into how many parts layers are cut, what runs beside
// compute, and how far ahead. Every point of it becomes an Overlap, and an Overlap becomes a plan.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "planner/overlap.hpp"

namespace weft {

// What of a step's gradients and parameters travels together and in which parts.
struct BucketChoice {
  std::vector<MergeSet> buckets;
  std::vector<std::int32_t> parts;
};

// Which transfers are carried out in legs (graph/substitute.hpp).
struct LegChoice {
  std::vector<TransferRule> rules;
};

// One value of each dimension, as an index into its options.
struct Decisions {
  std::vector<std::size_t> chosen;  // by dimension
  friend auto operator<=>(const Decisions&, const Decisions&) = default;
};

class DecisionSpace {
 public:
  DecisionSpace(const PlanRequest& request, const StepGraph& graph);

  enum Dimension : std::uint8_t {
    kPairs,
    kForwardRows,
    kBackwardRows,
    kForwardExperts,
    kBackwardExperts,
    kWeave,
    kBuckets,
    kLegs,
    kQueues,
    kUrgentFirst,
    kHoldBack,
    kReceives,
    kPrefetch,
    kGradientBuffers,
    kReduceInGaps,
    kFillBubbles,
    kWeaveVisits,
    kPipeline,  // has options only where the layout leaves the schedule to the search
    kGaps,      // likewise where backward may be split and layers communicate
    kDimensions
  };
  std::size_t options(std::size_t dimension) const { return static_cast<std::size_t>(sizes_[dimension]); }
  // Dimensions that a random change picks from: without the last ones where they have one option.
  std::size_t drawn_dimensions() const {
    return options(kGaps) > 1 ? kDimensions : options(kPipeline) > 1 ? kGaps : kPipeline;
  }
  // A good point to begin with: everything overlaps, gradients by the order of their next use.
  Decisions start() const;
  Overlap overlap(const Decisions& decisions) const;
  // The options for the parts of one direction's experts, and of its rows.
  std::vector<LayerCuts> expert_cuts_of(bool forward) const;
  std::vector<std::int32_t> rows_of(bool forward) const;

 private:
  void add_buckets(const PlanRequest& request, const StepGraph& graph);
  void add_legs(const StepGraph& graph);
  void add_pipelines(const Layout& layout);
  void add_expert_cuts(const PlanRequest& request, const StepGraph& graph);
  std::int64_t value(const Decisions& decisions, Dimension dimension) const;

  bool tensor_parallel_, expert_parallel_;
  std::vector<std::vector<std::int64_t>> values_;  // by dimension: what its options stand for
  std::vector<std::size_t> sizes_;
  std::vector<BucketChoice> buckets_;
  std::vector<LegChoice> legs_;
  std::vector<PipelineChoice> pipelines_;
  std::vector<LayerCuts> forward_experts_, backward_experts_;
};

}  // namespace weft
