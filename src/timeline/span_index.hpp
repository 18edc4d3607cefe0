// Finds the span of an (operation, iteration) and follows what it waited for. The accounting, the critical path and
// the trace all walk a timeline backwards; this is the one place that says what "waited for" means.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "timeline/timeline.hpp"

namespace weft {

class SpanIndex {
 public:
  // The timeline must pass check_timeline, know its dependencies and outlive the index. Throws Error where an
  // (operation, iteration) has two spans or the dependencies of one iteration form a cycle.
  explicit SpanIndex(const Timeline& timeline);

  // Index into Timeline::spans; -1: absent. `iteration` is wide so that "iteration - distance" cannot overflow.
  std::int32_t find(std::int32_t operation, std::int64_t iteration) const;

  // The span that ended last among those that this one waited for; of a transfer, among those that any member waited
  // for. Ties: the lowest operation, then the latest iteration. -1: none. Remembered, so a second walk is cheap.
  std::int32_t last_predecessor(std::int32_t span);

  // The operations that are one transfer with this one, itself included, ascending.
  std::span<const std::int32_t> members(std::int32_t operation) const;

  // What the operation itself waits for.
  std::span<const Dependency> dependencies(std::int32_t operation) const;

 private:
  void group_transfers();
  void sort_spans();
  void check_acyclic() const;
  std::int32_t search_predecessors(std::span<const std::int32_t> member_operations, std::int32_t iteration) const;

  const Timeline& timeline_;
  std::vector<std::int32_t> group_of_;     // by operation
  std::vector<std::int32_t> group_begin_;  // by group, into members_
  std::vector<std::int32_t> members_;
  std::vector<std::int32_t> order_;            // spans by iteration, then operation
  std::vector<std::int32_t> iterations_;       // that occur, ascending
  std::vector<std::int32_t> iteration_begin_;  // by iterations_, into order_
  std::vector<std::int32_t> remembered_;       // last_predecessor by span
};

}  // namespace weft
