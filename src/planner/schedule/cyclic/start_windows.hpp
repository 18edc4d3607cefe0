// How far apart the starts of a small problem's operations must be for a given period, with some pairs of its
// operations put in order: the inside of exact_order.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "planner/schedule/cyclic/cyclic_graph.hpp"
#include "planner/schedule/cyclic/exact_order.hpp"

namespace weft {

// start(j) - start(i) >= apart(i, j) for all i and j, in one iteration; every constraint that is added is carried to
// all pairs at once (the closure that Floyd and Warshall compute). A copy is a node of the search tree.
class StartWindows {
 public:
  // `graph` must outlive this and have at most kMaxExactOperations. Whether the period is possible at all: feasible().
  StartWindows(const CyclicGraph& graph, double period);

  bool feasible() const { return feasible_; }
  // i ends before j starts, and j before i of the next iteration. False: that was known.
  bool put_before(std::int32_t i, std::int32_t j);
  bool is_before(std::int32_t i, std::int32_t j) const { return (after_[at(i)] >> j & 1U) != 0; }
  // How many follow i within the iteration. More than follow any of those.
  int followers(std::int32_t i) const { return std::popcount(after_[at(i)]); }
  // What is left between the two if i is put before j; negative: the period does not allow it.
  double slack_before(std::int32_t i, std::int32_t j) const;
  // No operation may be v, for which those on one resource do not fit between the earliest that v lets them start and
  // the latest that v lets them end.
  bool work_fits() const;

 private:
  static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }
  bool add(std::int32_t from, std::int32_t to, double length);
  bool add_order(std::int32_t from, std::int32_t to);
  bool work_fits(std::int32_t v, std::uint32_t members) const;

  const CyclicGraph* graph_;
  double period_, tolerance_;
  bool feasible_ = true;
  std::array<std::array<double, kMaxExactOperations>, kMaxExactOperations> apart_;
  std::array<std::uint32_t, kMaxExactOperations> after_;  // bit j of i: j follows i within the iteration
};

}  // namespace weft
