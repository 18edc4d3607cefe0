// The MPI library as the sources of this folder see it: its header, the check of its return codes, and what a session
// holds. No other folder includes <mpi.h>.
#pragma once

#include <mpi.h>

#include <atomic>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/mpi/mpi_transport.hpp"
#include "comm/native_library.hpp"

namespace weft {

struct MpiSession::State {
  MPI_Comm control = MPI_COMM_NULL;  // the exchange of strings
  int rank = 0;
  int size = 1;
  bool owns_mpi = false;  // MPI was started by this session
  std::atomic<bool> abandoned = false;
};

// Throws RunFailed with the library's own words: "MPI_Isend: MPI_ERR_TRUNCATE: message truncated".
void mpi_check(int code, std::string_view call);

// A communicator of its own that returns errors instead of ending the process. All processes must call.
MPI_Comm duplicate(MPI_Comm communicator);

// The communicators of native collectives, by members and queue. Libraries have few to give (MPICH 2048), plans have
// many collectives.
struct MpiGroup;
using MpiGroups = std::map<std::pair<std::vector<std::int64_t>, std::int64_t>, std::weak_ptr<MpiGroup>>;

std::unique_ptr<NativeCollective> make_mpi_collective(std::shared_ptr<MpiSession> session, MPI_Comm everyone,
                                                      MpiGroups& groups, const NativeRequest& request);

}  // namespace weft
