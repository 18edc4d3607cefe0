// Steady-state steps allocate no communication memory: every operator new of threads that do not compute is counted.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "exec/test_training.hpp"

namespace {

std::atomic<std::int64_t> allocations_beside_compute{0};

}  // namespace

// Inlined, g++ 12 takes malloc and delete for a mismatched pair.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (!weft::test::computes_here) allocations_beside_compute.fetch_add(1, std::memory_order_relaxed);
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

// What a transport keeps for messages grows with the most that were ever under way, so some steps may allocate; but for
// many steps nothing does, on any rank.
TEST(SteadySteps, AllocateNoCommunicationMemory) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  constexpr std::int64_t kManySteps = 60, kQuiet = 15;
  for (const test::TinyCase& c : {test::TinyCase{"priority", 1, 2}, test::TinyCase{"fsdp", 3, 3}}) {
    SCOPED_TRACE(c.name());
    std::vector<std::int64_t> seen;
    seen.reserve(kManySteps);
    const test::TinyRun tiny(c);
    tiny.train(kManySteps, [&](auto, auto, const auto&) { seen.push_back(allocations_beside_compute); });
    ASSERT_EQ(std::ssize(seen), kManySteps);
    EXPECT_GT(seen.front(), 0);  // it does count
    std::int64_t quiet = 0, longest = 0;
    for (std::size_t step = 1; step < seen.size(); ++step) {
      quiet = seen[step] == seen[step - 1] ? quiet + 1 : 0;
      longest = std::max(longest, quiet);
    }
    EXPECT_GE(longest, kQuiet);
  }
}

}  // namespace
}  // namespace weft
