// Proves a pipeline schedule safe before anybody runs it.
#pragma once

#include <optional>

#include "plan/pipeline/pipeline_actions.hpp"
#include "plan/verify/verify_plan.hpp"

namespace weft {

// Returns the first violation, or nothing. The rules are:
//   provenance        every stage is on one rank and has every micro-batch's forward once, and its backward once, whole
//                     or as input_grad and weight_grad
//   hazard            on its own rank a pass comes after what it needs: backward after forward, a send after its pass,
//                     a pass after its receive; nothing computes on parameters that are not gathered (where UNSHARD
//                     is said), and gradients are reduced behind the last backward (where REDUCE_GRAD is said)
//   collective order  where messages are said, each that a pass needs is sent once and received once, and no others
//   deadlock          ranks do not wait for each other in a circle, even where a message starts only when both of its
//                     ends have reached it and the messages of a rank follow each other, as NCCL's batched ones do.
//                     So no communicator has to run beside another one on a device; the message says where only
//                     that would help
// Whether messages are said is seen by whether there is one.
std::optional<Violation> verify_actions(const PipelineActions& actions);
bool has_messages(const PipelineActions& actions);

}  // namespace weft
