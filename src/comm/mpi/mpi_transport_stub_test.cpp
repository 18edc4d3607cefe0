#include <gtest/gtest.h>

#include "base/error.hpp"
#include "comm/mpi/mpi_transport.hpp"

namespace weft {
namespace {

TEST(MpiTransportStub, SaysThatTheBuildHasNoMpi) {
  EXPECT_FALSE(mpi_is_built());
  try {
    make_mpi_transport(MpiOptions{});
    FAIL() << "made a transport";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("this build has no MPI"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace weft
