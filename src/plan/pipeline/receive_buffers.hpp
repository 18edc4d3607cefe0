// Static receive buffers of a pipeline: memory that is made once and filled again and again.
#pragma once

#include <cstdint>
#include <optional>

#include "plan/pipeline/pipeline_actions.hpp"
#include "plan/verify/verify_plan.hpp"

namespace weft {

// The rule that a schedule breaks with `buffers` for each stage and direction, which its messages fill in turn; nothing
// where it breaks none. What was received is needed until the backward of its micro-batch has ended, since the
// gradients of weights need both the input of a stage and the gradient of its output; without a backward, until the
// forward has. A receive may come only behind that on its rank: then the stream that it is issued in waits.
std::optional<Violation> find_overwritten_message(const PipelineActions& actions, std::int64_t buffers);

// The least number that breaks no rule; 0 where the schedule says no messages. The schedule is safe otherwise.
std::int64_t receive_buffers_needed(const PipelineActions& actions);

}  // namespace weft
