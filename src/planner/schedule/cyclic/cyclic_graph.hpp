// A cyclic problem made ready to be walked: neighbours of every operation, and sequences.
//
// A *sequence* names all operations so that nothing stands before what it waits for within the iteration. Every set of
// orders that does not wait for itself is what a sequence leaves of each lane and link, and every sequence gives such a
// set. The searches move operations within a sequence: they never meet a deadlock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "planner/schedule/cyclic/cyclic_problem.hpp"

namespace weft {

struct CyclicNeighbour {
  std::int32_t operation = 0;
  std::int32_t distance = 0;
};

class CyclicGraph {
 public:
  // Indices out of range are a broken invariant.
  explicit CyclicGraph(const CyclicProblem& problem);

  static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

  std::size_t size() const { return ns_.size(); }
  std::int32_t lanes() const { return lanes_; }
  std::int32_t links() const { return links_; }
  // Lanes and then links, in one count: what takes one operation at a time.
  std::size_t resources() const { return at(lanes_ + links_); }
  std::int32_t lane(std::int32_t operation) const { return lane_[at(operation)]; }
  // Its link as a resource; -1: none.
  std::int32_t link(std::int32_t operation) const { return link_[at(operation)]; }
  double ns(std::int32_t operation) const { return ns_[at(operation)]; }
  double total_ns() const { return total_ns_; }
  // The most that one resource has to do.
  double busiest_ns() const { return busiest_ns_; }

  // Edges of both distances; fixed orders are edges of distance 0.
  std::span<const CyclicNeighbour> before(std::int32_t operation) const { return in_.of(operation); }
  std::span<const CyclicNeighbour> after(std::int32_t operation) const { return out_.of(operation); }

  // The same with time reversed: who waited is waited for. Its sequences are this one's, read from the end.
  CyclicGraph backwards() const;

  // Some sequence; nothing where edges of distance 0 form a cycle.
  std::optional<std::vector<std::int32_t>> any_sequence() const;
  // The sequence of these orders; nothing where they contradict the edges or each other. Broken orders (not each
  // operation once, in its lane and on its link) are a broken invariant.
  std::optional<std::vector<std::int32_t>> sequence_of(const LaneOrders& orders) const;
  LaneOrders orders_of(std::span<const std::int32_t> sequence) const;

 private:
  struct Lists {
    std::vector<std::int32_t> begin;
    std::vector<CyclicNeighbour> neighbours;
    std::span<const CyclicNeighbour> of(std::int32_t operation) const {
      return std::span(neighbours)
          .subspan(at(begin[at(operation)]), at(begin[at(operation) + 1] - begin[at(operation)]));
    }
  };
  static Lists lists(std::size_t operations, const std::vector<CyclicEdge>& edges, bool incoming);
  std::optional<std::vector<std::int32_t>> sorted(const std::vector<std::vector<std::int32_t>>& chains) const;

  std::int32_t lanes_ = 0, links_ = 0;
  std::vector<std::int32_t> lane_, link_;
  std::vector<double> ns_;
  double total_ns_ = 0, busiest_ns_ = 0;
  Lists in_, out_;
};

}  // namespace weft
