// How this process was launched, told by the environment variables that launchers set. A pure function of them: the
// environment itself is read in app.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/enum_name.hpp"

namespace weft {

enum class LaunchKind : std::uint8_t {
  local,  // by hand: ranks, if any, are threads of this process
  mpi,    // by mpirun, or by srun with an MPI plugin: ask MPI
  tcp     // as one of several processes that find each other through rank 0 (comm/tcp)
};

struct Launch {
  LaunchKind kind = LaunchKind::local;
  std::int64_t rank = 0;
  std::int64_t ranks = 1;
  std::int64_t local_rank = 0;  // among the ranks of this node, where the launcher says so
  std::int64_t gpu = 0;         // its GPU, counted among those that the process sees
  std::string root;             // tcp: the address of rank 0
  std::string secret;           // tcp: the job's, by which its ranks know each other (docs/security.md)
  int root_listener = -1;       // tcp, rank 0: a listening socket that it inherited
  int launcher_news = -1;       // tcp: where our own launcher tells of ranks that died (comm/tcp/launcher_news.hpp)
  friend bool operator==(const Launch&, const Launch&) = default;
};

using Variables = std::map<std::string, std::string>;

// In this order: WEFT_RANK, WEFT_RANKS, WEFT_ROOT_ADDRESS and WEFT_JOB_SECRET (our own launcher, or by hand); Open
// MPI's OMPI_COMM_WORLD_RANK and _SIZE; MPICH's PMI_RANK and PMI_SIZE; Slurm's SLURM_PROCID and SLURM_NTASKS of a job
// step, through MPI where PMIX_RANK is there too, else with rank 0 on the first node of the step, and then with
// WEFT_JOB_SECRET too; RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, where all four are there, as torchrun sets them,
// with WEFT_JOB_SECRET too. A rank's GPU is that of its local rank, or the only one that CUDA_VISIBLE_DEVICES shows it.
// Throws Error naming the variable that is missing or makes no sense.
Launch launch_from(const Variables& variables);

// The first host of Slurm's notation: "gpu[03-05,09],login1" is gpu03.
std::string first_host(const std::string& node_list);

// Which variables launch_from looks at.
inline constexpr auto kLaunchVariables = split_names<30>(
    "WEFT_RANK WEFT_RANKS WEFT_ROOT_ADDRESS WEFT_ROOT_LISTENER WEFT_LAUNCHER_NEWS WEFT_JOB_SECRET WEFT_LOCAL_RANK "
    "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK PMI_RANK PMI_SIZE PMIX_RANK SLURM_PROCID "
    "SLURM_NTASKS SLURM_STEP_NUM_TASKS SLURM_LOCALID SLURM_STEP_NODELIST SLURM_JOB_NODELIST SLURM_NODELIST "
    "SLURM_JOB_ID SLURM_STEP_ID RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID "
    "MPI_LOCALRANKID CUDA_VISIBLE_DEVICES");

}  // namespace weft
