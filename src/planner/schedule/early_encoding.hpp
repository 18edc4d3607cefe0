// Compressed gradients are encoded while backward goes on.
#pragma once

#include "cost/cost_model.hpp"
#include "plan/plan.hpp"

namespace weft {

// Lets every gradient be encoded when backward has finished it: the last backward and the update become sections that
// take turns. Transfers go in the order in which a link takes them. With `urgent` that is, among those that are ready,
// the one whose parameter the next forward needs first, and what is left of the gradients' way runs on the queue
// `extra`, while compute waits. To be called when update blocks have their order otherwise. Changes nothing where
// gradients are not compressed, in pipelines, where blocks are woven already, and where ranks differ.
void encode_during_backward(Plan& plan, const CostModel& cost, bool urgent);

}  // namespace weft
