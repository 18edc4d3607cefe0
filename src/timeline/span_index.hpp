// Finds the execution of an (operation, iteration) and follows what it waited for. The accounting, the critical path
// and the trace all walk a timeline backwards; this is the one place that says what "waited for" means.
//
// Executions are numbered: first Timeline::spans, then the operations of Timeline::folded one after the other. Folded
// ones are never written out.
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

  // -1: absent. `iteration` is wide so that "iteration - distance" cannot overflow.
  std::int32_t find(std::int32_t operation, std::int64_t iteration) const;

  // What ended last among those that this execution waited for; of a transfer, among those that any member waited for.
  // Ties: the lowest operation, then the latest iteration. -1: none. Remembered, so a second walk is cheap.
  std::int32_t last_predecessor(std::int32_t execution);

  // When and what; a folded execution counts as issued and ready when it starts.
  Span operator[](std::int32_t execution) const { return place(execution).span; }

  // An execution, and the first of the folded span that it is part of; itself where it is not folded. Walking back from
  // one leads to the other through all between.
  struct Place {
    Span span;
    std::int32_t first = 0;
    Nanos first_start;
  };
  Place place(std::int32_t execution) const;
  // The number of the first execution of Timeline::folded[i].
  std::int32_t folded_begin(std::size_t i) const { return folded_begin_[i]; }
  Nanos folded_end(std::size_t i) const;

  // The operations that are one transfer with this one, itself included, ascending.
  std::span<const std::int32_t> members(std::int32_t operation) const;

  // What the operation itself waits for.
  std::span<const Dependency> dependencies(std::int32_t operation) const;

 private:
  // Consecutive operations of an iteration: a span, or a folded one.
  struct Item {
    std::int32_t iteration, first, count, execution;
  };
  void group_transfers();
  void number_executions();
  void remember_places();
  void check_acyclic() const;
  std::vector<std::int32_t> find_walked_through() const;
  bool is_folded(std::int32_t execution) const { return execution >= folded_from_; }
  std::size_t folded_of(std::int32_t execution) const;
  std::int32_t search_predecessors(std::span<const std::int32_t> member_operations, std::int32_t iteration) const;

  const Timeline& timeline_;
  std::vector<std::int32_t> group_of_;     // by operation
  std::vector<std::int32_t> group_begin_;  // by group, into members_
  std::vector<std::int32_t> members_;
  std::vector<Item> items_;                    // by iteration, then operation
  std::vector<std::int32_t> iterations_;       // that occur, ascending
  std::vector<std::int32_t> iteration_begin_;  // by iterations_, into items_
  std::int32_t folded_from_ = 0;               // the first execution that is folded
  std::vector<std::int32_t> folded_begin_;     // by Timeline::folded, and the end
  // Where to begin to look: for every kStep operations of each iteration an item that begins no later (the iteration's
  // first where none does), and for every kStep folded executions the folded span of the first.
  static constexpr std::int32_t kStep = 32;
  std::vector<std::int32_t> item_near_, folded_near_;
  std::vector<std::int64_t> alone_before_;  // [i]: sum of `alone` of operations 0 .. i - 1; where something is folded
  std::vector<std::int32_t> remembered_;    // last_predecessor by span, then by folded span
};

}  // namespace weft
