// Collectives of ranks that are threads of one process with partitions of one GPU, paced to the links of a cluster:
// NVLink and the like are emulated. What they move is real; how long that takes is the cluster's.
#pragma once

#include <chrono>
#include <functional>

#include "cluster/cluster.hpp"
#include "comm/paced_device/paced_device_world.hpp"
#include "comm/stream_collectives.hpp"

namespace weft {

struct PacedDeviceOptions {
  std::int64_t rank = 0, ranks = 1;
  const Cluster* cluster = nullptr;  // rank i is its device i. It and the world must outlive the collectives
  PacedDeviceWorld* world = nullptr;
  std::chrono::seconds timeout{60};  // of a kernel that waits for another rank's
};
// All ranks, at the same time, each on the thread that has its accelerator. Throws Error where there is no CUDA.
std::unique_ptr<StreamCollectives> make_paced_device_collectives(const PacedDeviceOptions& options, Exchange exchange);
// The same on whatever devices `make_device` makes.
std::unique_ptr<StreamCollectives> paced_collectives_over(
    const PacedDeviceOptions& options, Exchange exchange,
    const std::function<std::unique_ptr<PacedDevice>()>& make_device);

// Thread blocks that a collective takes on every member unless its call says how many: enough to move the data well
// within the time of the link. No call gets more than an eighth of the rank's SMs, because those of all queues wait at
// the same time, and compute must find room.
int thread_blocks_for(const Cluster& cluster);

}  // namespace weft
