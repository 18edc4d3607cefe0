// What a device reaches where its power is capped below what its maker rates it for (nvidia-smi -pl): the clock of its
// compute units falls, that of its memory does not.
#pragma once

#include <string_view>

#include "cluster/cluster.hpp"
#include "cost/profile.hpp"

namespace weft {

// Of one device, as its data sheet says; 0: not known.
double rated_watts(std::string_view device);

// The clock over that at the rated power, both under the load of matrix products. Of the rated power this much does not
// depend on the clock (memory, leakage, links); the rest falls with its third power, because voltage falls with it.
inline constexpr double kConstantShare = 0.3;  // an estimate
double capped_clock(double cap_watts, double rated_watts);
// Returns the clock of a known device, or of one like it, under a cap, 1 being that of no cap. Throws Error that says
// what is allowed.
double clock_under_cap(std::string_view device, double cap_watts);

// The profile with every arithmetic rate of the cluster's devices at that clock. Throws Error naming --power-cap, the
// device and what is allowed.
Profile with_power_cap(Profile profile, const ClusterSpec& cluster, double cap_watts);

}  // namespace weft
