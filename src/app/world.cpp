#include "app/world.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "app/cli.hpp"
#include "base/error.hpp"
#include "comm/liveness.hpp"
#include "comm/local/local_world.hpp"
#include "comm/mpi/mpi_transport.hpp"
#include "comm/tcp/tcp_transport.hpp"

namespace weft {
namespace {

void run_threads(const WorldOptions& options, const WorldBody& body) {
  LocalWorld world({options.ranks, options.cluster, options.slowdown});
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(options.ranks));
  std::vector<std::thread> threads;
  for (std::int64_t rank = 0; rank < options.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Communicator communicator(world.transport(rank), options.communicator);
        body(communicator, options.cluster != nullptr ? "links emulated" : "memory speed");
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

// MPI reports no loss by itself, so the processes also watch each other over sockets.
void run_mpi(const WorldOptions& options, const WorldBody& body) {
  const auto session = std::make_shared<MpiSession>();
  Liveness liveness(session->rank(), session->size(), [&](const std::string& mine) { return session->exchange(mine); },
                    {});
  MpiOptions mpi;
  mpi.lost = [&] { return liveness.lost(); };
  mpi.silence = [&](std::int64_t rank) { return liveness.silence(rank); };
  mpi.give_up = [&](const std::string& why) { liveness.give_up({session->rank(), "it gave up: " + why}); };
  ChosenTransport chosen = choose_transport(session, mpi, options.transport);
  Communicator communicator(std::move(chosen.transport), options.communicator);
  body(communicator, chosen.words);
}

void run_tcp(const Launch& launch, const CommunicatorOptions& options, const WorldBody& body) {
  TcpOptions tcp;
  tcp.rank = launch.rank;
  tcp.size = launch.ranks;
  tcp.root = launch.root;
  tcp.job = launch.job;
  tcp.root_listener = launch.root_listener;
  Communicator communicator(make_tcp_transport(tcp), options);
  body(communicator, "messages over TCP sockets");
}

}  // namespace

Launch launch_from_environment() {
  Variables variables;
  for (const char* name : kLaunchVariables) {
    if (const char* value = std::getenv(name)) variables[name] = value;
  }
  return launch_from(variables);
}

void run_world(const Launch& launch, const WorldOptions& options, std::ostream& err, const WorldBody& body) {
  WorldOptions settings = options;
  if (launch.kind == LaunchKind::local) return run_threads(settings, body);
  // One write each, so that lines of several ranks do not mix.
  const auto say = [&](const std::string& words) {
    err << fmt::format("weft: rank {}: {}\n", launch.rank, words) << std::flush;
  };
  std::atomic<bool> said = false;
  settings.communicator.on_failure = [&](const std::string& words) {
    if (!said.exchange(true)) say(words);
  };
  // Before anything is taken down: the communication thread may be stuck inside the library.
  const auto body_or_exit = [&](Communicator& communicator, const std::string& way) {
    try {
      body(communicator, way);
    } catch (const RunFailed& failure) {
      if (!said.exchange(true)) say(failure.what());
      std::_Exit(kRunFailed);
    }
  };
  if (launch.kind == LaunchKind::mpi) {
    run_mpi(settings, body_or_exit);
  } else {
    run_tcp(launch, settings.communicator, body_or_exit);
  }
}

}  // namespace weft
