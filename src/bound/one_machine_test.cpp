#include "bound/one_machine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace weft {
namespace {

double total(const Job& job) {
  return job.head + job.work + job.tail;
}

double over_all_subsets(const std::vector<Job>& jobs) {
  double largest = 0;
  for (std::uint32_t subset = 1; subset < 1u << jobs.size(); ++subset) {
    double head = 1e9, work = 0, tail = 1e9;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if ((subset >> i & 1u) == 0) continue;
      head = std::min(head, jobs[i].head);
      work += jobs[i].work;
      tail = std::min(tail, jobs[i].tail);
    }
    largest = std::max(largest, head + work + tail);
  }
  return largest;
}

TEST(OneMachine, IsTheBestSubsetNotAllJobs) {
  // All three: 0 + 9 + 0. The second alone: 5 + 3 + 6 = 14; with the third: 5 + 6 + 0.
  std::vector<Job> jobs{{0, 3, 0}, {5, 3, 6}, {5, 3, 0}};
  const Job bound = one_machine_bound(jobs);
  EXPECT_EQ(bound.head, 5);
  EXPECT_EQ(bound.work, 3);
  EXPECT_EQ(bound.tail, 6);
}

TEST(OneMachine, WithoutJobsIsNothing) {
  std::vector<Job> none;
  EXPECT_EQ(total(one_machine_bound(none)), 0);
}

TEST(OneMachine, IsTheLargestOverAllSubsetsOfRandomJobs) {
  std::mt19937 random(4);
  for (int round = 0; round < 3000; ++round) {
    std::vector<Job> jobs(1 + random() % 8);
    const auto number = [&] { return static_cast<double>(random() % 12); };
    for (Job& job : jobs) job = {number(), number(), number()};
    const double expected = over_all_subsets(jobs);
    ASSERT_EQ(total(one_machine_bound(jobs)), expected) << "round " << round;
  }
}

}  // namespace
}  // namespace weft
