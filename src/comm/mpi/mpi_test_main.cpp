// Started by a launcher, the same program on every rank (tests/mpi_test.sh). All ranks run the same tests in order.
#include <gtest/gtest.h>

#include "comm/mpi/test_session.hpp"

namespace weft {
namespace {

std::shared_ptr<MpiSession> the_session;

}  // namespace

const std::shared_ptr<MpiSession>& test_session() {
  return the_session;
}

}  // namespace weft

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  weft::the_session = std::make_shared<weft::MpiSession>();
  const int result = RUN_ALL_TESTS();
  if (result != 0) weft::the_session->abandon();  // other ranks may still wait for this one
  weft::the_session.reset();
  return result;
}
