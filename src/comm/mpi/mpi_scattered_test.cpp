// Programs over MPI on buffers in several places.
#include <gtest/gtest.h>

#include <thread>

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

std::vector<std::int64_t> everyone(const Communicator& communicator) {
  std::vector<std::int64_t> members(communicator.size());
  std::iota(members.begin(), members.end(), 0);
  return members;
}

PreparedCall native_call(const Communicator& communicator, Collective kind, std::int64_t elements) {
  PreparedCall call;
  call.spec = {.kind = kind, .ranks = communicator.size(), .pieces = is_divided(kind) ? communicator.size() : 1};
  call.sizes = even_sizes(call.spec, elements);
  call.members = everyone(communicator);
  return call;
}

TEST(MpiNative, TakesBuffersInSeveralPlaces) {
  Communicator communicator(make_mpi_transport(test_session(), {}), {.check = true});
  ASSERT_TRUE(communicator.has_library());
  std::uint32_t seed = 0;
  for (const Collective kind :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all}) {
    for (const std::int64_t elements : {1, 1003, 100'000}) {
      for (const bool blocking : {false, true}) {
        PreparedCall call = native_call(communicator, kind, elements);
        call.blocking = blocking;
        check_scattered(communicator, call, ++seed);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Rank r's input is r + 1 everywhere: every execution adds N (N + 1) / 2 to what the output held.
TEST(MpiNative, AddsToWhatTheOutputHeld) {
  Communicator communicator(make_mpi_transport(test_session(), {}), {});
  PreparedCall call = native_call(communicator, Collective::reduce_scatter, 103);
  call.accumulate = true;
  call.segments = 2;
  Communicator::Prepared& prepared = communicator.prepare(call);
  const std::int64_t n = communicator.size(), own = output_elements(call.spec, call.sizes, communicator.rank());
  std::vector<float> input(103), output(static_cast<std::size_t>(own), 7);
  const auto part = [](std::vector<float>& of, std::int64_t begin, std::int64_t end) {
    return Segment{reinterpret_cast<std::byte*>(of.data() + begin), (end - begin) * 4};
  };
  for (int execution = 1; execution <= 3; ++execution) {
    std::ranges::fill(input, static_cast<float>(communicator.rank() + 1));
    const std::vector<Segment> from{part(input, 0, 50), part(input, 50, 103)},
        to{part(output, 0, own / 2), part(output, own / 2, own)};
    communicator.wait(communicator.start(prepared, from, to));
    EXPECT_EQ(output, std::vector<float>(output.size(), static_cast<float>(7 + execution * n * (n + 1) / 2)));
  }
}

// Each rank starts those of three queues in an order of its own, beside a program's: inside a library that blocks they
// would wait for each other for ever.
TEST(MpiNative, QueuesMayRunInAnyOrder) {
  Communicator communicator(make_mpi_transport(test_session(), {}), {});
  std::vector<Communicator::Prepared*> calls;
  for (std::int64_t queue = 0; queue < 4; ++queue) {
    PreparedCall call = native_call(communicator, Collective::all_reduce, 50'000);
    if (queue == 3) {
      call.program = std::make_shared<const Program>(
          make_program({.kind = Collective::all_reduce, .ranks = communicator.size(), .in_place = true}));
      call.spec = call.program->spec;
      call.sizes = even_sizes(call.spec, 50'000);
    }
    call.queue = queue;
    calls.push_back(&communicator.prepare(call));
  }
  const auto n = static_cast<float>(communicator.size());
  for (int round = 0; round < 5; ++round) {
    std::vector<std::vector<float>> data(4, std::vector<float>(50'000, 1));
    std::vector<std::size_t> order{0, 1, 2, 3};
    std::mt19937 random(static_cast<std::uint32_t>(10 * round + communicator.rank()));
    std::shuffle(order.begin(), order.end(), random);
    std::vector<Communicator::Handle> handles;
    for (const std::size_t i : order) {
      handles.push_back(communicator.start(*calls[i], data[i].data(), data[i].data()));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // it is under way before the next is started
    }
    for (const Communicator::Handle handle : handles) communicator.wait(handle);
    for (const std::vector<float>& sums : data) EXPECT_EQ(sums, std::vector<float>(50'000, n));
  }
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
