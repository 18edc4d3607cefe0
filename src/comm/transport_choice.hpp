// Decides how the messages of an MPI job travel: through the library, or over sockets of our own.
//
// On fast networks the library has faster paths than we do. Over plain TCP our transport is better: it requests
// messages, sleeps in the kernel and reduces data on arrival. There MPI only launches the job and runs its own
// collectives. Which case it is, is measured.
#pragma once

#include <memory>
#include <string>

#include "comm/mpi/mpi_transport.hpp"

namespace weft {

enum class TransportWish { automatic, mpi, tcp };

struct ChosenTransport {
  std::unique_ptr<Transport> transport;
  std::string words;  // "messages through MPI", "messages over TCP sockets: ..."
};

// All ranks call it; all choose alike. `mpi` has what every MPI transport needs; liveness must outlive the transport.
ChosenTransport choose_transport(const std::shared_ptr<MpiSession>& session, const MpiOptions& mpi, TransportWish wish);

}  // namespace weft
