// Which way the messages of an MPI job go: through the library, or over sockets of our own.
//
// On fast networks the library knows ways that we do not. Over plain TCP our transport is better (it asks for messages,
// sleeps in the kernel and reduces what arrives on the way), so there MPI serves as launcher and for its own
// collectives only. Which network it is, is measured.
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
