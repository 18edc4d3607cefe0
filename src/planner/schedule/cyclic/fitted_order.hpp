// A sequence with end times that fit a period. Moves that no longer fit are undone. A move costs as much time as the
// operations that it touches, not as the whole step; most moves fail, and they fail after touching few operations.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "planner/schedule/cyclic/cyclic_graph.hpp"
#include "planner/schedule/cyclic/sequence_moves.hpp"

namespace weft {

class FittedOrder {
 public:
  // `graph` must outlive this.
  explicit FittedOrder(const CyclicGraph& graph);

  // `ends`: the end times of the sequence when it repeats with some period, as PeriodSearch::ends gives them.
  void set(std::vector<std::int32_t> sequence, std::vector<double> ends);

  // Carries out the move and returns true if the sequence then repeats within `period`; otherwise changes nothing.
  // `period` must not be below the period of the present end times.
  bool try_move(const SequenceMove& move, double period);

  const std::vector<std::int32_t>& sequence() const { return sequence_; }
  std::int64_t visits() const { return visits_; }

 private:
  enum Kind : std::size_t { queue, link };
  struct Ring {
    std::vector<std::int32_t> before, after;  // by operation, on the same queue or link, around the iteration; -1: none
  };
  // A resource whose operations change places: those around the part that is rearranged; itself part of it where there
  // is nothing else.
  struct Touched {
    std::int32_t resource = 0, before = -1, after = -1;
    Kind kind = queue;
  };

  static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }
  std::int32_t resource(Kind kind, std::int32_t i) const { return kind == queue ? graph_.queue(i) : graph_.link(i); }
  std::int32_t distance(std::int32_t from, std::int32_t to) const { return place_[at(from)] < place_[at(to)] ? 0 : 1; }

  void find_touched(std::size_t first, std::size_t length);
  void arrange(std::size_t first, std::span<const std::int32_t> operations);
  void look_at(std::int32_t operation, bool next_iteration);
  bool settle(double period);
  bool raise(std::int32_t operation, double period);
  void look_at_followers(std::int32_t operation);
  bool cycle_among_raised();
  void forget(bool undo);

  const CyclicGraph& graph_;
  double tolerance_ = 0;
  SequenceMover mover_;
  std::vector<std::int32_t> sequence_, place_;
  std::array<Ring, 2> rings_;
  std::vector<double> ends_;
  std::vector<Touched> touched_;
  std::vector<std::int32_t> touched_at_;  // by resource: in touched_; -1: is not
  std::vector<std::int32_t> old_part_;
  std::vector<std::pair<std::int32_t, std::int32_t>>
      part_ends_;  // by entry of touched_: the first and last in the part
  // Places to look at in this iteration, and operations in the next.
  std::priority_queue<std::int32_t, std::vector<std::int32_t>, std::greater<>> places_;
  std::vector<std::int32_t> later_;
  std::vector<char> listed_;                             // by operation: bit 0 in places_, bit 1 in later_
  std::vector<std::int32_t> raised_by_;                  // by operation; -1: not raised
  std::vector<std::pair<std::int32_t, double>> raised_;  // with the end it had
  std::vector<std::int64_t> mark_;                       // by operation, in cycle_among_raised
  std::int64_t last_mark_ = 0;
  std::int64_t visits_ = 0;
};

}  // namespace weft
