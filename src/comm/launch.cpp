#include "comm/launch.hpp"

#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "base/text.hpp"
#include "comm/tcp/socket.hpp"

namespace weft {

namespace {

// Above the ports that services have, below those the system hands out (32768 ...), so that rank 0's is likely free.
constexpr std::int64_t kFirstPort = 15000;
constexpr std::int64_t kPorts = 17000;

std::optional<std::string> find(const Variables& variables, const std::string& name) {
  const auto found = variables.find(name);
  if (found == variables.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

std::string need(const Variables& variables, const std::string& name, const std::string& beside) {
  const std::optional<std::string> value = find(variables, name);
  if (!value) fail("environment: {} is set but {} is not", beside, name);
  return *value;
}

std::int64_t need_integer(const Variables& variables, const std::string& name, const std::string& beside) {
  return parse_integer(need(variables, name, beside), "environment variable " + name);
}

// The secret is needed because everything else that ranks of a job share, such as job numbers and addresses, can be
// guessed.
std::string need_secret(const Variables& variables, const std::string& beside) {
  constexpr std::size_t kMinLength = 16;
  const std::optional<std::string> secret = find(variables, "WEFT_JOB_SECRET");
  if (secret && secret->size() >= kMinLength) return *secret;
  fail(
      "environment: {} is set but WEFT_JOB_SECRET {}; expected {} characters or more that nobody can guess, the same "
      "for "
      "all ranks: export WEFT_JOB_SECRET=$(openssl rand -hex 32)",
      beside, secret ? fmt::format("has {} characters", secret->size()) : "is not", kMinLength);
}

struct Names {
  std::string rank, ranks, local_rank;
};

// Rank and number of ranks, which must fit each other.
Launch place_of(const Variables& variables, const Names& names, LaunchKind kind) {
  Launch launch;
  launch.kind = kind;
  launch.rank = need_integer(variables, names.rank, names.ranks);
  launch.ranks = need_integer(variables, names.ranks, names.rank);
  if (launch.ranks < 1) fail("environment: {}={}; expected 1 or more", names.ranks, launch.ranks);
  if (launch.rank < 0 || launch.rank >= launch.ranks) {
    fail("environment: {}={} is not in 0..{} ({}={})", names.rank, launch.rank, launch.ranks - 1, names.ranks,
         launch.ranks);
  }
  if (find(variables, names.local_rank)) launch.local_rank = need_integer(variables, names.local_rank, names.rank);
  return launch;
}

Launch our_own(const Variables& variables) {
  Launch launch = place_of(variables, {"WEFT_RANK", "WEFT_RANKS", "WEFT_LOCAL_RANK"}, LaunchKind::tcp);
  launch.root = need(variables, "WEFT_ROOT_ADDRESS", "WEFT_RANK");
  tcp::parse_address(launch.root, "environment variable WEFT_ROOT_ADDRESS");
  launch.secret = need_secret(variables, "WEFT_RANK");
  if (find(variables, "WEFT_ROOT_LISTENER") && launch.rank == 0) {
    launch.root_listener = static_cast<int>(need_integer(variables, "WEFT_ROOT_LISTENER", "WEFT_RANK"));
  }
  if (find(variables, "WEFT_LAUNCHER_NEWS")) {
    launch.launcher_news = static_cast<int>(need_integer(variables, "WEFT_LAUNCHER_NEWS", "WEFT_RANK"));
  }
  return launch;
}

Launch slurm(const Variables& variables) {
  // SLURM_NTASKS is the job's where a step has fewer tasks. PMIX_RANK: srun --mpi=pmix has prepared the MPI library.
  const bool of_step = find(variables, "SLURM_STEP_NUM_TASKS").has_value();
  const LaunchKind kind = find(variables, "PMIX_RANK") ? LaunchKind::mpi : LaunchKind::tcp;
  Launch launch =
      place_of(variables, {"SLURM_PROCID", of_step ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", "SLURM_LOCALID"}, kind);
  if (launch.ranks == 1) return {};  // a single task, such as a batch script: by hand
  if (kind == LaunchKind::mpi) return launch;
  std::string nodes;
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}) {
    if (nodes.empty()) nodes = find(variables, name).value_or("");
  }
  if (nodes.empty()) nodes = need(variables, "SLURM_STEP_NODELIST", "SLURM_PROCID");
  const std::int64_t job = need_integer(variables, "SLURM_JOB_ID", "SLURM_PROCID");
  const std::string step = find(variables, "SLURM_STEP_ID").value_or("0");
  // Steps of a job may run side by side, so the step moves the port too.
  std::int64_t number = job;
  if (step.find_first_not_of("0123456789") == std::string::npos) number += 7 * parse_integer(step, "SLURM_STEP_ID");
  if (number < 0) fail("environment: SLURM_JOB_ID={}; expected a number of 0 or more", job);
  launch.root = fmt::format("{}:{}", first_host(nodes), kFirstPort + number % kPorts);
  launch.secret = need_secret(variables, "SLURM_PROCID");
  return launch;
}

// As torchrun tells its workers, or as they are told by hand.
Launch torchrun(const Variables& variables) {
  constexpr std::int64_t kMaxPort = 65535;
  Launch launch = place_of(variables, {"RANK", "WORLD_SIZE", "LOCAL_RANK"}, LaunchKind::tcp);
  if (launch.ranks == 1) return {};
  std::int64_t port = need_integer(variables, "MASTER_PORT", "RANK");
  if (port < 1 || port >= kMaxPort) {
    fail("environment: MASTER_PORT={} is not in 1..{}", port, kMaxPort - 1);
  }
  if (find(variables, "TORCHELASTIC_RUN_ID")) ++port;  // torchrun itself listens at the other
  launch.root = fmt::format("{}:{}", need(variables, "MASTER_ADDR", "RANK"), port);
  tcp::parse_address(launch.root, "environment variables MASTER_ADDR and MASTER_PORT");
  launch.secret = need_secret(variables, "RANK");
  return launch;
}

Launch place_from(const Variables& variables) {
  const auto any_of = [&](std::initializer_list<const char*> names) {
    return std::ranges::any_of(names, [&](const char* name) { return find(variables, name).has_value(); });
  };
  const auto all_of = [&](std::initializer_list<const char*> names) {
    return std::ranges::all_of(names, [&](const char* name) { return find(variables, name).has_value(); });
  };
  if (any_of({"WEFT_RANK", "WEFT_RANKS"})) return our_own(variables);
  if (any_of({"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"})) {
    return place_of(variables, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
                    LaunchKind::mpi);
  }
  if (any_of({"PMI_RANK", "PMI_SIZE"})) {
    return place_of(variables, {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"}, LaunchKind::mpi);
  }
  // Slurm sets the number of tasks in an allocation too; only a job step has a rank.
  if (any_of({"SLURM_PROCID"})) return slurm(variables);
  // Names so common are taken for a launcher's only where all of them are there.
  if (all_of({"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})) return torchrun(variables);
  return {};
}

}  // namespace

std::string first_host(const std::string& node_list) {
  const std::size_t end = node_list.find_first_of(",[");
  const std::string name = node_list.substr(0, end);
  if (end == std::string::npos || node_list[end] == ',') {
    if (name.empty()) fail("environment: node list '{}' names no host", node_list);
    return name;
  }
  const std::size_t close = node_list.find(']', end);
  const std::size_t number_end = node_list.find_first_of("-,]", end + 1);
  if (close == std::string::npos || number_end == end + 1) {
    fail("environment: node list '{}' is not like node[03-05,09]", node_list);
  }
  // More may follow the bracket: "rack[1-2]n[01-40]" is rack1n01; a comma ends the host.
  const std::string rest = node_list.substr(close + 1);
  const std::string first = name + node_list.substr(end + 1, number_end - end - 1);
  return rest.empty() || rest[0] == ',' ? first : first + first_host(rest);
}

// Launchers such as Slurm (--gpus-per-task) may show every rank a GPU of its own, and no other.
Launch launch_from(const Variables& variables) {
  Launch launch = place_from(variables);
  const std::string visible = find(variables, "CUDA_VISIBLE_DEVICES").value_or(",");
  launch.gpu = visible.find(',') == std::string::npos ? 0 : launch.local_rank;
  return launch;
}

}  // namespace weft
