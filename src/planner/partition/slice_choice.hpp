// Chooses into which slices sequences are cut that pass a pipeline (Li et al. 2021, TeraPipe): later
// slices meet more keys, so they are shorter; fewer and longer ones lose less to small kernels, more and shorter ones
// less to filling and draining.
#pragma once

#include <cstdint>
#include <vector>

#include "cost/profile.hpp"
#include "graph/layout.hpp"

namespace weft {

// Lengths are counted in units, the smallest slice that is looked at.
struct SliceProblem {
  std::int64_t units = 1;  // of a sequence
  std::int64_t stages = 1;
  std::int64_t sequences = 1;  // of a step, one behind the other
  // What a slice takes on the slowest stage, forward and back, by its begin and its length - 1.
  std::vector<std::vector<std::int64_t>> times;
};

// Returns the lengths of the slices with the least step: that of one stage, sequences * sum of t_i, and the longest
// slice once more for every other stage, (stages - 1) max t_i. For each value of the latter the sum is minimized by
// dynamic programming over where slices begin.
std::vector<std::int64_t> best_slices(const SliceProblem& problem);

// Returns the tokens of each slice by modelled cost, or nothing where whole sequences are best. The layout's own slices
// are not looked at; but for them it must be valid.
std::vector<std::int64_t> choose_slices(const Transformer& model, const Cluster& cluster, const Layout& layout,
                                        const Profile& profile);

}  // namespace weft
