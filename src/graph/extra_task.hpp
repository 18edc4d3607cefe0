// Tasks that a user adds to a step, such as the evaluation of a metric, and work of the step itself that may wait. Both
// fill the time in which a device would wait for others (planner/schedule/extra_work.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.hpp"

namespace weft {

// Every rank of one pipeline stage carries a task out. Moments are operations of the stage by the words that reports
// have for them: "layer 3 ffn_in forward".
struct ExtraTask {
  std::string name;
  Nanos duration = {};       // of one execution; not used where it computes a norm
  std::string norm_of = {};  // "layer 3 ffn_in": it computes the norm of these weights; empty: it takes `duration`
  std::int32_t stage = 0;
  bool per_micro_batch = false;     // else once a step
  std::string release = {};         // it starts after this has ended; empty: nothing releases it
  std::string deadline = {};        // it ends before this starts; empty: before its own next execution
  std::int32_t deadline_steps = 0;  // 0: the deadline is of the same step. 1: of the next.
  friend bool operator==(const ExtraTask&, const ExtraTask&) = default;
};

// What of a step's own work may wait for idle time: gradients of weights until they are reduced, updates until the next
// forward, encodings of gradients until they are sent.
enum class WorkThatWaits : std::uint8_t { weight_grads, updates, encodings };
std::string_view name_of(WorkThatWaits work);

}  // namespace weft
