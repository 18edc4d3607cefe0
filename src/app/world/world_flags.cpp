#include "app/world/world_flags.hpp"

#include "base/error.hpp"

namespace weft {
namespace {

// 35 missed signs of life. Under mpirun a rank needs 1.5 s more to end, and all should have ended within 10 s.
constexpr double kDefaultSilence = 7;
constexpr std::chrono::seconds kShortestSilence{1};

std::chrono::nanoseconds in_nanos(double seconds) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

}  // namespace

void declare_world_flags(Flags& flags) {
  flags.value("transport", "auto|mpi|tcp",
              "under mpirun, how messages go: through MPI, over sockets of our own, or what is measured to be better");
  flags.value("timeout", "SECONDS", "give up where nothing moves for so long (default: 60)");
  flags.value("silence", "SECONDS",
              "a rank that gives no sign of life for so long while others wait is lost, whatever --timeout says; 0: "
              "never (default: 7)");
  flags.toggle("check", "ranks compare every call before they run it");
}

WorldOptions read_world_options(const Flags& flags, const Launch& launch) {
  WorldOptions world;
  world.transport = static_cast<TransportWish>(flags.one_of("transport", {"auto", "mpi", "tcp"}).value_or(0));
  if (flags.given("transport") && launch.kind != LaunchKind::mpi) fail("--transport: a choice under mpirun only");
  world.communicator.check = flags.is_set("check");
  world.communicator.timeout = in_nanos(flags.number("timeout", 0.1, 1e6).value_or(60));
  world.communicator.silence = in_nanos(flags.number("silence", 0, 1e6).value_or(kDefaultSilence));
  if (world.communicator.silence.count() != 0 && world.communicator.silence < kShortestSilence) {
    fail("--silence {}: ranks speak every 0.2 s; 0 (never) or at least 1", *flags.text("silence"));
  }
  return world;
}

}  // namespace weft
