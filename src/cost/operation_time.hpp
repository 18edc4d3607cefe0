// Seconds of an operation on a device: what was measured there (DeviceProfile::operations) where it was, scaled from
// the nearest measured one where there is such, modelled (kernel_time.hpp) otherwise.
#pragma once

#include <utility>

#include "cluster/device.hpp"
#include "cost/profile.hpp"
#include "graph/operation.hpp"

namespace weft {

// The measured operation that stands for `key`: itself, or of those of the same kind and phase the one of the same
// element type, then with the most dimensions in common (half the rows of a product are nearest to the whole), then of
// the nearest modelled time; ties: the lowest key. What is recomputed takes what it takes in the forward pass where no
// recomputation was measured. Null where none of its kind and phase was measured.
const std::pair<const OpKey, Nanos>* nearest_measured(const OpKey& key, const Device& device,
                                                      const DeviceProfile& reached);

// What was measured contains its launch; the model's time does not.
double operation_seconds(const OpKey& key, const Device& device, const DeviceProfile& reached);

// For bounds: no less than this as a share of one kernel that does many such operations at once.
double least_fused_seconds(const OpKey& key, const Device& device, const DeviceProfile& reached);

}  // namespace weft
