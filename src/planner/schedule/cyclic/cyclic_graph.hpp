// Prepares a cyclic problem for walks: it knows the neighbours of every operation, and sequences.
//
// A *sequence* lists all operations so that none stands before what it waits for within the iteration. Every set of
// orders without a deadlock is a sequence restricted to each queue and link, and every sequence gives such a set. The
// searches move operations within a sequence, so they never meet a deadlock.
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
  std::int32_t queues() const { return queues_; }
  std::int32_t links() const { return links_; }
  // Resources take one operation at a time: the queues, then the links, numbered together.
  std::size_t resources() const { return at(queues_ + links_); }
  std::int32_t queue(std::int32_t operation) const { return queue_[at(operation)]; }
  // Returns the number of its link among the resources, or -1 where it uses none.
  std::int32_t link(std::int32_t operation) const { return link_[at(operation)]; }
  double ns(std::int32_t operation) const { return ns_[at(operation)]; }
  double total_ns() const { return total_ns_; }
  // Returns the resource with the most work, and its work.
  std::int32_t busiest() const { return busiest_; }
  double busiest_ns() const { return busiest_ns_; }

  // Edges of both distances; fixed orders are edges of distance 0.
  std::span<const CyclicNeighbour> before(std::int32_t operation) const { return in_.of(operation); }
  std::span<const CyclicNeighbour> after(std::int32_t operation) const { return out_.of(operation); }

  // Returns the same problem with time reversed: every edge is turned round. Its sequences are this one's, read from
  // the end.
  CyclicGraph backwards() const;

  // Returns some sequence, or nothing where edges of distance 0 form a cycle.
  std::optional<std::vector<std::int32_t>> any_sequence() const;
  // Returns the sequence of these orders, or nothing where they contradict the edges or each other. Orders that do not
  // hold every operation once, in its queue and on its link, are a broken invariant.
  std::optional<std::vector<std::int32_t>> sequence_of(const QueueOrders& orders) const;
  QueueOrders orders_of(std::span<const std::int32_t> sequence) const;

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

  std::int32_t queues_ = 0, links_ = 0, busiest_ = 0;
  std::vector<std::int32_t> queue_, link_;
  std::vector<double> ns_;
  double total_ns_ = 0, busiest_ns_ = 0;
  Lists in_, out_;
};

}  // namespace weft
