// Writes out the times of every operation from the folded result.
#include "sim/engine.hpp"

#include <algorithm>

#include "sim/simulate_folded.hpp"

namespace weft {
namespace {

std::vector<SimTimes> starts_and_ends(const Folding& folding, const FoldedIteration& iteration) {
  std::vector<SimTimes> times(folding.alone_before.size() - 1);
  for_each_stretch(folding, iteration, [&](const Stretch& stretch) {
    const std::size_t first = stretch.first;
    const auto end = first + static_cast<std::size_t>(stretch.count);
    for (std::size_t i = first; i < end; ++i) {
      times[i].start = stretch.start + Nanos{folding.alone_before[i] - folding.alone_before[first]};
      times[i].end = stretch.slowed ? stretch.end
                                    : stretch.start + Nanos{folding.alone_before[i + 1] - folding.alone_before[first]};
    }
  });
  return times;
}

// An operation is issued when what orders it has ended, and ready when everything else it waits for has.
void add_waits(const SimProblem& problem, std::vector<std::vector<SimTimes>>& iterations) {
  for (std::size_t k = 0; k < iterations.size(); ++k) {
    for (std::size_t i = 0; i < problem.operations.size(); ++i) {
      SimTimes& times = iterations[k][i];
      for (std::int32_t e = problem.edge_begin[i]; e < problem.edge_begin[i + 1]; ++e) {
        const Dependency& edge = problem.edges[e];
        const std::size_t distance = edge.distance;
        if (distance > k) continue;
        Nanos& moment = edge.order ? times.issued : times.ready;
        moment = std::max(moment, iterations[k - distance][edge.operation].end);
      }
    }
  }
}

}  // namespace

SimResult simulate(const SimProblem& problem, const SimOptions& options) {
  const FoldedResult folded = simulate_folded(problem, options);
  SimResult result;
  for (const FoldedIteration& iteration : folded.iterations) {
    result.iterations.push_back(starts_and_ends(folded.folding, iteration));
  }
  add_waits(problem, result.iterations);
  result.steady_first = folded.steady_first;
  result.periods = folded.periods;
  result.steady_begin = folded.steady_begin;
  result.period_ns = folded.period_ns;
  result.repeats = folded.repeats;
  result.work = folded.work;
  return result;
}

}  // namespace weft
