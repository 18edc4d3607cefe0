// Seconds of one operation's kernels on a device, from its key.
#pragma once

#include <cstdint>

#include "cluster/device.hpp"
#include "cost/profile.hpp"
#include "graph/operation.hpp"

namespace weft {

// Includes ramp-up and drain, but not the host's time.
double kernel_seconds(const OpKey& key, const Device& device, const DeviceProfile& reached);
// How many kernels the operation consists of: each is issued by the host.
std::int64_t kernel_count(const OpKey& key);

// The time of `count` products side by side. They are cut into tiles that the compute units process in waves; a last
// wave that is not full takes as long as a full one.
double product_seconds(std::int64_t rows, std::int64_t columns, std::int64_t inner, std::int64_t count,
                       ElementType type, const Device& device, const DeviceProfile& reached,
                       ProductFormat format = ProductFormat::stored);

}  // namespace weft
