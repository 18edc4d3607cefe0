// A quick estimate of a step for the search for an order (schedule/postpone.hpp); the simulator has the last word.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "cost/cost_model.hpp"
#include "graph/op_lists.hpp"
#include "plan/plan.hpp"

namespace weft {

// Estimates the step of one class without pipeline on two resources: its compute in a given order, and one link that
// takes what is ready, the most urgent first. An update runs when forward first needs it.
class ComputeAndLink {
 public:
  ComputeAndLink(const Plan& plan, const CostModel& cost, std::size_t rank_class);

  // Returns the nanoseconds of a step with backward in this order.
  double period(const std::vector<OpId>& backward);
  std::size_t jobs() const { return jobs_.size(); }
  // How often a transfer waits for another: with every part of a parameter for all parts of its gradient, as many as
  // the product of the two.
  std::int64_t waits() const { return waits_; }

 private:
  // Visits the transfers whose results an operation reads, itself or by way of updates and of replicas. What is not
  // visited for the first time is left out.
  using FirstVisit = std::function<bool(OpId)>;
  std::vector<std::int32_t> jobs_before(OpId id, const FirstVisit& first_visit) const;
  // Returns the operations of backward that make what a reduction reads, by way of replicas too.
  std::vector<OpId> sources_of(OpId reduction, const FirstVisit& first_visit) const;
  // Returns the time of the updates that an operation waits for and none before it did.
  double updates_before(OpId id, std::vector<bool>& updated) const;
  void add_forward(const std::vector<OpId>& forward);
  // Returns how long backward takes, and finds when each of the first transfers may begin.
  double walk_backward(const std::vector<OpId>& backward);
  // Returns how long forward takes.
  double walk_forward(double& link);
  // Lets the link go on until all of them have arrived, and returns when the last has.
  double wait_for(const std::vector<std::int32_t>& needs, double& link);
  void next_job(double& link);

  // Operations of forward one after the other, of which the first waits for transfers.
  struct ForwardStretch {
    std::vector<std::int32_t> needs;  // jobs
    double length = 0;
  };
  // What waits for no other transfer, and the operations of backward that it waits for.
  struct FirstJob {
    std::int32_t job = 0;
    std::vector<OpId> sources;
  };

  const Plan& plan_;
  const ClassPlan& c_;
  OpLists writers_;
  std::vector<double> time_;  // by operation
  std::vector<OpId> jobs_;    // of the link
  std::vector<std::int32_t> job_at_;
  std::vector<std::int32_t> use_;                        // by job
  std::vector<std::vector<std::int32_t>> needs_of_job_;  // by job: jobs
  std::vector<std::vector<std::int32_t>> readers_;       // by job: those that need it
  std::vector<FirstJob> first_jobs_;
  std::vector<ForwardStretch> forward_;
  std::int64_t waits_ = 0;  // of all jobs
  double between_ = 0;      // the other micro-batches

  // Moments count from the end of the backward that made the gradients.
  using Arrival = std::pair<double, std::int32_t>;                // when, job
  std::vector<double> ended_;                                     // by operation of backward
  std::vector<Arrival> first_arrivals_;                           // of first_jobs_, ascending
  std::vector<Arrival> available_;                                // a heap
  std::vector<std::pair<std::int32_t, std::int32_t>> now_ready_;  // a heap: use, job
  std::vector<std::size_t> missing_;                              // by job: of what it needs
  std::vector<double> end_;                                       // by job; kNotSent
};

}  // namespace weft
