// Finds how long one machine needs for jobs that cannot start before their heads have passed, and whose tails follow
// them. The machine may switch between jobs at any time, so the result is a lower bound for a machine that may not.
#pragma once

#include <vector>

namespace weft {

struct Job {
  double head = 0, work = 0, tail = 0;
};

// Returns the largest of min head + sum of work + min tail over all subsets of the jobs, and the three terms where it
// is reached. It is the makespan of Jackson's preemptive schedule (Carlier 1982, "The one-machine sequencing problem"):
// always work on the job that may run and has the longest tail. O(n log n); sorts `jobs`.
Job one_machine_bound(std::vector<Job>& jobs);

}  // namespace weft
