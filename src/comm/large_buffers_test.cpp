#include <gtest/gtest.h>

#include "cluster/presets.hpp"
#include "comm/test_large.hpp"
#include "comm/test_ranks.hpp"

namespace weft {
namespace {

// Disabled where nobody asks for it: 9 GB of memory. ctest -L slow does.
TEST(LargeBuffers, DISABLED_ProgramsCarryBuffersLargerThanTwoGibibytes) {
  if (!large_buffers::memory_suffices()) GTEST_SKIP() << "less than 10 GiB of memory are free";
  local_ranks::on_ranks({.ranks = 2}, {}, large_buffers::expect_large_programs_work);
}

TEST(LargeBuffers, DISABLED_EmulatedLinksCarryBuffersLargerThanTwoGibibytes) {
  if (!large_buffers::memory_suffices()) GTEST_SKIP() << "less than 10 GiB of memory are free";
  const Cluster cluster(parse_cluster("local:2,nic=4GB/s"));
  local_ranks::on_ranks({.ranks = 2, .cluster = &cluster}, {}, large_buffers::expect_large_programs_work);
}

}  // namespace
}  // namespace weft
