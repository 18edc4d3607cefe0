// The duration of an operation on a device: as measured there (DeviceProfile::operations), else scaled from the nearest
// measured operation, else modelled (kernel_time.hpp).
#pragma once

#include <utility>

#include "cluster/device.hpp"
#include "cost/profile.hpp"
#include "graph/operation.hpp"

namespace weft {

// Returns the measured operation that stands for `key`: itself, or among those of the same kind and phase the one with
// the same element type, then with the most dimensions in common (half the rows of a product are nearest to the whole),
// then with the nearest modelled time, then with the lowest key. A recomputation takes the time of the forward pass
// where none was measured. Null where none of its kind and phase was measured.
const std::pair<const OpKey, Nanos>* nearest_measured(const OpKey& key, const Device& device,
                                                      const DeviceProfile& reached);

// What was measured contains its launch; the model's time does not.
double operation_seconds(const OpKey& key, const Device& device, const DeviceProfile& reached);

// For bounds: the least time of the operation as a share of one kernel that does many such operations at once.
double least_fused_seconds(const OpKey& key, const Device& device, const DeviceProfile& reached);

}  // namespace weft
