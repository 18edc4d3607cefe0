#include "app/world/world.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>

#include "app/cli.hpp"
#include "base/error.hpp"
#include "comm/liveness.hpp"
#include "comm/local/local_world.hpp"
#include "comm/mpi/mpi_transport.hpp"
#include "comm/tcp/launcher_news.hpp"
#include "comm/tcp/tcp_transport.hpp"

namespace weft {
namespace {

// While ranks connect they often notice themselves who is lost; the launcher's message counts after this.
constexpr std::chrono::milliseconds kTimeToNoticeItself{1000};
// mpirun kills all ranks as soon as one ends with an error, even those that are about to say why they end.
constexpr std::chrono::milliseconds kTimeForOthersToSpeak{1500};

// A rank that cannot go on says so: the others may be waiting for it.
void run_or_tell(Communicator& communicator, const WorldBody& body, const std::string& way) {
  try {
    body(communicator, way);
  } catch (const std::exception& error) {
    communicator.fail(error.what());
    throw;
  }
}

// An error counts more than the failures that it caused on other ranks.
void rethrow_first(const std::vector<std::exception_ptr>& errors) {
  std::exception_ptr failure;
  for (const std::exception_ptr& error : errors) {
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const RunFailed&) {
      if (!failure) failure = error;
    }
  }
  if (failure) std::rethrow_exception(failure);
}

void run_threads(const WorldOptions& options, const WorldBody& body) {
  LocalWorld world({options.ranks, options.cluster, options.slowdown});
  std::vector<std::exception_ptr> errors(options.ranks);
  std::vector<std::thread> threads;
  for (std::int64_t rank = 0; rank < options.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Communicator communicator(world.transport(rank), options.communicator);
        run_or_tell(communicator, body, options.cluster != nullptr ? "links emulated" : "memory speed");
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  rethrow_first(errors);
}

// MPI reports no loss by itself, so the processes also watch each other over sockets.
void run_mpi(const Launch& launch, const WorldOptions& options, const WorldBody& body) {
  const auto session = std::make_shared<MpiSession>();
  if (session->size() != launch.ranks) {
    fail(
        "this is rank {} of {}, but the MPI library sees {}: Weft was built with another MPI than the one that the "
        "launcher is for (docs/launching.md)",
        launch.rank, launch.ranks, session->size());
  }
  require_agreement(options.agreed, [&](const std::string& mine) { return session->exchange(mine); });
  Liveness liveness(session->rank(), session->size(), [&](const std::string& mine) { return session->exchange(mine); },
                    {});
  MpiOptions mpi;
  mpi.health = &liveness;
  ChosenTransport chosen = choose_transport(session, mpi, options.transport);
  Communicator communicator(std::move(chosen.transport), options.communicator);
  body(communicator, chosen.words);
}

// While ranks connect, a death may not be known to the others yet, but the launcher knows it.
void run_tcp(const Launch& launch, const WorldOptions& options, const WorldBody& body,
             const std::function<void(const std::string&)>& end) {
  TcpOptions tcp;
  tcp.rank = launch.rank;
  tcp.size = launch.ranks;
  tcp.root = launch.root;
  tcp.secret = launch.secret;
  tcp.root_listener = launch.root_listener;
  tcp.on_meeting = [&](const Exchange& exchange) { require_agreement(options.agreed, exchange); };
  const auto end_connecting = [&](const std::string& words) { end("while connecting to the other ranks: " + words); };
  std::unique_ptr<Transport> transport;
  {
    const tcp::LauncherNews news(launch.launcher_news, kTimeToNoticeItself, end_connecting);
    try {
      transport = make_tcp_transport(tcp);
    } catch (const RunFailed& failure) {
      // The rank that we miss may have left because of another, which the launcher knows.
      end_connecting(news.words().value_or(failure.what()));
    }
  }
  Communicator communicator(std::move(transport), options.communicator);
  body(communicator, "messages over TCP sockets");
}

}  // namespace

Launch launch_from_environment() {
  Variables variables;
  for (const std::string_view name : kLaunchVariables) {
    if (const char* value = std::getenv(std::string(name).c_str())) variables[std::string(name)] = value;
  }
  if (!mpi_is_built()) variables.erase("PMIX_RANK");  // then Slurm's tasks are joined by TCP
  return launch_from(variables);
}

void run_world(const Launch& launch, const WorldOptions& options, std::ostream& err, const WorldBody& body) {
  WorldOptions settings = options;
  if (launch.kind == LaunchKind::local) return run_threads(settings, body);
  // One write each, so that lines of several ranks do not mix.
  const auto say = [&](const std::string& words) {
    err << fmt::format("weft: rank {}: {}\n", launch.rank, words) << std::flush;
  };
  std::mutex saying;
  bool said = false;
  const auto say_once = [&](const std::string& words) {
    const std::lock_guard lock(saying);
    if (!std::exchange(said, true)) say(words);
  };
  settings.communicator.on_failure = say_once;
  // Before anything is taken down: the communication thread may be stuck inside the library.
  const auto end_with = [&](ExitCode code, const std::string& words) {
    say_once(words);
    if (launch.kind == LaunchKind::mpi) std::this_thread::sleep_for(kTimeForOthersToSpeak);
    std::_Exit(code);
  };
  const auto end = [&](const std::string& words) { end_with(kRunFailed, words); };
  // The worker may compute for long before it asks.
  settings.communicator.after_failure = end;
  const auto body_or_exit = [&](Communicator& communicator, const std::string& way) {
    try {
      body(communicator, way);
    } catch (const RunFailed& failure) {
      end(failure.what());
    } catch (const Error& error) {
      // Often all ranks find the same error. Each should report it before it sees another leave.
      say_once(error.what());
      if (launch.kind != LaunchKind::mpi) std::this_thread::sleep_for(kTimeForOthersToSpeak);
      end_with(kBadInput, error.what());
    } catch (const std::bad_alloc&) {
      end("out of memory: what was asked for is too large for this machine");
    } catch (const std::exception& error) {
      end(fmt::format("internal error: {}", error.what()));
    }
  };
  if (launch.kind == LaunchKind::mpi) {
    run_mpi(launch, settings, body_or_exit);
  } else {
    run_tcp(launch, settings, body_or_exit, end);
  }
}

}  // namespace weft
