// The ranks of comm_nccl_test find each other once; nccl_test_main.cpp sees to it.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <stdexcept>

#include "comm/launch.hpp"
#include "comm/stream_collectives.hpp"
#include "comm/tcp/rendezvous.hpp"

namespace weft::nccl_ranks {

struct Session {
  Launch launch;
  tcp::Rendezvous rendezvous;

  std::unique_ptr<StreamCollectives> make() {
    NcclOptions options;
    options.rank = launch.rank;
    options.ranks = launch.ranks;
    return make_nccl_collectives(options, [this](const std::string& mine) { return rendezvous.exchange(mine); });
  }
};
Session& session();

inline void require(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

// Prints a line of JSON for each size on rank 0.
void print_timings(Session& session);

}  // namespace weft::nccl_ranks
