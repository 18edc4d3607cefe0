// Programs over MPI on buffers in several places.
#include <gtest/gtest.h>

#include "comm/mpi/test_session.hpp"
#include "comm/test_large.hpp"
#include "comm/test_scattered.hpp"
#include "comm/test_uneven.hpp"

namespace weft {
namespace {

void check_every_call(const MpiOptions& options, const std::vector<std::int64_t>& sizes) {
  Communicator communicator(make_mpi_transport(test_session(), options), {});
  const std::vector<PreparedCall> calls = every_call(communicator.size(), sizes);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    check_scattered(communicator, calls[i], static_cast<std::uint32_t>(i));
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(MpiScattered, EveryAlgorithmGivesWhatTheCollectiveMeans) {
  check_every_call({}, {1, 601});
}

// Pieces within a segment go as they are, those across a border are copied; here there are many of both.
TEST(MpiScattered, MessagesThatAreCutOften) {
  check_every_call({.short_piece = 61, .streamed = 302, .shortest_long_piece = 100, .longest_piece = 1000}, {2003});
}

TEST(MpiUneven, BringsWhatWasAskedFor) {
  Communicator communicator(make_mpi_transport(test_session(), {}), {});
  check_uneven_exchanges(communicator);
}

TEST(MpiScattered, ALargeMessage) {
  Communicator communicator(make_mpi_transport(test_session(), {}), {});
  for (const bool in_place : {false, true}) {
    PreparedCall call;
    call.program = std::make_shared<const Program>(
        make_program({.kind = Collective::all_reduce, .ranks = communicator.size(), .in_place = in_place}));
    call.spec = call.program->spec;
    call.sizes = even_sizes(call.spec, 4'000'037);
    for (std::int64_t rank = 0; rank < communicator.size(); ++rank) call.members.push_back(rank);
    check_scattered(communicator, call, in_place ? 1 : 2);
  }
}

TEST(MpiPrograms, DISABLED_CarryBuffersLargerThanTwoGibibytes) {
  if (test_session()->size() != 2) GTEST_SKIP() << "for two ranks";
  for (const std::string& enough : test_session()->exchange(large_buffers::memory_suffices() ? "yes" : "no")) {
    if (enough != "yes") GTEST_SKIP() << "less than 10 GiB of memory are free";  // all decide alike
  }
  Communicator communicator(make_mpi_transport(test_session(), {}), {});
  large_buffers::expect_large_programs_work(communicator);
}

}  // namespace
}  // namespace weft
