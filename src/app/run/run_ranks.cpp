#include "app/run/run_ranks.hpp"

#include <cstdlib>

#include "app/run/run_settings.hpp"
#include "app/world/world_flags.hpp"

namespace weft {

RanksAs ranks_as(const Launch& launch) {
  return launch.kind == LaunchKind::local ? RanksAs::threads : RanksAs::processes;
}

bool has_rank_0(const Launch& launch) {
  return launch.kind == LaunchKind::local || launch.rank == 0;
}

void run_on_ranks(const Flags& flags, const RunOptions& options, const Launch& launch, std::ostream& err,
                  const WorldBody& body) {
  const Cluster cluster(options.inputs.cluster);
  WorldOptions world = read_world_options(flags, launch);
  world.ranks = cluster.device_count();
  // On GPUs the links are those of devices; what hosts tell each other is not paced.
  if (options.inputs.cluster.execution.runtime != Runtime::cuda) world.cluster = &cluster;
  // Kernels of ranks of one process wait for each other, which they may only do in hardware queues of their own; CUDA
  // reads how many there are when it starts.
  if (options.inputs.cluster.execution == kPacedGpuRanks) setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  if (ranks_as(launch) == RanksAs::processes) world.agreed = agreed_run_settings(options, world);
  run_world(launch, world, err, body);
}

}  // namespace weft
