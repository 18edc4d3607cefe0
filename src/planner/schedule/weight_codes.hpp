// ZeRO 1 and 2 with encoded weights: once a step what an update leaves is encoded, gathered and decoded.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "plan/plan.hpp"

namespace weft {

// Returns whether an operation encodes what an update of ZeRO 1 or 2 has left, or decodes what was gathered of it.
bool codes_updated_weights(const Plan& plan, const Operation& op);

// Returns for every decoding among `operations` where it stands among the updates, which are in the order of `use`: two
// updates behind its own, so that the queue that carries out both does not wait for a gather while it could encode
// what the link takes next.
std::map<OpId, double> turns_of_decodings(const Plan& plan, const std::vector<OpId>& operations,
                                          const std::vector<std::int32_t>& use);

// Lets forward begin before all weights are decoded: decodings of transfers that compute does not wait for go to the
// queue `extra`.
void decode_beside(Plan& plan);

// Returns the queue `extra`, which is added where there is none.
QueueId extra_queue_of(ClassPlan& plan);

}  // namespace weft
