// Stands in for the other sources of this folder where no MPI was found when Weft was built.
#include "base/error.hpp"
#include "comm/mpi/mpi_transport.hpp"

namespace weft {
namespace {

[[noreturn]] void fail_without_mpi() {
  fail("this build has no MPI; install libopenmpi-dev (or another MPI with its mpicxx) and build again");
}

}  // namespace

struct MpiSession::State {};

bool mpi_is_built() {
  return false;
}

MpiSession::MpiSession() {
  fail_without_mpi();
}

MpiSession::~MpiSession() = default;

std::int64_t MpiSession::rank() const {
  fail_without_mpi();
}

std::int64_t MpiSession::size() const {
  fail_without_mpi();
}

std::vector<std::string> MpiSession::exchange(const std::string& /*mine*/) {
  fail_without_mpi();
}

void MpiSession::abandon() {}

std::unique_ptr<Transport> make_mpi_transport(std::shared_ptr<MpiSession> /*session*/, const MpiOptions& /*options*/) {
  fail_without_mpi();
}

std::unique_ptr<Transport> make_mpi_transport(const MpiOptions& /*options*/) {
  fail_without_mpi();
}

}  // namespace weft
