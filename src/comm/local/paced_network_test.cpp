#include "comm/local/paced_network.hpp"

#include <gtest/gtest.h>

#include <future>
#include <numeric>

#include "cluster/presets.hpp"
#include "comm/naive_collective.hpp"
#include "comm/rank_health.hpp"
#include "comm/test_ranks.hpp"

namespace weft {
namespace {

using namespace local_ranks;
using Clock = Transport::Clock;

struct Times {
  Clock::time_point began, ended;
};

std::chrono::nanoseconds from_last_begin_to_last_end(const std::vector<Times>& times) {
  Times last = times.front();
  for (const Times& rank : times) {
    last.began = std::max(last.began, rank.began);
    last.ended = std::max(last.ended, rank.ended);
  }
  return last.ended - last.began;
}

// What on_done said of every rank's execution.
std::vector<Times> times_of(const Cluster& cluster, PreparedCall call, std::int64_t elements) {
  std::vector<Times> times(static_cast<std::size_t>(cluster.device_count()));
  on_ranks({.ranks = cluster.device_count(), .cluster = &cluster}, {}, [&](Communicator& communicator) {
    PreparedCall mine = call;
    mine.on_done = [&times, rank = static_cast<std::size_t>(communicator.rank())](auto began, auto ended) {
      times[rank] = {began, ended};
    };
    std::vector<float> input(static_cast<std::size_t>(elements)), output(input.size());
    communicator.wait(communicator.start(communicator.prepare(mine), input.data(), output.data()));
    // Who waits may go on before on_done has returned; a call behind it on its queue has not.
    const auto& behind = communicator.start(communicator.prepare(call), input.data(), output.data());
    communicator.wait(behind);
  });
  return times;
}

// What the last rank sends at once goes from rank to rank three times, each a latency of 50 us and a fourth of 1 MB at
// 100 MB/s: 3 x (50 us + 2.5 ms). Threads that wake up late change nothing about it.
TEST(PacedNetwork, ARingTakesWhatItsLinksNeedHoweverLateThreadsAre) {
  const Cluster cluster(parse_cluster("local:4,nic=100MB/s"));
  const PreparedCall call = call_of({.kind = Collective::all_gather, .ranks = 4, .in_place = true}, 250'000);
  std::atomic<bool> over = false;
  std::vector<std::thread> busy;  // more than the machine has cores
  for (unsigned i = 0; i < std::thread::hardware_concurrency() + 1; ++i) {
    busy.emplace_back([&] {
      while (!over) {
      }
    });
  }
  const std::vector<Times> times = times_of(cluster, call, 250'000);
  over = true;
  for (std::thread& thread : busy) thread.join();
  const std::chrono::nanoseconds expected = 3 * std::chrono::nanoseconds(50'000 + 2'500'000);
  EXPECT_NEAR(static_cast<double>(from_last_begin_to_last_end(times).count()), static_cast<double>(expected.count()),
              100);  // nanoseconds: rounding
}

// A rank's own part is read and written: 2 x 4 MB at the 10 GB/s of this device's memory.
TEST(PacedNetwork, ARanksOwnWorkTakesWhatItsDeviceNeeds) {
  const Cluster cluster(parse_cluster("local:1,nic=1GB/s"));
  const PreparedCall call =
      call_of({.algorithm = Algorithm::direct, .kind = Collective::all_gather, .ranks = 1}, 1'000'000);
  const std::vector<Times> times = times_of(cluster, call, 1'000'000);
  EXPECT_EQ(times[0].ended - times[0].began, std::chrono::microseconds(800));
}

TEST(PacedNetwork, NothingIsDoneBeforeItIsDue) {
  const Cluster cluster(parse_cluster("local:2,nic=10MB/s"));
  LocalWorld world({.ranks = 2, .cluster = &cluster});
  const std::unique_ptr<Transport> sender = world.transport(0), receiver = world.transport(1);
  std::vector<std::byte> data(100'000, std::byte{3}), landed(data.size());
  const Segment from{data.data(), std::ssize(data)}, to{landed.data(), std::ssize(landed)};
  const Clock::time_point begin = Clock::now();
  const Ticket sent = sender->send(1, 0, {&from, 1});
  const Ticket received = receiver->receive(0, 0, {.dst = {&to, 1}, .operand = {}});
  while (!receiver->done(received)) receiver->pause(Clock::now() + std::chrono::seconds(1));
  EXPECT_GE(Clock::now() - begin, std::chrono::nanoseconds(10'050'000));  // 10 ms at 10 MB/s, and the latency
  EXPECT_TRUE(sender->done(sent));
  EXPECT_EQ(landed, data);
}

// 300 kB at 1 MB/s take 0.3 s.
TEST(PacedNetwork, AMessageThatMovesIsNotGivenUp) {
  const Cluster cluster(parse_cluster("local:2,nic=1MB/s"));
  on_ranks({.ranks = 2, .cluster = &cluster}, {.timeout = std::chrono::milliseconds(100)},
           [&](Communicator& communicator) {
             auto& call = communicator.prepare(
                 call_of({.algorithm = Algorithm::direct, .kind = Collective::broadcast, .ranks = 2}, 75'000));
             std::vector<float> input(75'000), output(75'000);
             EXPECT_NO_THROW(communicator.wait(communicator.start(call, input.data(), output.data())));
           });
}

// While the end of one call is being worked on, the caller's thread starts another, which has its time later. What the
// end itself starts begins at that end all the same.
TEST(PacedNetwork, WhatAnEndSetsOffDoesNotWaitForALaterCall) {
  const Cluster cluster(parse_cluster("local:1,nic=1GB/s"));
  on_ranks({.ranks = 1, .cluster = &cluster}, {}, [&](Communicator& communicator) {
    const auto copy = [](std::int64_t queue) {
      PreparedCall call =
          call_of({.algorithm = Algorithm::direct, .kind = Collective::all_gather, .ranks = 1}, 1'000'000);
      call.queue = queue;
      return call;
    };
    std::vector<float> data(3'000'000);
    auto& later = communicator.prepare(copy(2));
    auto& behind = communicator.prepare(copy(1));
    std::promise<void> at_end, started;
    std::vector<Times> first, second;
    PreparedCall set_off = copy(1);
    set_off.on_done = [&](auto began, auto ended) { second.push_back({began, ended}); };
    auto& follows = communicator.prepare(set_off);
    std::promise<Communicator::Handle> handle;
    PreparedCall begin = copy(0);
    begin.on_done = [&](auto began, auto ended) {
      first.push_back({began, ended});
      at_end.set_value();
      started.get_future().wait();
      handle.set_value(communicator.start(follows, data.data(), data.data() + 1'000'000));
    };
    communicator.start(communicator.prepare(begin), data.data(), data.data() + 1'000'000);
    at_end.get_future().wait();
    const auto last = communicator.start(later, data.data(), data.data() + 2'000'000);
    started.set_value();
    communicator.wait(handle.get_future().get());
    communicator.wait(last);
    // Behind it on its queue: its on_done has returned.
    communicator.wait(communicator.start(behind, data.data(), data.data() + 1'000'000));
    EXPECT_EQ(second.at(0).began, first.at(0).ended);
  });
}

TEST(PacedNetwork, ARankThatLeavesInTheMiddleIsLost) {
  const Cluster cluster(parse_cluster("local:2,nic=10MB/s"));
  LocalWorld world({.ranks = 2, .cluster = &cluster});
  const std::unique_ptr<Transport> stays = world.transport(0);
  std::vector<std::byte> landed(1'000'000, std::byte{7});
  const Segment place{landed.data(), std::ssize(landed)};
  const Ticket ticket = stays->receive(1, 5, {.dst = {&place, 1}, .operand = {}});
  {
    std::vector<std::byte> data(landed.size());
    const Segment segment{data.data(), std::ssize(data)};
    const std::unique_ptr<Transport> leaves = world.transport(1);
    leaves->send(0, 5, {&segment, 1});
  }
  EXPECT_FALSE(stays->done(ticket));
  ASSERT_TRUE(stays->features().health->lost().has_value());
  EXPECT_EQ(stays->features().health->lost()->rank, 1);
  EXPECT_EQ(stays->features().health->lost()->reason, "it gave up: it left in the middle of a collective");
}

TEST(PacedNetwork, MessagesOfAnotherSizeEndAllRanks) {
  const Cluster cluster(parse_cluster("local:3,nic=1GB/s"));
  std::vector<std::string> words(3);
  on_ranks({.ranks = 3, .cluster = &cluster}, {.timeout = std::chrono::hours(1)}, [&](Communicator& communicator) {
    const std::int64_t rank = communicator.rank();
    const PreparedCall call = call_of({.ranks = 3, .in_place = true}, rank == 2 ? 303 : 300);
    std::vector<float> data(303);
    try {
      communicator.wait(communicator.start(communicator.prepare(call), nullptr, data.data()));
    } catch (const RunFailed& failure) {
      words[rank] = failure.what();
    }
  });
  for (const std::string& said : words) EXPECT_NE(said.find("all_reduce 'test'"), std::string::npos) << said;
}

// Sums of 0, 1, 2, ... on every rank, in many shapes and sizes, on both sides of what is copied by other threads.
TEST(PacedNetwork, EveryAlgorithmGivesWhatTheCollectiveMeans) {
  constexpr std::int64_t kRanks = 3;
  const Cluster cluster(parse_cluster("local:3,nic=1GB/s"));
  for (const Collective kind : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
    for (const Algorithm algorithm : algorithms_for(kind)) {
      if (algorithm == Algorithm::hierarchical) continue;
      for (const std::int64_t elements : {0, 1, 100, 100'003}) {
        const PreparedCall call = call_of({.algorithm = algorithm, .kind = kind, .ranks = kRanks}, elements);
        on_ranks({.ranks = kRanks, .cluster = &cluster}, {}, [&](Communicator& communicator) {
          const std::int64_t rank = communicator.rank();
          const auto input = input_bytes(call.spec, call.sizes, call.type, rank);
          const auto expected = expected_bytes(call.spec, call.sizes, call.type, call.op, rank);
          std::vector<std::byte> output(expected.size());
          communicator.wait(communicator.start(communicator.prepare(call), input.data(), output.data()));
          EXPECT_EQ(output, expected) << name_of(algorithm) << " " << name_of(kind) << " of " << elements;
        });
      }
    }
  }
}

}  // namespace
}  // namespace weft
