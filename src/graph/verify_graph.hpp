// The rules that every step graph keeps, whoever built it. Policies rewrite graphs; this is what they may rely on and
// must preserve.
#pragma once

#include "graph/step_graph.hpp"

namespace weft {

// Throws Error naming the operation at the first violation of:
//   ids          classes and values in range, distances 0 or 1, values of the operation's own class
//   identity     (class, chunk, layer, phase, role, subject, part) is unique
//   values       what is read is written; by one operation only, unless it is accumulated
//   micro-batch  once-a-step operations touch once-a-step values only; a per-micro-batch operation writes such a value
//                only to accumulate; a distance of 1 reaches once-a-step values only
//   shapes       the key's dimensions agree with the elements read and written
//   transfers    bytes in and out agree with the collective, and members of several classes agree with each other
//   order        no cycle of distance 0 (members of one transfer are one node), operations stored writers first
void verify_graph(const StepGraph& graph);

}  // namespace weft
