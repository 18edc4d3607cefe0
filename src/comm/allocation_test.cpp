// No memory is allocated once collectives have run for a while: every operator new of this program is counted.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstdlib>
#include <new>

#include "cluster/presets.hpp"
#include "comm/tcp/tcp_transport.hpp"
#include "comm/tcp/test_threads.hpp"
#include "comm/test_ranks.hpp"
#include "comm/test_scattered.hpp"

namespace {

std::atomic<std::int64_t> allocations{0};

}  // namespace

// Inlined, g++ 12 takes malloc and delete for a mismatched pair.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}

// std::stable_sort asks this way, and gives back through the delete below.
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}

[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace weft {
namespace {

using namespace local_ranks;

constexpr std::int64_t kRanks = 2;

struct Counted {
  std::barrier<> together{kRanks};
  std::int64_t in_block = -1;  // allocations of a block; written by rank 0
};

// Two scattered calls on two queues; the second starts a third from on_done. What a transport keeps for messages grows
// with the most that were ever under way, so some blocks of executions may allocate, but not all.
void run_until_a_block_allocates_nothing(Communicator& communicator, Counted& counted) {
  constexpr std::int64_t kBlocks = 30, kExecutions = 150;
  std::mt19937 random(5);
  PreparedCall reduce = call_of({.ranks = kRanks, .in_place = true}, 301);
  reduce.segments = 7;
  PreparedCall scatter = call_of({.kind = Collective::reduce_scatter, .ranks = kRanks, .parts = 2}, 301);
  scatter.segments = 7;
  scatter.accumulate = true;
  scatter.queue = 1;
  ScatteredBuffer whole(301, 4, 7, random), input(301, 4, 7, random), chained(301, 4, 3, random);
  ScatteredBuffer output(output_elements(scatter.spec, scatter.sizes, communicator.rank()), 4, 4, random);
  PreparedCall behind = reduce;
  behind.queue = 2;
  Communicator::Prepared& third = communicator.prepare(behind);
  std::atomic<std::uint64_t> turn = 0;
  scatter.on_done = [&](auto, auto) { turn = communicator.start(third, {}, chained.segments()).turn; };
  Communicator::Prepared &first = communicator.prepare(reduce), &second = communicator.prepare(scatter);
  for (std::int64_t block = 0; block < kBlocks && counted.in_block != 0; ++block) {
    counted.together.arrive_and_wait();
    const std::int64_t before = allocations;
    for (std::uint64_t k = 1; k <= kExecutions; ++k) {
      const auto one = communicator.start(first, {}, whole.segments());
      const auto two = communicator.start(second, input.segments(), output.segments());
      communicator.wait(one);
      communicator.wait(two);
      while (turn < static_cast<std::uint64_t>(block * kExecutions) + k) std::this_thread::yield();
      communicator.wait({&third, turn});
    }
    counted.together.arrive_and_wait();
    if (communicator.rank() == 0) counted.in_block = allocations - before;
    counted.together.arrive_and_wait();
  }
}

TEST(SteadyState, AllocatesNothing) {
  Counted counted;
  on_ranks({.ranks = kRanks}, {},
           [&](Communicator& communicator) { run_until_a_block_allocates_nothing(communicator, counted); });
  EXPECT_EQ(counted.in_block, 0);
}

TEST(SteadyState, AllocatesNothingPaced) {
  const Cluster cluster(parse_cluster("local:2,nic=1GB/s"));
  Counted counted;
  on_ranks({.ranks = kRanks, .cluster = &cluster}, {},
           [&](Communicator& communicator) { run_until_a_block_allocates_nothing(communicator, counted); });
  EXPECT_EQ(counted.in_block, 0);
}

TEST(SteadyState, AllocatesNothingOverTcp) {
  Counted counted;
  tcp::TestRoot root;
  tcp::expect_no_errors(tcp::run_threads(kRanks, [&](std::int64_t rank) {
    TcpOptions options{.rank = rank, .size = kRanks, .root = root.address, .secret = "test"};
    options.root_listener = root.take_listener(rank);
    Communicator communicator(make_tcp_transport(options), {});
    run_until_a_block_allocates_nothing(communicator, counted);
  }));
  EXPECT_EQ(counted.in_block, 0);
}

}  // namespace
}  // namespace weft
