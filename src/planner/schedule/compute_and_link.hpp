// A quick estimate of a step for the search for an order (schedule/postpone.hpp); the simulator has the last word.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
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
  // Returns the time of the updates that an operation waits for and none before it did.
  double updates_before(OpId id, std::vector<bool>& updated) const;
  // Returns when backward has finished what a reduction reads, by way of replicas too.
  double ready(OpId id) const;
  void begin_step();
  // Lets the link go on until all of them have arrived.
  double wait_for(const std::vector<std::int32_t>& needs, double& link);
  void next_job(double& link);

  const Plan& plan_;
  const ClassPlan& c_;
  const std::vector<OpId>& forward_;
  OpLists writers_;
  std::vector<double> time_;   // by operation
  std::vector<double> ended_;  // by operation of backward, in this step
  std::vector<OpId> jobs_;     // of the link
  std::vector<std::int32_t> job_at_;
  std::vector<std::int32_t> use_;                              // by job
  std::vector<std::vector<std::int32_t>> needs_of_job_;        // by job: jobs
  std::vector<std::vector<std::int32_t>> readers_;             // by job: those that need it
  std::vector<std::vector<std::int32_t>> needs_of_forward_;    // by position in forward: jobs, each once
  std::vector<double> updates_of_forward_;                     // by position in forward: nanoseconds
  std::vector<std::size_t> missing_;                           // by job: of what it needs
  std::vector<double> end_;                                    // by job; -1: has not been sent
  std::set<std::pair<double, std::int32_t>> available_;        // when, job
  std::set<std::pair<std::int32_t, std::int32_t>> now_ready_;  // use, job
  std::int64_t waits_ = 0;                                     // of all jobs
  double backward_end_ = 0;
  double between_ = 0;  // the other micro-batches
};

}  // namespace weft
