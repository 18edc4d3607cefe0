// `tree`: two binary trees below the root, each of which carries half of the pieces (Sanders, Speck, Traeff, "Two-tree
// algorithms for full bandwidth broadcast, reduction and scan", 2009; NCCL's trees).
//
// The other M = N-1 ranks have numbers 1..M, of which odd ones are leaves and even ones inner nodes. In the second tree
// every number is one higher (M becomes 1), so an inner node of one tree is a leaf of the other and sends about K bytes
// in all, whatever N is. The root serves the tops of both trees. Depth: ceil(log2 N) messages.
#include <bit>

#include "collective/algorithm/generators.hpp"
#include "collective/algorithm/phases.hpp"

namespace weft {
namespace {

struct Edge {
  std::int64_t parent, child;
};

// Number 0 is the root, above the top of the tree over 1..last.
std::int64_t parent_of(std::int64_t number, std::int64_t last) {
  const std::int64_t bit = number & -number;
  const std::int64_t right_of = number ^ bit;          // the parent where this is a right child
  const std::int64_t left_of = right_of | (bit << 1);  // where it is a left child
  return left_of <= last ? left_of : right_of;
}

// Parents before their children: the level of a number is the count of its trailing zeros.
std::vector<Edge> edges_downwards(const ProgramRequest& request, std::int64_t tree) {
  const std::int64_t last = request.ranks - 1;
  const auto rank_of = [&](std::int64_t number) {
    const std::int64_t place = number == 0 ? 0 : wrapped(number - 1 - tree, last) + 1;
    return wrapped(request.root + place, request.ranks);
  };
  std::vector<Edge> edges;
  for (auto bit = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(last))); bit > 0; bit /= 2) {
    for (std::int64_t number = bit; number <= last; number += 2 * bit) {
      edges.push_back({rank_of(parent_of(number, last)), rank_of(number)});
    }
  }
  return edges;
}

}  // namespace

Program double_tree_program(const ProgramRequest& request) {
  ProgramBuilder builder = builder_for(request, 2 * request.parts);
  Holdings holdings(builder);
  for (const bool upwards : {true, false}) {
    if (upwards && request.kind == Collective::broadcast) continue;
    if (!upwards && request.kind == Collective::reduce) continue;
    for (std::int64_t part = 0; part < request.parts; ++part) {
      for (const std::int64_t tree : {0, 1}) {
        const Pieces piece{tree * request.parts + part};
        const std::vector<Edge> edges = edges_downwards(request, tree);
        if (upwards) {
          for (auto edge = edges.rbegin(); edge != edges.rend(); ++edge) {
            holdings.reduce({.from = edge->child, .to = edge->parent, .pieces = piece, .channel = tree});
          }
        } else {
          for (const Edge& edge : edges) {
            holdings.copy({.from = edge.parent, .to = edge.child, .pieces = piece, .channel = tree});
          }
        }
      }
    }
  }
  holdings.settle();
  return std::move(builder).finish();
}

}  // namespace weft
