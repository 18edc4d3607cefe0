// Collectives over TCP: the communicator, its programs and the sockets together.
#include <gtest/gtest.h>

#include <barrier>

#include "base/error.hpp"
#include "collective/algorithms.hpp"
#include "comm/communicator.hpp"
#include "comm/naive_collective.hpp"
#include "comm/tcp/process_group.hpp"
#include "comm/tcp/tcp_transport.hpp"
#include "comm/tcp/test_reports.hpp"
#include "comm/tcp/test_threads.hpp"
#include "comm/test_scattered.hpp"

namespace weft {
namespace {

PreparedCall call_of(const ProgramRequest& request, std::int64_t elements) {
  auto program = std::make_shared<const Program>(make_program(request));
  PreparedCall call;
  call.program = program;
  call.spec = program->spec;
  call.sizes = even_sizes(program->spec, elements);
  for (std::int64_t rank = 0; rank < std::ssize(program->ranks); ++rank) call.members.push_back(rank);
  call.label = "test";
  return call;
}

void check_call(Communicator& communicator, const PreparedCall& call) {
  Communicator::Prepared& prepared = communicator.prepare(call);
  const std::vector<std::byte> expected =
      expected_bytes(call.spec, call.sizes, call.type, call.op, communicator.rank());
  const std::vector<std::byte> input = input_bytes(call.spec, call.sizes, call.type, communicator.rank());
  for (int round = 0; round < 3; ++round) {
    std::vector<std::byte> output(expected.size(), std::byte{0xee});
    communicator.wait(communicator.start(prepared, input.data(), output.data()));
    ASSERT_EQ(output, expected) << name_of(call.spec.kind) << " " << call.program->name << " rank "
                                << communicator.rank() << " of " << call.spec.ranks;
  }
}

TEST(TcpCollectives, EveryAlgorithmGivesWhatTheCollectiveMeans) {
  for (const std::int64_t ranks : {2, 3}) {
    std::vector<PreparedCall> calls;
    for (int kind = 0; kind <= static_cast<int>(Collective::barrier); ++kind) {
      for (const Algorithm algorithm : algorithms_for(static_cast<Collective>(kind))) {
        if (static_cast<Collective>(kind) == Collective::send_recv && ranks != 2) continue;
        ProgramRequest request{.algorithm = algorithm, .kind = static_cast<Collective>(kind), .ranks = ranks};
        if (algorithm == Algorithm::hierarchical) request.inner = ranks;
        const std::int64_t helpers_and_members = std::ssize(make_program(request).ranks);
        if (helpers_and_members != ranks) continue;
        for (const std::int64_t elements : {3, 20'003}) calls.push_back(call_of(request, elements));
      }
    }
    ASSERT_FALSE(calls.empty());
    tcp::TestRoot root;
    tcp::expect_no_errors(tcp::run_threads(ranks, [&](std::int64_t rank) {
      TcpOptions options{.rank = rank, .size = ranks, .root = root.address, .secret = "test"};
      options.root_listener = root.take_listener(rank);
      Communicator communicator(make_tcp_transport(options), {});
      for (const PreparedCall& call : calls) check_call(communicator, call);
    }));
  }
}

// Small messages come early and wait; large ones are read in portions that end anywhere.
TEST(TcpCollectives, ScatteredBuffersGiveTheSame) {
  for (const std::int64_t ranks : {2, 3}) {
    const std::vector<PreparedCall> calls = every_call(ranks, {31, 50'021});
    tcp::TestRoot root;
    tcp::expect_no_errors(tcp::run_threads(ranks, [&](std::int64_t rank) {
      TcpOptions options{.rank = rank, .size = ranks, .root = root.address, .secret = "test"};
      options.root_listener = root.take_listener(rank);
      Communicator communicator(make_tcp_transport(options), {});
      for (std::size_t i = 0; i < calls.size(); ++i) {
        check_scattered(communicator, calls[i], static_cast<std::uint32_t>(i));
        if (testing::Test::HasFatalFailure()) return;
      }
    }));
  }
}

// More segments than one system call takes (IOV_MAX is 1024), each of one or two elements.
TEST(TcpCollectives, ThousandsOfSegmentsInOneMessage) {
  constexpr std::int64_t kElements = 9'000, kSegments = 5'000;
  tcp::TestRoot root;
  tcp::expect_no_errors(tcp::run_threads(2, [&](std::int64_t rank) {
    TcpOptions options{.rank = rank, .size = 2, .root = root.address, .secret = "test"};
    options.root_listener = root.take_listener(rank);
    Communicator communicator(make_tcp_transport(options), {});
    PreparedCall call = call_of({.kind = Collective::all_reduce, .ranks = 2}, kElements);
    call.segments = kSegments;
    Communicator::Prepared& prepared = communicator.prepare(call);
    std::mt19937 random(static_cast<std::uint32_t>(rank));
    ScatteredBuffer input(kElements, 4, kSegments, random), output(kElements, 4, kSegments, random);
    input.store(input_bytes(call.spec, call.sizes, call.type, rank));
    communicator.wait(communicator.start(prepared, input.segments(), output.segments()));
    EXPECT_EQ(output.load(), expected_bytes(call.spec, call.sizes, call.type, call.op, rank));
  }));
}

TEST(TcpCollectives, ARankThatCannotGoOnTellsTheOthers) {
  constexpr std::int64_t kRanks = 3;
  std::vector<std::string> words(kRanks);
  tcp::TestRoot root;
  std::barrier over(kRanks);  // one may be ready while others still wait for each other
  tcp::expect_no_errors(tcp::run_threads(kRanks, [&](std::int64_t rank) {
    TcpOptions options{.rank = rank, .size = kRanks, .root = root.address, .secret = "test"};
    options.root_listener = root.take_listener(rank);
    Communicator communicator(make_tcp_transport(options), {.timeout = std::chrono::hours(1)});
    Communicator::Prepared& prepared = communicator.prepare(call_of({.ranks = kRanks, .in_place = true}, 1000));
    std::vector<float> data(1000);
    communicator.wait(communicator.start(prepared, nullptr, data.data()));
    over.arrive_and_wait();
    if (rank == 2) communicator.fail("the loss of step 7 is not a number");
    try {
      communicator.wait(communicator.start(prepared, nullptr, data.data()));
    } catch (const RunFailed& failure) {
      words[rank] = failure.what();
    }
  }));
  EXPECT_EQ(words[2], "the loss of step 7 is not a number");
  for (const std::size_t rank : {0U, 1U}) {
    EXPECT_NE(words[rank].find("rank 2 was lost (it gave up: the loss of step 7 is not a number)"), std::string::npos)
        << words[rank];
  }
}

// All-reduce without end; a rank is killed in the midst of it.
TEST(TcpCollectives, SurvivorsNameTheKilledRankAndTheOperation) {
  constexpr std::int64_t kVictim = 1;
  tcp::Reports reports;
  ProcessGroup group = ProcessGroup::fork(3, [&](const Launch& launch) -> int {
    try {
      TcpOptions options{.rank = launch.rank, .size = launch.ranks, .root = launch.root, .secret = launch.secret};
      options.root_listener = launch.root_listener;
      Communicator communicator(make_tcp_transport(options), {});
      PreparedCall call = call_of({.kind = Collective::all_reduce, .ranks = launch.ranks}, 300'000);
      call.label = "gradients";
      Communicator::Prepared& prepared = communicator.prepare(call);
      std::vector<float> input(300'000), output(300'000);
      reports.say(launch.rank, "ready");
      while (true) communicator.wait(communicator.start(prepared, input.data(), output.data()));
    } catch (const RunFailed& error) {
      reports.say(launch.rank, error.what());
      return 3;
    }
  });
  ASSERT_EQ(reports.take(3).size(), 3U);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  group.signal(kVictim, SIGKILL);
  const std::multiset<std::string> lines = reports.take(2);
  EXPECT_EQ(lines.size(), 2U);
  for (const std::string& line : lines) {
    EXPECT_NE(line.find("rank 1 was lost (its connection closed)"), std::string::npos) << line;
    EXPECT_NE(line.find("gradients"), std::string::npos) << line;
  }
  EXPECT_EQ(exit_code(group.wait(std::chrono::seconds(10))), 3);
}

}  // namespace
}  // namespace weft
