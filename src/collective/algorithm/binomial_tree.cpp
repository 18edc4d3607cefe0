// Binomial trees: counted from the root, the parent of rank v is v without its lowest bit, so the subtree of v is the
// run v .. v + lowbit(v) - 1. What a subtree gathers or scatters travels as one message (two where the run passes the
// last rank and the root's buffer does not go on there).
#include <algorithm>

#include "collective/algorithm/generators.hpp"
#include "collective/algorithm/phases.hpp"

namespace weft {
namespace {

struct Edge {
  std::int64_t parent, child;  // ranks
  std::int64_t above;          // the parent, counted from the root
  std::int64_t first, count;   // the child's subtree, counted from the root
};

class BinomialTree {
 public:
  BinomialTree(std::int64_t ranks, std::int64_t root) : ranks_(ranks), root_(root) {}

  // Parents before their children; the largest subtree of a parent first, which has the longest way to go.
  std::vector<Edge> down() const {
    std::vector<Edge> edges;
    append_below(0, edges);
    return edges;
  }
  std::vector<Edge> up() const {
    std::vector<Edge> edges = down();
    std::reverse(edges.begin(), edges.end());
    return edges;
  }
  // Of a subtree, when every rank has `parts` pieces.
  Pieces pieces_of(std::int64_t first, std::int64_t count, std::int64_t parts) const {
    Pieces pieces;
    for (std::int64_t v = first; v < first + count; ++v) {
      for (std::int64_t part = 0; part < parts; ++part) pieces.push_back(rank_of(v) * parts + part);
    }
    return pieces;
  }

 private:
  std::int64_t rank_of(std::int64_t v) const { return wrapped(root_ + v, ranks_); }

  void append_below(std::int64_t v, std::vector<Edge>& edges) const {
    std::int64_t step = 1;
    while (v == 0 ? step < ranks_ : (v & step) == 0) step *= 2;
    for (step /= 2; step > 0; step /= 2) {
      const std::int64_t child = v + step;
      if (child >= ranks_) continue;
      edges.push_back({rank_of(v), rank_of(child), v, child, std::min(step, ranks_ - child)});
      append_below(child, edges);
    }
  }

  std::int64_t ranks_, root_;
};

// Downwards a rank serves its children one after the other: a child that gets the whole link can help sooner.
void broadcast(Holdings& holdings, const BinomialTree& tree, std::int64_t parts) {
  holdings.builder().send_in_turn(true);
  for (std::int64_t part = 0; part < parts; ++part) {
    for (const Edge& edge : tree.down()) holdings.copy({.from = edge.parent, .to = edge.child, .pieces = {part}});
  }
}

void reduce(Holdings& holdings, const BinomialTree& tree, std::int64_t parts) {
  for (std::int64_t part = 0; part < parts; ++part) {
    for (const Edge& edge : tree.up()) holdings.reduce({.from = edge.child, .to = edge.parent, .pieces = {part}});
  }
}

// A rank with a subtree keeps it together in scratch, its own slice first; at the root all lands in the output.
void gather(Holdings& holdings, const BinomialTree& tree, const ProgramRequest& request) {
  const std::int64_t parts = request.parts;
  for (const Edge& edge : tree.up()) {
    const bool to_root = edge.above == 0;
    const bool first_child = edge.first == edge.above + 1;
    if (!to_root && first_child) {
      const Pieces own = tree.pieces_of(edge.above, 1, parts);
      holdings.copy({.from = edge.parent, .to = edge.parent, .pieces = own, .dst = SlotRef{BufferKind::scratch, 0}});
    }
    Move move{.from = edge.child, .to = edge.parent, .pieces = {}, .messages = parts};
    move.pieces = tree.pieces_of(edge.first, edge.count, parts);
    if (!to_root) move.dst = SlotRef{BufferKind::scratch, (edge.first - edge.above) * parts};
    holdings.copy(move);
  }
}

void scatter(Holdings& holdings, const BinomialTree& tree, const ProgramRequest& request) {
  holdings.builder().send_in_turn(true);
  for (const Edge& edge : tree.down()) {
    const Pieces pieces = tree.pieces_of(edge.first, edge.count, request.parts);
    Move move{.from = edge.parent, .to = edge.child, .pieces = pieces, .messages = request.parts};
    // A run lands together in scratch, from where it goes on; a leaf's own slice lands in its output.
    if (edge.count > 1) move.dst = SlotRef{BufferKind::scratch, 0};
    holdings.copy(move);
  }
}

}  // namespace

Program binomial_tree_program(const ProgramRequest& request) {
  ProgramBuilder builder =
      builder_for(request, is_divided(request.kind) ? request.ranks * request.parts : request.parts);
  Holdings holdings(builder);
  const BinomialTree tree(request.ranks, request.root);
  switch (request.kind) {
    case Collective::broadcast:
      broadcast(holdings, tree, request.parts);
      break;
    case Collective::reduce:
      reduce(holdings, tree, request.parts);
      break;
    case Collective::gather:
      gather(holdings, tree, request);
      break;
    case Collective::scatter:
      scatter(holdings, tree, request);
      break;
    default:
      reduce(holdings, tree, request.parts);
      broadcast(holdings, tree, request.parts);
  }
  holdings.settle();
  return std::move(builder).finish();
}

}  // namespace weft
