#include "app/run/run_ranks.hpp"

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
  world.cluster = &cluster;
  if (ranks_as(launch) == RanksAs::processes) world.agreed = agreed_run_settings(options, world);
  run_world(launch, world, err, body);
}

}  // namespace weft
