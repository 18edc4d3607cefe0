#include "comm/communicator.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/error.hpp"
#include "cluster/presets.hpp"
#include "collective/algorithms.hpp"
#include "comm/local/local_world.hpp"
#include "comm/naive_collective.hpp"
#include "comm/native_library.hpp"
#include "comm/rank_health.hpp"
#include "comm/test_ranks.hpp"

namespace weft {
namespace {

using namespace local_ranks;

// One collective, started twice, against the definition.
void check_call(Communicator& communicator, const PreparedCall& call) {
  const std::int64_t rank = communicator.rank();
  Communicator::Prepared& prepared = communicator.prepare(call);
  const std::vector<std::byte> expected = expected_bytes(call.spec, call.sizes, call.type, call.op, rank);
  for (int round = 0; round < 2; ++round) {
    std::vector<std::byte> input = input_bytes(call.spec, call.sizes, call.type, rank);
    std::vector<std::byte> output(expected.size(), std::byte{0xee});
    std::size_t output_begin = 0;
    if (call.program->in_place) {
      const std::size_t element = static_cast<std::size_t>(size_of(call.type).value);
      output.assign(std::max(input.size(), expected.size()), std::byte{0xee});
      std::size_t input_begin = 0;
      for (std::int64_t slot = 0; slot < in_place_slot_of_input(call.spec, rank, 0); ++slot) {
        input_begin += static_cast<std::size_t>(call.sizes[slot]) * element;
      }
      for (std::int64_t slot = 0; slot < in_place_slot_of_output(call.spec, rank, 0); ++slot) {
        output_begin += static_cast<std::size_t>(call.sizes[slot]) * element;
      }
      std::copy(input.begin(), input.end(), output.begin() + static_cast<std::ptrdiff_t>(input_begin));
    }
    communicator.wait(communicator.start(prepared, input.data(), output.data()));
    const std::vector<std::byte> got(output.begin() + static_cast<std::ptrdiff_t>(output_begin),
                                     output.begin() + static_cast<std::ptrdiff_t>(output_begin + expected.size()));
    ASSERT_EQ(got, expected) << name_of(call.spec.kind) << " " << call.program->name << " rank " << rank << " of "
                             << call.spec.ranks << ", " << call.sizes.size() << " pieces, " << name_of(call.type)
                             << (call.program->in_place ? " in place" : "");
  }
}

void check_everywhere(const PreparedCall& call) {
  on_ranks({.ranks = std::ssize(call.members)}, {},
           [&](Communicator& communicator) { check_call(communicator, call); });
}

TEST(Communicator, EveryAlgorithmGivesWhatTheCollectiveMeans) {
  for (int kind = 0; kind <= static_cast<int>(Collective::barrier); ++kind) {
    for (const Algorithm algorithm : algorithms_for(static_cast<Collective>(kind))) {
      for (const std::int64_t ranks : {1, 2, 3, 4, 7, 8}) {
        if (static_cast<Collective>(kind) == Collective::send_recv && ranks != 2) continue;
        ProgramRequest request{
            .algorithm = algorithm, .kind = static_cast<Collective>(kind), .ranks = ranks, .root = ranks / 2};
        if (algorithm == Algorithm::hierarchical) request.inner = ranks % 4 == 0 ? 2 : ranks;
        for (const std::int64_t elements : {0, 1, 1003}) {
          request.in_place = elements == 1003 && request.kind != Collective::all_to_all;
          request.parts = elements == 1003 ? 2 : 1;
          check_everywhere(call_of(request, elements));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Communicator, EveryTypeAndOperation) {
  for (const ElementType type :
       {ElementType::fp32, ElementType::fp16, ElementType::bf16, ElementType::i32, ElementType::i64}) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::max, ReduceOp::min}) {
      // Averages over 4 ranks of whole numbers are exact in floats; integers truncate, as the expectation does.
      check_everywhere(call_of({.kind = Collective::all_reduce, .ranks = 4, .parts = 2}, 777, type, op));
      check_everywhere(call_of({.kind = Collective::reduce_scatter, .ranks = 4}, 777, type, op));
    }
  }
}

TEST(Communicator, UnevenAllToAll) {
  constexpr std::int64_t kRanks = 4;
  std::vector<std::int64_t> counts;
  for (std::int64_t pair = 0; pair < kRanks * kRanks; ++pair) counts.push_back(pair * pair % 7 * 10);
  for (const Algorithm algorithm : algorithms_for(Collective::all_to_all)) {
    PreparedCall call =
        call_of({.algorithm = algorithm, .kind = Collective::all_to_all, .ranks = kRanks, .parts = 2, .inner = 2}, 0);
    call.sizes.clear();
    const std::int64_t parts = call.spec.pieces / kRanks;
    for (const std::int64_t count : counts) {
      for (std::int64_t i = 0; i < parts; ++i) {
        call.sizes.push_back(part_begin(count, parts, i + 1) - part_begin(count, parts, i));
      }
    }
    check_everywhere(call);
  }
}

TEST(Communicator, UnevenSlices) {
  for (const Collective kind : {Collective::all_gather, Collective::reduce_scatter}) {
    PreparedCall call = call_of({.kind = kind, .ranks = 3, .parts = 2}, 0);
    call.sizes = sliced_sizes(call.spec, std::vector<std::int64_t>{5, 0, 1000});
    check_everywhere(call);
  }
}

TEST(Communicator, CallsThatWereReleasedLeaveOthersAsTheyWere) {
  const auto call_of = [](std::int64_t elements) {
    PreparedCall call;
    call.program = std::make_shared<const Program>(make_program({.kind = Collective::all_reduce, .ranks = 3}));
    call.spec = call.program->spec;
    call.sizes = even_sizes(call.spec, elements);
    call.members = {0, 1, 2};
    return call;
  };
  on_ranks({.ranks = 3}, {}, [&](Communicator& communicator) {
    check_call(communicator, call_of(5));
    Communicator::Prepared& kept = communicator.prepare(call_of(1));
    for (int round = 0; round < 20; ++round) {
      Communicator::Prepared& passing = communicator.prepare(call_of(7 + round));
      std::vector<float> values(static_cast<std::size_t>(7 + round), 1.0F), sums(values.size());
      communicator.wait(communicator.start(passing, values.data(), sums.data()));
      communicator.release(passing);
      EXPECT_EQ(sums, std::vector<float>(values.size(), 3.0F));
      const auto value = static_cast<float>(round);
      float sum = 0;
      communicator.wait(communicator.start(kept, &value, &sum));
      EXPECT_EQ(sum, 3 * value);
    }
  });
}

TEST(Communicator, QueuesRunSideBySideAndGroupsApart) {
  // Rows and columns of a 2 x 2 mesh, one queue each, all in flight together; then all four ranks on a third queue.
  on_ranks({.ranks = 4}, {}, [](Communicator& communicator) {
    const std::int64_t rank = communicator.rank();
    PreparedCall row = call_of({.ranks = 2, .in_place = true}, 1000, ElementType::i64);
    row.members = {rank / 2 * 2, rank / 2 * 2 + 1};
    row.queue = 1;
    PreparedCall column = row;
    column.members = {rank % 2, rank % 2 + 2};
    column.queue = 2;
    PreparedCall all = call_of({.ranks = 4, .in_place = true}, 1000, ElementType::i64);
    all.queue = 3;
    std::vector<std::int64_t> a(1000, rank), b(1000, 10 * rank), c(1000, 100 * rank);
    auto &first = communicator.prepare(row), &second = communicator.prepare(column), &third = communicator.prepare(all);
    const auto h1 = communicator.start(first, nullptr, a.data());
    const auto h2 = communicator.start(second, nullptr, b.data());
    const auto h3 = communicator.start(third, nullptr, c.data());
    communicator.wait(h3);
    communicator.wait(h2);
    communicator.wait(h1);
    EXPECT_EQ(a[999], rank / 2 * 4 + 1);
    EXPECT_EQ(b[0], 10 * (rank % 2 * 2 + 2));
    EXPECT_EQ(c[500], 600);
  });
}

TEST(Communicator, PacedTransfersGiveTheSameResult) {
  const Cluster cluster(parse_cluster("local:4,nic=1GB/s"));
  const PreparedCall call = call_of({.kind = Collective::all_reduce, .ranks = 4, .parts = 2}, 40'000);
  on_ranks({.ranks = 4, .cluster = &cluster}, {}, [&](Communicator& communicator) { check_call(communicator, call); });
}

TEST(Communicator, PacingNeverBeatsTheLink) {
  // 2 ranks, 10 MB/s: an all_reduce of 1 MB sends 1 MB each way: 100 ms, whatever the machine.
  const Cluster cluster(parse_cluster("local:2,nic=10MB/s"));
  const PreparedCall call = call_of({.kind = Collective::all_reduce, .ranks = 2}, 250'000);
  const auto begin = std::chrono::steady_clock::now();
  on_ranks({.ranks = 2, .cluster = &cluster}, {}, [&](Communicator& communicator) { check_call(communicator, call); });
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(200));  // two rounds
}

TEST(Communicator, AMissingRankIsNamedAfterTheTimeout) {
  LocalWorld world({.ranks = 2});
  std::string reported;
  Communicator communicator(world.transport(0), {.timeout = std::chrono::milliseconds(200),
                                                 .on_failure = [&](const std::string& words) { reported = words; }});
  auto& prepared = communicator.prepare(call_of({.ranks = 2, .in_place = true}, 100));
  std::vector<float> data(100);
  const auto handle = communicator.start(prepared, nullptr, data.data());
  try {
    communicator.wait(handle);
    FAIL() << "nobody answered";
  } catch (const RunFailed& failure) {
    const std::string words = failure.what();
    EXPECT_NE(words.find("all_reduce 'test' (call 1 of queue 0: 100 x fp32, ring)"), std::string::npos) << words;
    EXPECT_NE(words.find("receiving from rank 1"), std::string::npos) << words;
    EXPECT_EQ(words, reported);
  }
}

// Without checking mode: the transport sees that the lengths differ, and the others need not wait for their timeout.
TEST(Communicator, MessagesOfAnotherSizeEndAllRanksAndNameTheOperation) {
  constexpr std::int64_t kRanks = 4;
  std::vector<std::string> words(kRanks);
  on_ranks({.ranks = kRanks}, {.timeout = std::chrono::hours(1)}, [&](Communicator& communicator) {
    const std::int64_t rank = communicator.rank();
    PreparedCall call = call_of({.ranks = kRanks, .in_place = true}, rank == 2 ? 404 : 400);
    call.label = "gradients";
    std::vector<float> data(404);
    try {
      communicator.wait(communicator.start(communicator.prepare(call), nullptr, data.data()));
    } catch (const RunFailed& failure) {
      words[rank] = failure.what();
    }
  });
  for (std::size_t rank = 0; rank < words.size(); ++rank) {
    const std::string own =
        fmt::format("all_reduce 'gradients' (call 1 of queue 0: {} x fp32, ring)", rank == 2 ? 404 : 400);
    EXPECT_NE(words[rank].find(own), std::string::npos) << "rank " << rank << ": " << words[rank];
    // Chunks of 101 and of 100 floats: rank 2's neighbours see it, on either side.
    EXPECT_TRUE(words[rank].find("expects 400 bytes of rank 2, which sends 404") != std::string::npos ||
                words[rank].find("rank 2 expects 404 bytes of rank 1, which sends 400") != std::string::npos)
        << "rank " << rank << ": " << words[rank];
  }
}

// A transport whose library never comes back, as an MPI call does not when a rank is gone.
class StuckTransport : public Transport, private RankHealth, private NativeLibrary {
 public:
  struct Stuck final : NativeCollective {
    explicit Stuck(std::atomic<bool>& release) : release_(release) {}
    void run(const std::byte*, std::byte*) override {
      while (!release_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    void start(const std::byte*, std::byte*) override {}
    bool done() override { return release_; }
    std::atomic<bool>& release_;
  };

  StuckTransport(std::atomic<bool>& release, bool loses) : release_(release), loses_(loses) {}
  std::int64_t rank() const override { return 0; }
  std::int64_t size() const override { return 2; }
  Ticket send(std::int64_t, std::int64_t, std::span<const Segment>) override { return {}; }
  Ticket receive(std::int64_t, std::int64_t, const Landing&) override { return {}; }
  bool done(Ticket) override { return false; }
  void pause(Clock::time_point) override { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }
  void wake() override {}
  std::uint64_t moved() const override { return 0; }
  TransportFeatures features() override { return {.health = this, .library = this}; }

 private:
  std::unique_ptr<NativeCollective> prepare(const NativeRequest&) override { return std::make_unique<Stuck>(release_); }
  void give_up(const std::string&) override {}
  std::optional<LostRank> lost() const override {
    return loses_ ? std::optional(LostRank{1, "its connection closed"}) : std::nullopt;
  }
  std::chrono::nanoseconds silence(std::int64_t rank) const override { return std::chrono::seconds(rank == 1 ? 7 : 0); }

  std::atomic<bool>& release_;
  bool loses_;
};

std::string words_of_stuck(bool loses, bool wait_for_another_queue, bool blocking) {
  std::atomic<bool> release = false;
  Communicator communicator(std::make_unique<StuckTransport>(release, loses), {.timeout = std::chrono::seconds(5)});
  PreparedCall call = call_of({.ranks = 2, .in_place = true}, 100);
  call.queue = 3;
  Communicator::Prepared& behind = communicator.prepare(call);
  call.program = nullptr;
  call.blocking = blocking;
  call.queue = 1;
  Communicator::Prepared& native = communicator.prepare(call);
  std::vector<float> data(100), other(100);
  const auto first = communicator.start(native, nullptr, data.data());
  std::string words;
  try {
    communicator.wait(wait_for_another_queue ? communicator.start(behind, nullptr, other.data()) : first);
  } catch (const RunFailed& failure) {
    words = failure.what();
  }
  release = true;
  return words;
}

TEST(Communicator, ALossInsideTheLibraryIsNoticedByWhoeverWaits) {
  const std::string expected =
      "rank 1 was lost (its connection closed) while rank 0 was in all_reduce 'test' (call 1 of queue 1: 100 x fp32, "
      "native)";
  EXPECT_EQ(words_of_stuck(true, false, true), expected);
  EXPECT_EQ(words_of_stuck(true, true, true), expected);
  EXPECT_EQ(words_of_stuck(true, false, false), expected);
}

TEST(Communicator, ASilentRankIsNamedByWhoIsInsideTheLibrary) {
  for (const bool blocking : {true, false}) {
    EXPECT_EQ(
        words_of_stuck(false, false, blocking),
        "all_reduce 'test' (call 1 of queue 1: 100 x fp32, native): rank 0 waits inside the library; rank 1 has given "
        "no sign of life for 7.0 s");
  }
}

// A library of one rank, which needs two questions for every answer.
class LibraryOfOne : public StuckTransport {
 public:
  struct Copies final : NativeCollective {
    explicit Copies(std::int64_t all) : bytes(static_cast<std::size_t>(all)) {}
    void run(const std::byte* input, std::byte* output) override { std::memmove(output, input, bytes); }
    void start(const std::byte* input, std::byte* output) override {
      run(input, output);
      questions = 0;
    }
    bool done() override { return ++questions == 2; }
    std::size_t bytes;
    int questions = 0;
  };

  LibraryOfOne() : StuckTransport(never_, false) {}
  std::int64_t size() const override { return 1; }

 private:
  std::unique_ptr<NativeCollective> prepare(const NativeRequest& request) override {
    return std::make_unique<Copies>(request.sizes.front() * 4);
  }
  std::atomic<bool> never_ = false;
};

TEST(Communicator, NativeCollectivesTakeBuffersInSeveralPlaces) {
  Communicator communicator(std::make_unique<LibraryOfOne>(), {});
  EXPECT_TRUE(communicator.has_library());
  PreparedCall call;
  call.spec = {.kind = Collective::all_reduce, .ranks = 1, .pieces = 1};
  call.sizes = {5};
  call.members = {0};
  call.segments = 3;
  Communicator::Prepared& prepared = communicator.prepare(call);
  const auto place = [](float* at, std::int64_t elements) {
    return Segment{reinterpret_cast<std::byte*>(at), elements * 4};
  };
  for (int execution = 0; execution < 3; ++execution) {
    std::array<float, 2> a{1, 2}, c{-1, -1};
    std::array<float, 3> b{3, 4, 5}, d{-1, -1, -1};
    const std::vector<Segment> from{place(a.data(), 2), place(b.data(), 0), place(b.data(), 3)};
    const std::vector<Segment> to{place(d.data(), 3), place(c.data(), 2)};
    communicator.wait(communicator.start(prepared, from, to));
    EXPECT_EQ(d, (std::array<float, 3>{1, 2, 3}));
    EXPECT_EQ(c, (std::array<float, 2>{4, 5}));
    communicator.wait(communicator.start(prepared, to, to));
    EXPECT_EQ(d, (std::array<float, 3>{1, 2, 3}));
  }
}

TEST(LocalTransport, AnIdleRankSleepsAgainOnceItWasWoken) {
  LocalWorld world({.ranks = 2});
  const std::unique_ptr<Transport> transport = world.transport(0);
  transport->wake();
  transport->pause(Transport::Clock::now() + std::chrono::hours(1));
  const auto until = Transport::Clock::now() + std::chrono::milliseconds(20);
  transport->pause(until);  // nothing was asked for in between
  EXPECT_GE(Transport::Clock::now(), until);
}

TEST(LocalTransport, ARankThatLeavesInTheMiddleIsLost) {
  LocalWorld world({.ranks = 2});
  const std::unique_ptr<Transport> stays = world.transport(0);
  {
    std::vector<std::byte> data(100);
    const Segment segment{data.data(), 100};
    const std::unique_ptr<Transport> leaves = world.transport(1);
    leaves->send(0, 5, {&segment, 1});
  }
  std::vector<std::byte> landed(100, std::byte{7});
  const Segment place{landed.data(), 100};
  const Ticket ticket = stays->receive(1, 5, {.dst = {&place, 1}, .operand = {}});
  EXPECT_FALSE(stays->done(ticket));
  ASSERT_TRUE(stays->features().health->lost().has_value());
  EXPECT_EQ(stays->features().health->lost()->rank, 1);
  EXPECT_EQ(stays->features().health->lost()->reason, "it gave up: it left in the middle of a collective");
  EXPECT_EQ(landed, std::vector<std::byte>(100, std::byte{7}));
}

TEST(Communicator, ProgramsThatAreWrongAreRefused) {
  LocalWorld world({.ranks = 1});
  Communicator communicator(world.transport(0), {});
  auto broken = std::make_shared<Program>(make_program({.ranks = 2}));
  broken->ranks[0].blocks[0].steps.pop_back();
  PreparedCall call{broken, broken->spec, even_sizes(broken->spec, 10), ElementType::fp32, ReduceOp::sum, {0, 1},
                    0,      "broken"};
  EXPECT_THROW(communicator.prepare(call), Error);
}

}  // namespace
}  // namespace weft
