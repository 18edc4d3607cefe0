// How long one machine needs for jobs that may not start before their heads and have tails to go after them. The
// machine may switch between jobs: a lower bound, whatever it really does.
#pragma once

#include <vector>

namespace weft {

struct Job {
  double head = 0, work = 0, tail = 0;
};

// The largest of min head + sum of work + min tail over all subsets of the jobs, and the three terms where it is
// reached. It is the makespan of Jackson's preemptive schedule (Carlier 1982, "The one-machine sequencing problem"):
// always work on the job that may run and has the longest tail. O(n log n); sorts `jobs`.
Job one_machine_bound(std::vector<Job>& jobs);

}  // namespace weft
