// --device-map: which rank is on which device.
#pragma once

#include "app/flags.hpp"
#include "cluster/device_map.hpp"

namespace weft {

// Whether the map is to be searched for.
bool chooses_device_map(const Flags& flags);
// What the flag lists, or its file; empty where it is not given or to be searched for.
DeviceMap read_device_map(const Flags& flags);

}  // namespace weft
