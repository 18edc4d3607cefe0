// Finds when a repeating step has settled: the start and end times of one iteration, relative to its first start, equal
// those of an earlier one, and the iterations after the two agree as well.
#pragma once

#include <vector>

#include "sim/simulate_folded.hpp"

namespace weft {

class SteadyState {
 public:
  // `folding` must outlive this.
  explicit SteadyState(const Folding& folding) : folding_(folding) {}

  // Callers call it when all times of iteration k are known. Returns true when enough has been seen: a repetition and
  // as many more iterations as overlap (at least one), or max_iterations and one more.
  bool completed(std::int32_t k, const FoldedIteration& times, std::int32_t max_iterations);
  // Fills in everything but the folding.
  FoldedResult result(std::vector<FoldedIteration> iterations) const;

 private:
  struct Seen {
    std::int64_t first = 0;                     // earliest start
    std::int64_t length = 0;                    // latest end after it
    std::vector<std::int64_t> starts, lengths;  // of nodes; starts relative to the first
    std::vector<SlowedOperation> slowed;
  };
  bool alike(std::int32_t a, std::int32_t b) const;
  std::int64_t elapsed(std::int32_t from, std::int32_t to) const;
  void look_for_repetition(std::int32_t k);
  Nanos longest_shift(const FoldedIteration& from, const FoldedIteration& to) const;

  const Folding& folding_;
  std::vector<Seen> seen_;   // by iteration; times are dropped when too old to compare
  std::int32_t every_ = 0;   // the pattern repeats after that many iterations; 0: not seen
  std::int32_t enough_ = 0;  // the iteration to stop after
};

}  // namespace weft
