// Longest chains of smallest parts between an operation v and all others, for several v at once: what takes the time is
// reading the edges, and they are read once for all of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bound/bound.hpp"

namespace weft {

class Chains {
 public:
  static constexpr std::size_t kMaxStarts = 8;  // v at once

  // `problem` must outlive this.
  explicit Chains(const BoundProblem& problem);

  // Finds the chains from and to each of `starts`, at most kMaxStarts of them; head and tail name them by their index.
  void find(std::span<const std::int32_t> starts);

  // By total distance 0 or 1; negative: there is no way. Heads count the nodes from v on but not `node`, tails those
  // after `node` but not v.
  double head(int distance, std::int32_t node, std::size_t start) const { return heads_[distance][at(node)][start]; }
  double tail(int distance, std::int32_t node, std::size_t start) const { return tails_[distance][at(node)][start]; }

  // By node: no chain from there has more within this iteration and the next. So no head and tail of one node have more
  // either, as seen from v = that node.
  std::vector<double> longest_from_each() const;

 private:
  // Two starts fill a register of every machine; GCC and Clang know such pairs. A loop over plain numbers is not turned
  // into instructions on pairs.
  using Pair [[gnu::vector_size(2 * sizeof(double))]] = double;
  struct Lanes {
    Pair pairs[kMaxStarts / 2];
    double operator[](std::size_t start) const { return pairs[start / 2][start % 2]; }
    void set(std::size_t start, double value) { pairs[start / 2][start % 2] = value; }
  };
  // Each node has its neighbours over the edges of one distance.
  struct Links {
    std::vector<std::int32_t> begin, nodes;
    std::vector<std::int32_t> order;  // those with neighbours, in the order in which chains pass through them
    std::span<const std::int32_t> of(std::int32_t node) const {
      return std::span(nodes).subspan(at(begin[at(node)]), at(begin[at(node) + 1] - begin[at(node)]));
    }
  };
  static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }
  Links links(std::int32_t distance, bool incoming) const;
  void sort_nodes();
  void extend(const Links& links, const std::vector<Lanes>& from, std::vector<Lanes>& to) const;

  const BoundProblem& p_;
  std::vector<double> parts_;        // by node
  Links in_[2], out_[2];             // by distance
  std::vector<std::int32_t> order_;  // edges of distance 0 lead forwards in it
  std::vector<Lanes> heads_[2], tails_[2];
};

}  // namespace weft
