// Late operations: what an iteration leaves for the next pass over the issue order.
//
// Nothing needs a weight's gradient before the weight's update, and nothing needs the update before the layer's next
// forward. So a pass may carry out weight gradients, reductions, updates and gathers of the iteration before it, in the
// gaps that its own forward leaves. Pass i holds the late operations of iteration i - 1 and all others of iteration i:
// a run of S steps makes S + 1 passes, the first without the late operations and the last with nothing else. In a loop
// compiler's words the late operations are retimed by one iteration.
//
// Unfolding, memory and the verifier count in passes. A read of an iteration's own value by a late operation then
// reaches one pass back; a read of the previous iteration's value from a late writer reaches none.
#pragma once

#include <cstdint>

#include "plan/plan.hpp"

namespace weft {

bool has_late(const Plan& plan);

struct LateSummary {
  std::int64_t operations = 0;    // that are late, of all classes
  std::int64_t weight_grads = 0;  // of them, weight gradients
  std::int64_t all_weight_grads = 0;
  Bytes held;  // of the class with the most: activations and gradients that stay from one pass to the next
};
LateSummary summarize_late(const Plan& plan);

// Returns how many passes before the reader's the writer runs whose value of `distance` iterations ago it reads.
inline std::int32_t passes_between(const Plan& plan, OpId writer, OpId reader, std::int32_t distance) {
  return distance + (plan.issues[reader].late ? 1 : 0) - (plan.issues[writer].late ? 1 : 0);
}
// Returns whether a value of one micro-batch is read in the pass after the one that writes it.
inline bool is_carried(const Plan& plan, OpId writer, OpId reader) {
  return passes_between(plan, writer, reader, 0) > 0;
}

// Whether an operation may be late at all: weight gradients and what a step does once.
bool may_be_late(const Operation& operation);

// Whether it must come before the next gate of its layer where it is late: weight gradients of experts, which work on
// the slots that the last gate has given.
bool is_late_before_gate(const Operation& operation);

// Throws Error, with the operations' names, where late operations do not fit the plan: a step of several micro-batches,
// an operation of forward or of input gradients, writers of one value or members of one transfer of which only some are
// late, a read that would reach into a later pass or two passes back, or an explicit wait.
void check_late(const Plan& plan);

}  // namespace weft
