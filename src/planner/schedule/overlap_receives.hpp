// Pipeline messages under compute: a receive no longer blocks, so the message may arrive while the rank still works on
// what it got before (Megatron's --overlap-p2p-communication, for the interleaved schedule).
#pragma once

#include "plan/plan.hpp"

namespace weft {

// To be called before place_values, which gives what is received one more place and lets the receive wait for it.
void overlap_receives(Plan& plan);

}  // namespace weft
