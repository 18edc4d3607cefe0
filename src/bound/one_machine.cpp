#include "bound/one_machine.hpp"

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>

namespace weft {
namespace {

// Returns the tail of the job that ends last, its tail included, in Jackson's preemptive schedule.
double deciding_tail(const std::vector<Job>& by_head) {
  std::priority_queue<std::pair<double, double>> waiting;  // tail, work left
  double now = 0, longest = -1, tail_of_longest = 0;
  for (std::size_t next = 0; next < by_head.size() || !waiting.empty();) {
    if (waiting.empty()) now = std::max(now, by_head[next].head);
    for (; next < by_head.size() && by_head[next].head <= now; ++next) {
      waiting.emplace(by_head[next].tail, by_head[next].work);
    }
    const auto [tail, left] = waiting.top();
    waiting.pop();
    const double until = next < by_head.size() ? by_head[next].head : std::numeric_limits<double>::infinity();
    if (now + left > until) {
      waiting.emplace(tail, left - (until - now));
      now = until;
      continue;
    }
    now += left;
    if (now + tail > longest) {
      longest = now + tail;
      tail_of_longest = tail;
    }
  }
  return tail_of_longest;
}

}  // namespace

Job one_machine_bound(std::vector<Job>& jobs) {
  std::sort(jobs.begin(), jobs.end(), [](const Job& a, const Job& b) { return a.head < b.head; });
  Job bound;
  bound.tail = deciding_tail(jobs);
  // Those are the jobs with at least that tail, from the last gap between them on.
  for (const Job& job : jobs) {
    if (job.tail < bound.tail) continue;
    if (job.head >= bound.head + bound.work) {
      bound.head = job.head;
      bound.work = 0;
    }
    bound.work += job.work;
  }
  return bound;
}

}  // namespace weft
