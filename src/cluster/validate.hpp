// The rules a ClusterSpec must keep, in one place: Cluster, the presets and the JSON reader all ask here.
#pragma once

#include "cluster/cluster.hpp"

namespace weft {

inline constexpr std::int64_t kMaxNodes = 1'000'000;
// Whoever looks at every device (graph/rank_classes.hpp) takes seconds for so many, and about 1 GB.
inline constexpr std::int64_t kMaxDevices = 1'048'576;
inline constexpr std::size_t kMaxLevels = 16;

// Both throw Error naming the field, the value and what is allowed. The limits on figures are
// wide, yet a terabyte over the slowest link still takes less than 2^63 nanoseconds.
void validate(const ClusterSpec& spec);
void validate(const Device& device);

// A level that joins leaves joins everything where the cluster has one leaf only.
Domain effective_domain(const ClusterSpec& spec, const LevelSpec& level);

}  // namespace weft
