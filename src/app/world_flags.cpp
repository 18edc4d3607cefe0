#include "app/world_flags.hpp"

#include "base/error.hpp"

namespace weft {

void declare_world_flags(Flags& flags) {
  flags.value("transport", "auto|mpi|tcp",
              "under mpirun, how messages go: through MPI, over sockets of our own, or what is measured to be better");
  flags.value("timeout", "SECONDS", "give up where nothing moves for so long (default: 60)");
  flags.toggle("check", "ranks compare every call before they run it");
}

WorldOptions read_world_options(const Flags& flags, const Launch& launch) {
  WorldOptions world;
  world.transport = static_cast<TransportWish>(flags.one_of("transport", {"auto", "mpi", "tcp"}).value_or(0));
  if (flags.given("transport") && launch.kind != LaunchKind::mpi) fail("--transport: a choice under mpirun only");
  world.communicator.check = flags.on("check");
  world.communicator.timeout =
      std::chrono::nanoseconds(static_cast<std::int64_t>(flags.number("timeout", 0.1, 1e6).value_or(60) * 1e9));
  return world;
}

}  // namespace weft
