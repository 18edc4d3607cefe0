// Limits on a plan in a file (its cluster: cluster/validate.hpp). A file of a few kilobytes can name a model of a
// hundred thousand layers. These limits are far above any real plan and keep the cost of such a file within minutes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cluster/cluster.hpp"
#include "graph/layout.hpp"
#include "model/transformer.hpp"

namespace weft {

inline constexpr std::size_t kMaxPlanFileBytes = std::size_t{256} << 20;
inline constexpr std::int64_t kMaxPlanLayers = 10'000;
// Operations of all classes, each counted once per micro-batch where it repeats.
inline constexpr std::int64_t kMaxPlanInstances = 20'000'000;
inline constexpr std::int64_t kMaxPlanQueues = 256;   // of a class
inline constexpr std::int64_t kMaxPlanFrames = 4096;  // of a class
// Limit on sizes, offsets and their sums, two bits below overflow, so that adding two of them needs no check.
inline constexpr std::int64_t kMaxPlanBytes = std::int64_t{1} << 61;

// Also checks that model, cluster and layout fit together. Throws Error.
void check_plan_limits(const Transformer& model, const ClusterSpec& cluster, const Layout& layout);

}  // namespace weft
