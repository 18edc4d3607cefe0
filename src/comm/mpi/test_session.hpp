// MPI starts once in a process, so the tests of this folder share one session; mpi_test_main.cpp makes it.
#pragma once

#include <memory>

#include "comm/mpi/mpi_transport.hpp"

namespace weft {

const std::shared_ptr<MpiSession>& test_session();

}  // namespace weft
