// The rules for a ClusterSpec, in one place for Cluster, the presets and the JSON reader.
#pragma once

#include "cluster/cluster.hpp"

namespace weft {

inline constexpr std::int64_t kMaxNodes = 1'000'000;
// Functions that visit every device (graph/rank_classes.hpp) take seconds and about 1 GB for so many.
inline constexpr std::int64_t kMaxDevices = 1'048'576;
inline constexpr std::size_t kMaxLevels = 16;

// Both throw Error naming the field, the value and what is allowed. The limits on figures are
// wide, yet a terabyte over the slowest link still takes less than 2^63 nanoseconds.
void validate(const ClusterSpec& spec);
void validate(const Device& device);

// A level that joins leaves joins everything where the cluster has one leaf only.
Domain effective_domain(const ClusterSpec& spec, const LevelSpec& level);

}  // namespace weft
