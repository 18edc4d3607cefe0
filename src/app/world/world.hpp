// The ranks of a run: threads of this process, or this process as one rank of an MPI or TCP job.
#pragma once

#include <functional>
#include <ostream>

#include "comm/communicator.hpp"
#include "comm/launch.hpp"
#include "comm/transport_choice.hpp"
#include "study/run/agreed_settings.hpp"

namespace weft {

struct WorldOptions {
  std::int64_t ranks = 1;            // of threads; processes know how many they are
  const Cluster* cluster = nullptr;  // paces threads
  double slowdown = 1;
  CommunicatorOptions communicator;
  TransportWish transport = TransportWish::automatic;  // of processes under MPI
  AgreedSettings agreed = {};                          // what processes compare before they are ranks of one run
};

// One rank's part of a run: its communicator, and how its messages go, in words.
using WorldBody = std::function<void(Communicator&, const std::string& way)>;

// How this process was launched: the one place that reads the launchers' variables.
Launch launch_from_environment();

// Runs `body` once per rank of this process and returns when all have ended. Throws Error on all ranks, before `body`,
// where processes do not agree on `agreed`. A failure is said on `err` the moment it
// is noticed, then thrown as RunFailed; a process of a larger job ends there and then with exit code 3, since the
// library below may never return.
void run_world(const Launch& launch, const WorldOptions& options, std::ostream& err, const WorldBody& body);

}  // namespace weft
