// Buffers in several places, sums that go on, and calls that start each other.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <future>
#include <mutex>

#include "base/error.hpp"
#include "cluster/presets.hpp"
#include "comm/segment_map.hpp"
#include "comm/test_ranks.hpp"
#include "comm/test_scattered.hpp"

namespace weft {
namespace {

using namespace local_ranks;

TEST(SegmentMap, FindsRangesAcrossBordersAndJoinsWhatFollowsInMemory) {
  std::array<std::byte, 100> memory{};
  std::byte* const at = memory.data();
  // Bytes 0..9 at 50, 10..19 right behind them, nothing, 20..24 at 0.
  const std::vector<Segment> segments = {{at + 50, 10}, {at + 60, 10}, {at + 90, 0}, {at, 5}, {at + 7, 0}};
  SegmentMap map;
  map.reserve(5);
  map.bind(segments);
  EXPECT_EQ(map.bytes(), 25);
  const auto range = [&](std::int64_t begin, std::int64_t bytes) {
    std::vector<std::pair<std::ptrdiff_t, std::int64_t>> found;
    std::vector<Segment> list;
    map.append(begin, bytes, list);
    for (const Segment& segment : list) found.emplace_back(segment.data - at, segment.bytes);
    return found;
  };
  using Found = std::vector<std::pair<std::ptrdiff_t, std::int64_t>>;
  EXPECT_EQ(range(0, 25), (Found{{50, 20}, {0, 5}}));
  EXPECT_EQ(range(9, 2), (Found{{59, 2}}));
  EXPECT_EQ(range(10, 3), (Found{{60, 3}}));
  EXPECT_EQ(range(19, 2), (Found{{69, 1}, {0, 1}}));
  EXPECT_EQ(range(20, 5), (Found{{0, 5}}));
  EXPECT_EQ(range(25, 0), Found{});
}

TEST(ScatteredBuffers, EveryAlgorithmGivesWhatTheCollectiveMeans) {
  for (const std::int64_t ranks : {1, 2, 3, 4, 5}) {
    const std::vector<PreparedCall> calls = every_call(ranks, {ranks == 3 ? 1 : 601});
    ASSERT_GT(calls.size(), 50U);
    on_ranks({.ranks = ranks}, {}, [&](Communicator& communicator) {
      for (std::size_t i = 0; i < calls.size(); ++i) {
        check_scattered(communicator, calls[i], static_cast<std::uint32_t>(i));
        if (testing::Test::HasFatalFailure()) return;
      }
    });
  }
}

TEST(ScatteredBuffers, EveryTypeOverPacedLinks) {
  const Cluster cluster(parse_cluster("local:3,nic=1GB/s"));
  on_ranks({.ranks = 3, .cluster = &cluster}, {}, [&](Communicator& communicator) {
    for (const ElementType type :
         {ElementType::fp32, ElementType::fp16, ElementType::bf16, ElementType::i32, ElementType::i64}) {
      check_scattered(communicator, call_of({.kind = Collective::all_reduce, .ranks = 3, .parts = 2}, 100'003, type),
                      1);
      check_scattered(communicator, call_of({.kind = Collective::reduce_scatter, .ranks = 3}, 1003, type), 2);
    }
  });
}

TEST(LocalTransport, HasNoLibraryOfItsOwn) {
  LocalWorld world({.ranks = 1});
  Communicator communicator(world.transport(0), {});
  EXPECT_FALSE(communicator.has_library());
  PreparedCall call = call_of({.ranks = 1}, 100);
  call.program = nullptr;
  try {
    communicator.prepare(call);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "test: this transport has no all_reduce of its own for fp32");
  }
}

// Rank r's input of execution k is (r + 1) (i + k) at place i: N (N + 1) / 2 times (i + k) is added each time.
template <class Element>
void check_accumulation(ElementType type, Algorithm algorithm, std::int64_t ranks) {
  constexpr std::int64_t kElements = 101, kExecutions = 4, kBase = 1000;
  on_ranks({.ranks = ranks}, {}, [&](Communicator& communicator) {
    PreparedCall call = call_of({.algorithm = algorithm,
                                 .kind = Collective::reduce_scatter,
                                 .ranks = ranks,
                                 .parts = 2,
                                 .inner = algorithm == Algorithm::hierarchical ? ranks : 0},
                                kElements, type);
    call.accumulate = true;
    call.segments = 6;
    const std::int64_t rank = communicator.rank(), slots = call.spec.pieces / ranks;
    const auto begin = static_cast<std::int64_t>(slots_bytes(call, rank * slots) / sizeof(Element));
    const std::int64_t own = output_elements(call.spec, call.sizes, rank);
    std::mt19937 random(static_cast<std::uint32_t>(rank));
    ScatteredBuffer input(kElements, sizeof(Element), 6, random), output(own, sizeof(Element), 5, random);
    const auto bytes_of_values = [](std::int64_t count, const auto& value) {
      std::vector<std::byte> bytes(static_cast<std::size_t>(count) * sizeof(Element));
      for (std::int64_t i = 0; i < count; ++i) {
        const auto element = static_cast<Element>(value(i));
        std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof(Element), &element, sizeof(Element));
      }
      return bytes;
    };
    output.store(bytes_of_values(own, [&](std::int64_t i) { return kBase + i; }));
    Communicator::Prepared& prepared = communicator.prepare(call);
    for (std::int64_t k = 0; k < kExecutions; ++k) {
      input.store(bytes_of_values(kElements, [&](std::int64_t i) { return (rank + 1) * (i + k); }));
      communicator.wait(communicator.start(prepared, input.segments(), output.segments()));
    }
    EXPECT_EQ(output.load(), bytes_of_values(own,
                                             [&](std::int64_t i) {
                                               const std::int64_t places =
                                                   kExecutions * (begin + i) + kExecutions * (kExecutions - 1) / 2;
                                               return kBase + i + ranks * (ranks + 1) / 2 * places;
                                             }))
        << call.program->name << " rank " << rank << " of " << ranks;
  });
}

TEST(Accumulation, AddsEveryExecutionToWhatTheOutputHeld) {
  for (const std::int64_t ranks : {1, 2, 3, 4}) {
    for (const Algorithm algorithm : algorithms_for(Collective::reduce_scatter)) {
      check_accumulation<float>(ElementType::fp32, algorithm, ranks);
      check_accumulation<std::int64_t>(ElementType::i64, algorithm, ranks);
    }
  }
}

// What on_done of the last link of a chain leaves for the test; outlives both.
struct Chain {
  std::promise<void> over;
  std::vector<std::pair<Transport::Clock::time_point, Transport::Clock::time_point>> times;
  std::vector<Communicator::Prepared*> calls;
  std::vector<std::int64_t> data = std::vector<std::int64_t>(33, 1);
};

// Three calls, two of them on one queue, start each other ten times round without help of the calling thread. Each
// doubles the data of 2 ranks.
TEST(OnDone, StartsTheNextCallOfAChain) {
  constexpr std::size_t kExecutions = 30;
  on_ranks({.ranks = 2}, {}, [&](Communicator& communicator) {
    const auto chain = std::make_shared<Chain>();
    for (std::size_t i = 0; i < 3; ++i) {
      PreparedCall call = call_of({.ranks = 2, .in_place = true}, 33, ElementType::i64);
      call.queue = i == 0 ? 0 : 1;
      call.on_done = [chain, &communicator](auto began, auto ended) {
        chain->times.emplace_back(began, ended);
        if (chain->times.size() == kExecutions) return chain->over.set_value();
        communicator.start(*chain->calls[chain->times.size() % 3], nullptr, chain->data.data());
      };
      chain->calls.push_back(&communicator.prepare(call));
    }
    communicator.start(*chain->calls[0], nullptr, chain->data.data());
    chain->over.get_future().get();
    EXPECT_EQ(chain->data, std::vector<std::int64_t>(33, std::int64_t{1} << kExecutions));
    for (const auto& [began, ended] : chain->times) EXPECT_LE(began, ended);
    for (std::size_t i = 1; i < kExecutions; ++i) EXPECT_LE(chain->times[i - 1].second, chain->times[i].first);
  });
}

TEST(OnDone, StartsItselfAgain) {
  LocalWorld world({.ranks = 1});
  const auto chain = std::make_shared<Chain>();
  Communicator communicator(world.transport(0), {});
  PreparedCall call = call_of({.ranks = 1, .in_place = true}, 33, ElementType::i64);
  call.on_done = [chain, &communicator](auto began, auto ended) {
    chain->times.emplace_back(began, ended);
    if (chain->times.size() == 1000) return chain->over.set_value();
    communicator.start(*chain->calls[0], nullptr, chain->data.data());
  };
  chain->calls.push_back(&communicator.prepare(call));
  communicator.start(*chain->calls[0], nullptr, chain->data.data());
  chain->over.get_future().get();
}

TEST(OnDone, TwoCallsOfOneQueueBeginOneAfterTheOther) {
  on_ranks({.ranks = 2}, {}, [&](Communicator& communicator) {
    const auto chain = std::make_shared<Chain>();
    PreparedCall call = call_of({.ranks = 2, .in_place = true}, 33, ElementType::i64);
    call.on_done = [chain](auto began, auto ended) {
      chain->times.emplace_back(began, ended);
      if (chain->times.size() == 2) chain->over.set_value();
    };
    auto &first = communicator.prepare(call), &second = communicator.prepare(call);
    std::vector<std::int64_t> other(33, 1);
    communicator.start(first, nullptr, chain->data.data());
    communicator.start(second, nullptr, other.data());
    chain->over.get_future().get();
    EXPECT_LE(chain->times[0].second, chain->times[1].first);
  });
}

std::string words_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const RunFailed& failure) {
    return failure.what();
  }
  return "";
}

TEST(OnDone, WhatItThrowsFailsTheRunOnAllRanks) {
  std::vector<std::string> words(2);
  on_ranks({.ranks = 2}, {.timeout = std::chrono::hours(1)}, [&](Communicator& communicator) {
    const std::int64_t rank = communicator.rank();
    PreparedCall call = call_of({.ranks = 2, .in_place = true}, 100);
    if (rank == 0) call.on_done = [](auto, auto) { fail("the next layer is missing"); };
    Communicator::Prepared& prepared = communicator.prepare(call);
    std::vector<float> data(100);
    words[rank] = words_of([&] {
      while (true) communicator.wait(communicator.start(prepared, nullptr, data.data()));
    });
  });
  EXPECT_EQ(words[0], "the next layer is missing");
  EXPECT_NE(words[1].find("rank 0 was lost (it gave up: the next layer is missing)"), std::string::npos) << words[1];
}

TEST(Communicator, ARankThatCannotGoOnTellsTheOthers) {
  constexpr std::int64_t kRanks = 3;
  std::vector<std::string> words(kRanks);
  std::string repeated;
  std::barrier over(kRanks);  // one may be ready while others still wait for each other
  on_ranks({.ranks = kRanks}, {.timeout = std::chrono::hours(1)}, [&](Communicator& communicator) {
    const std::int64_t rank = communicator.rank();
    Communicator::Prepared& prepared = communicator.prepare(call_of({.ranks = kRanks, .in_place = true}, 100));
    std::vector<float> data(100);
    communicator.wait(communicator.start(prepared, nullptr, data.data()));
    over.arrive_and_wait();
    if (rank == 1) {
      communicator.fail("the loss of step 7 is not a number");
      communicator.fail("and more");
      repeated = words_of([&] { communicator.start(prepared, nullptr, data.data()); });
    }
    words[rank] = words_of([&] { communicator.wait(communicator.start(prepared, nullptr, data.data())); });
  });
  EXPECT_EQ(repeated, "the loss of step 7 is not a number");
  EXPECT_EQ(words[1], "the loss of step 7 is not a number");
  for (const std::size_t rank : {0U, 2U}) {
    EXPECT_NE(words[rank].find("rank 1 was lost (it gave up: the loss of step 7 is not a number)"), std::string::npos)
        << words[rank];
  }
}

TEST(Communicator, FailingEndsTheWaitOfAnotherThread) {
  LocalWorld world({.ranks = 2});
  Communicator communicator(world.transport(0), {.timeout = std::chrono::hours(1)});
  Communicator::Prepared& prepared = communicator.prepare(call_of({.ranks = 2, .in_place = true}, 100));
  std::vector<float> data(100);
  const auto handle = communicator.start(prepared, nullptr, data.data());
  std::thread other([&] { communicator.fail("stopped"); });
  EXPECT_EQ(words_of([&] { communicator.wait(handle); }), "stopped");
  other.join();
}

TEST(Communicator, AnyThreadMayStart) {
  constexpr std::int64_t kRounds = 20;
  on_ranks({.ranks = 2}, {}, [&](Communicator& communicator) {
    std::vector<Communicator::Prepared*> calls;
    for (std::int64_t queue = 0; queue < 4; ++queue) {
      PreparedCall call = call_of({.ranks = 2, .in_place = true}, 50, ElementType::i64);
      call.queue = queue;
      calls.push_back(&communicator.prepare(call));
    }
    std::vector<std::thread> threads;
    for (Communicator::Prepared* const call : calls) {
      threads.emplace_back([&communicator, call] {
        std::vector<std::int64_t> data(50, 1);
        for (std::int64_t round = 0; round < kRounds; ++round)
          communicator.wait(communicator.start(*call, nullptr, data.data()));
        EXPECT_EQ(data, std::vector<std::int64_t>(50, std::int64_t{1} << kRounds));
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

}  // namespace
}  // namespace weft
