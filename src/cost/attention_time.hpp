// How the rate of a fused, causal attention kernel depends on its size: length, size of heads, direction, and how many
// tiles there are to fill the device with.
#pragma once

#include "cluster/device.hpp"
#include "graph/operation.hpp"

namespace weft {

// Returns the rate of this attention over that of forward and backward together at 4,096 tokens with heads of 128 on a
// full device, which is what DeviceProfile::attention_efficiency is of.
double attention_share(const OpKey& key, const Device& device);

}  // namespace weft
