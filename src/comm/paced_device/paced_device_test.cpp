// All of it but CUDA: ranks are threads, their devices the memory of the host, on which the kernel's own code runs.
#include <gtest/gtest.h>

#include <deque>

#include "base/error.hpp"
#include "cluster/presets.hpp"
#include "comm/nccl/test_nccl_calls.hpp"
#include "comm/paced_device/modelled_time.hpp"
#include "comm/paced_device/paced_device_collectives.hpp"
#include "comm/paced_device/test_host_device.hpp"
#include "comm/paced_device/test_paced_ranks.hpp"
#include "comm/tcp/test_threads.hpp"

namespace weft {
namespace {

using nccl_calls::Case;
using nccl_calls::HostMemory;
using paced::HostDevice;
using paced::PacedRanks;

std::unique_ptr<StreamCollectives> make(PacedRanks& ranks, std::int64_t rank,
                                        std::vector<PacedLaunch>* launched = nullptr) {
  return paced_collectives_over(ranks.options(rank), ranks.exchange(rank), [&] {
    return std::make_unique<HostDevice>([launched](const PacedLaunch& launch) {
      if (launched != nullptr) launched->push_back(launch);
    });
  });
}

TEST(PacedDevice, AgreesWithTheDefinitionInEveryLayoutOfTheBuffers) {
  for (const std::int64_t count : {1, 2, 3, 4}) {
    const std::vector<Case> cases = nccl_calls::all_cases(count, {0, 1, 37, 480});
    PacedRanks ranks(fmt::format("gpu:{},link=10GB/s", count));
    tcp::expect_no_errors(tcp::run_threads(count, [&](std::int64_t rank) {
      HostMemory memory;
      nccl_calls::check_cases(*make(ranks, rank), memory, rank, cases);
    }));
  }
}

TEST(PacedDevice, AgreesWithTheDefinitionOnSeveralThreadBlocks) {
  std::vector<Case> cases;
  nccl_calls::add_cases(cases, {0, 1, 2}, {1000});
  PacedRanks ranks("gpu:3,link=40GB/s");
  ASSERT_EQ(thread_blocks_for(ranks.cluster()), 3);
  tcp::expect_no_errors(tcp::run_threads(3, [&](std::int64_t rank) {
    HostMemory memory;
    nccl_calls::check_cases(*make(ranks, rank), memory, rank, cases);
  }));
}

// Blocks of 40 elements, each in a place of its own: a launch has room for 28 messages in each direction of two
// members.
TEST(PacedDevice, CutsAnExchangeOfManyPiecesIntoLaunches) {
  constexpr std::int64_t kElements = 80;
  PacedRanks ranks("gpu:2,link=10GB/s");
  tcp::expect_no_errors(tcp::run_threads(2, [&](std::int64_t rank) {
    std::vector<float> in(2 * kElements), out(2 * kElements);
    std::vector<Segment> input, output;
    for (std::int64_t i = 0; i < kElements; ++i) {
      in[2 * i] = static_cast<float>(1000 * rank + i);
      input.push_back({reinterpret_cast<std::byte*>(&in[2 * i]), 4});
      output.push_back({reinterpret_cast<std::byte*>(&out[2 * i]), 4});
    }
    PreparedCall call =
        nccl_calls::call_of(Collective::all_to_all, {0, 1}, kElements, ElementType::fp32, ReduceOp::sum);
    call.segments = kElements;
    std::vector<PacedLaunch> launched;
    const std::unique_ptr<StreamCollectives> collectives = make(ranks, rank, &launched);
    const std::size_t prepared = collectives->prepare(call, input, output);
    collectives->connect();
    collectives->start(prepared, input, output, nullptr);
    for (std::int64_t i = 0; i < kElements; ++i) {
      const std::int64_t sender = i / 40, expected = 1000 * sender + 40 * rank + i % 40;
      EXPECT_EQ(out[2 * i], static_cast<float>(expected)) << i;
      EXPECT_EQ(out[2 * i + 1], 0) << i;
    }
    ASSERT_EQ(launched.size(), 2U);
    EXPECT_FALSE(launched[0].is_paced);
    EXPECT_TRUE(launched[1].is_paced);  // the whole time is waited for once
  }));
}

PreparedCall call_of_bytes(Collective kind, std::vector<std::int64_t> members, std::int64_t bytes) {
  return nccl_calls::call_of(kind, std::move(members), bytes / 4, ElementType::fp32, ReduceOp::sum);
}

// Four ranks, 100 MB, 50 GB/s and 2 us: a ring sends three quarters of the buffer in each of its passes, in three
// messages each, one pass for all_gather and reduce_scatter and two for all_reduce. Direct messages take one latency.
TEST(ModelledTime, IsThatOfARingOrOfDirectMessages) {
  const Cluster cluster(parse_cluster("gpu:4,link=50GB/s,latency=2us"));
  const std::vector<std::int64_t> all = {0, 1, 2, 3};
  constexpr std::int64_t kBytes = 100'000'000;
  const auto time = [&](Collective kind) { return modelled_time(cluster, call_of_bytes(kind, all, kBytes)); };
  EXPECT_EQ(time(Collective::all_reduce), (ModelledTime{Nanos{12'000}, Nanos{3'000'000}}));
  EXPECT_EQ(time(Collective::all_gather), (ModelledTime{Nanos{6'000}, Nanos{1'500'000}}));
  EXPECT_EQ(time(Collective::reduce_scatter), (ModelledTime{Nanos{6'000}, Nanos{1'500'000}}));
  EXPECT_EQ(time(Collective::all_to_all), (ModelledTime{Nanos{2'000}, Nanos{1'500'000}}));
  EXPECT_EQ(modelled_time(cluster, call_of_bytes(Collective::send_recv, {3, 1}, kBytes)),
            (ModelledTime{Nanos{2'000}, Nanos{2'000'000}}));
  EXPECT_EQ(modelled_time(cluster, call_of_bytes(Collective::all_reduce, {2, 3}, kBytes)),
            (ModelledTime{Nanos{4'000}, Nanos{2'000'000}}));
  EXPECT_EQ(modelled_time(cluster, call_of_bytes(Collective::all_reduce, all, 0)), ModelledTime{});
}

TEST(PacedDevice, UsesTheLinksOfItsMembersInTheDirectionsThatItMoves) {
  PacedRanks ranks("gpu:3,link=10GB/s");
  std::vector<std::vector<PacedLaunch>> launched(3);
  tcp::expect_no_errors(tcp::run_threads(3, [&](std::int64_t rank) {
    std::vector<std::byte> memory(1200);
    const Segment buffer{memory.data(), 1200};
    const std::unique_ptr<StreamCollectives> collectives = make(ranks, rank, &launched[rank]);
    const std::vector<PreparedCall> calls = {call_of_bytes(Collective::send_recv, {2, 1}, 1200),
                                             call_of_bytes(Collective::all_reduce, {0, 1, 2}, 1200)};
    std::vector<std::size_t> prepared;
    for (const PreparedCall& call : calls) {
      if (std::ranges::find(call.members, rank) == call.members.end()) continue;
      prepared.push_back(collectives->prepare(call, {&buffer, 1}, {&buffer, 1}));
    }
    collectives->connect();
    for (const std::size_t number : prepared) collectives->start(number, {&buffer, 1}, {&buffer, 1}, nullptr);
  }));
  const auto links = [](const PacedLaunch& launch) {
    return std::vector<int>(launch.pace.links, launch.pace.links + launch.pace.link_count);
  };
  EXPECT_EQ(links(launched[2][0]), (std::vector<int>{4, 3}));  // what leaves rank 2 and what comes to rank 1
  EXPECT_EQ(links(launched[0][0]), (std::vector<int>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(launched[0][0].pace.moving, 160);  // 4/3 of 1200 bytes at 10 bytes a nanosecond
}

// A call takes an eighth of 32 SMs at most, because those of all queues wait at the same time.
TEST(PacedDevice, TakesAsManyThreadBlocksAsItsCallSays) {
  PacedRanks ranks("gpu:4,link=10GB/s");
  std::vector<std::vector<PacedLaunch>> launched(4);
  tcp::expect_no_errors(tcp::run_threads(4, [&](std::int64_t rank) {
    std::vector<std::byte> memory(1200);
    const Segment buffer{memory.data(), 1200};
    const std::unique_ptr<StreamCollectives> collectives = make(ranks, rank, &launched[rank]);
    std::vector<std::size_t> prepared;
    for (const int blocks : {0, 3, 9}) {
      PreparedCall call = call_of_bytes(Collective::all_reduce, {0, 1, 2, 3}, 1200);
      call.thread_blocks = blocks;
      prepared.push_back(collectives->prepare(call, {&buffer, 1}, {&buffer, 1}));
    }
    collectives->connect();
    for (const std::size_t number : prepared) collectives->start(number, {&buffer, 1}, {&buffer, 1}, nullptr);
  }));
  for (const std::vector<PacedLaunch>& of_rank : launched) {
    ASSERT_EQ(of_rank.size(), 3U);
    EXPECT_EQ(of_rank[0].blocks, 1);
    EXPECT_EQ(of_rank[1].blocks, 3);
    EXPECT_EQ(of_rank[2].blocks, 4);
  }
}

// Its time passes by so much at every look.
struct SteppingClock {
  std::int64_t step, others, aborted_at = INT64_MAX;
  std::int64_t time = 0, used = 0, left = 0;

  std::int64_t now() { return time += step; }
  bool is_aborted() const { return time >= aborted_at; }
  void use_links(const Pace&) { used = time; }
  void leave_links(const Pace&) { left = time; }
  std::uint32_t most_collectives_on_a_link(const Pace&) const { return static_cast<std::uint32_t>(1 + others); }
};

TEST(KeepPace, TakesItsLatencyAndThenItsShareOfTheLinks) {
  const auto end_of = [](std::int64_t others) {
    SteppingClock clock{.step = 1, .others = others};
    Pace pace;
    pace.latency = 100;
    pace.moving = 1000;
    EXPECT_TRUE(paced::keep_pace(clock, pace));
    EXPECT_EQ(clock.used, 101);
    return clock.left;
  };
  EXPECT_EQ(end_of(0), 1 + 100 + 1000);
  EXPECT_EQ(end_of(1), 1 + 100 + 2000);
  EXPECT_EQ(end_of(3), 1 + 100 + 4000);
}

TEST(KeepPace, EndsWhereItIsAborted) {
  SteppingClock in_latency{.step = 1, .others = 0, .aborted_at = 50}, moving{.step = 1, .others = 0, .aborted_at = 500};
  Pace pace;
  pace.latency = 100;
  pace.moving = 1000;
  EXPECT_FALSE(paced::keep_pace(in_latency, pace));
  EXPECT_EQ(in_latency.used, 0);
  EXPECT_FALSE(paced::keep_pace(moving, pace));
  EXPECT_EQ(moving.left, 500);
}

// Rank 1 prepares a call and never starts it.
TEST(PacedDevice, NamesTheGroupInWhichARankDoesNotCome) {
  PacedRanks ranks("gpu:2,link=10GB/s");
  tcp::expect_no_errors(tcp::run_threads(2, [&](std::int64_t rank) {
    std::vector<std::byte> memory(64);
    const Segment buffer{memory.data(), 64};
    PacedDeviceOptions options = ranks.options(rank);
    options.timeout = std::chrono::seconds(0);
    const std::unique_ptr<StreamCollectives> collectives =
        paced_collectives_over(options, ranks.exchange(rank), [] { return std::make_unique<HostDevice>(); });
    const std::size_t prepared =
        collectives->prepare(call_of_bytes(Collective::all_reduce, {0, 1}, 64), {&buffer, 1}, {&buffer, 1});
    collectives->connect();
    if (rank == 0) {
      EXPECT_EQ(collectives->failure(), "");
      collectives->start(prepared, {&buffer, 1}, {&buffer, 1}, nullptr);
    }
    ranks.exchange(rank)("");
    EXPECT_EQ(collectives->failure(),
              "a collective of ranks 0, 1 on queue 0 has waited too long for a rank that did not come to it");
    EXPECT_THROW(collectives->start(prepared, {&buffer, 1}, {&buffer, 1}, nullptr), RunFailed);
  }));
}

TEST(PacedDevice, AbortEndsWhatOtherRanksWaitIn) {
  PacedRanks ranks("gpu:2,link=10GB/s");
  std::atomic<bool> has_arrived = false;
  tcp::expect_no_errors(tcp::run_threads(2, [&](std::int64_t rank) {
    std::vector<std::byte> memory(64);
    const Segment buffer{memory.data(), 64};
    const std::unique_ptr<StreamCollectives> collectives = paced_collectives_over(
        ranks.options(rank), ranks.exchange(rank),
        [&] { return std::make_unique<HostDevice>([&](const PacedLaunch&) { has_arrived = true; }); });
    const std::size_t prepared =
        collectives->prepare(call_of_bytes(Collective::all_reduce, {0, 1}, 64), {&buffer, 1}, {&buffer, 1});
    collectives->connect();
    if (rank == 0) {
      EXPECT_NO_THROW(collectives->start(prepared, {&buffer, 1}, {&buffer, 1}, nullptr));  // returns when rank 1 aborts
    } else {
      while (!has_arrived) std::this_thread::yield();
      collectives->abort("no memory");
    }
    EXPECT_EQ(collectives->failure(), "");
    try {
      collectives->start(prepared, {&buffer, 1}, {&buffer, 1}, nullptr);
      ADD_FAILURE() << "it was started";
    } catch (const RunFailed& failure) {
      EXPECT_STREQ(failure.what(), "another rank has ended the collectives: no memory");
    }
  }));
}

TEST(PacedDevice, TakesAsManyThreadBlocksAsTheLinkNeeds) {
  const auto blocks = [](const char* cluster) { return thread_blocks_for(Cluster(parse_cluster(cluster))); };
  EXPECT_EQ(blocks("gpu:4,link=1GB/s"), 1);
  EXPECT_EQ(blocks("gpu:4,link=50GB/s"), 4);
  EXPECT_EQ(blocks("gpu:4,link=900GB/s"), 4);  // an eighth of 32 SMs
  EXPECT_EQ(blocks("gpu:16,link=900GB/s"), 1);
}

}  // namespace
}  // namespace weft
