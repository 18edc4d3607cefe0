#include "plan/schedule/cyclic/sequence_moves.hpp"

#include <algorithm>
#include <utility>

namespace weft {

namespace {

std::size_t at(std::int32_t index) {
  return static_cast<std::size_t>(index);
}

bool share_resource(const CyclicGraph& graph, std::int32_t i, std::int32_t j) {
  return graph.lane(i) == graph.lane(j) || (graph.link(i) >= 0 && graph.link(i) == graph.link(j));
}

}  // namespace

SequenceMover::SequenceMover(const CyclicGraph& graph)
    : graph_(graph), place_(graph.size()), marked_(graph.size(), 0), resource_marked_(graph.resources(), 0) {}

bool SequenceMover::apply(const SequenceMove& move, std::vector<std::int32_t>& sequence) {
  for (std::size_t p = 0; p < sequence.size(); ++p) place_[at(sequence[p])] = p;
  const bool stands_before = place_[at(move.operation)] < place_[at(move.anchor)];
  if (move.operation == move.anchor || stands_before != move.behind) return false;
  return move.behind ? delay(move.operation, move.anchor, move.keep_others, sequence)
                     : bring_forward(move.operation, move.anchor, move.keep_others, sequence);
}

// Whether an operation between the two has to move with those marked so far, which are on one side of it.
bool SequenceMover::goes_along(std::int32_t i, std::int32_t moved, bool keep_others,
                               std::span<const CyclicNeighbour> neighbours) {
  bool along = false;
  for (const CyclicNeighbour& n : neighbours) along |= n.distance == 0 && marked_[at(n.operation)] != 0;
  if (keep_others) {
    const auto follows = [&](std::int32_t resource) {
      return resource >= 0 && resource != graph_.lane(moved) && resource != graph_.link(moved) &&
             resource_marked_[at(resource)] != 0;
    };
    along |= follows(graph_.lane(i)) || follows(graph_.link(i));
  }
  if (along) {
    marked_[at(i)] = 1;
    resource_marked_[at(graph_.lane(i))] = 1;
    if (graph_.link(i) >= 0) resource_marked_[at(graph_.link(i))] = 1;
  }
  return along;
}

bool SequenceMover::delay(std::int32_t operation, std::int32_t anchor, bool keep_others,
                          std::vector<std::int32_t>& sequence) {
  std::fill(marked_.begin(), marked_.end(), 0);
  std::fill(resource_marked_.begin(), resource_marked_.end(), 0);
  const std::size_t first = place_[at(operation)], last = place_[at(anchor)];
  marked_[at(operation)] = 1;
  staying_.clear();
  going_.assign(1, operation);
  for (std::size_t p = first + 1; p <= last; ++p) {
    const std::int32_t i = sequence[p];
    (goes_along(i, operation, keep_others, graph_.before(i)) ? going_ : staying_).push_back(i);
  }
  if (marked_[at(anchor)] != 0) return false;
  std::copy(staying_.begin(), staying_.end(), sequence.begin() + static_cast<std::ptrdiff_t>(first));
  std::copy(going_.begin(), going_.end(), sequence.begin() + static_cast<std::ptrdiff_t>(first + staying_.size()));
  return true;
}

bool SequenceMover::bring_forward(std::int32_t operation, std::int32_t anchor, bool keep_others,
                                  std::vector<std::int32_t>& sequence) {
  std::fill(marked_.begin(), marked_.end(), 0);
  std::fill(resource_marked_.begin(), resource_marked_.end(), 0);
  const std::size_t first = place_[at(anchor)], last = place_[at(operation)];
  marked_[at(operation)] = 1;
  staying_.clear();
  going_.assign(1, operation);
  for (std::size_t p = last; p-- > first;) {
    const std::int32_t i = sequence[p];
    (goes_along(i, operation, keep_others, graph_.after(i)) ? going_ : staying_).push_back(i);
  }
  if (marked_[at(anchor)] != 0) return false;
  std::copy(going_.rbegin(), going_.rend(), sequence.begin() + static_cast<std::ptrdiff_t>(first));
  std::copy(staying_.rbegin(), staying_.rend(), sequence.begin() + static_cast<std::ptrdiff_t>(first + going_.size()));
  return true;
}

namespace {

// The moves off one stretch: out[0..count) of the cycle, the part before the step into the next iteration being
// [0, wrap).
void moves_off_stretch(std::span<const std::int32_t> stretch, std::size_t wrap, std::size_t limit,
                       std::vector<SequenceMove>& moves) {
  const std::size_t before = moves.size();
  const auto add = [&](std::size_t operation, std::size_t anchor, bool behind) {
    for (bool keep_others : {false, true}) moves.push_back({stretch[operation], stretch[anchor], behind, keep_others});
  };
  const std::size_t end = stretch.size();
  // Alternating from both ends inwards. The part in front of the wrap can leave before the first, the part behind it
  // behind the last; where there is no wrap, all can do both.
  const bool whole = wrap == end;
  for (std::size_t k = 1; k < end && moves.size() < before + 2 * limit; ++k) {
    if (k < wrap) add(k, 0, false);
    const std::size_t from_end = end - 1 - k;
    if (whole || from_end >= wrap) add(from_end, end - 1, true);
  }
}

}  // namespace

std::vector<SequenceMove> moves_off_cycle(const CyclicGraph& graph, std::span<const std::int32_t> sequence,
                                          std::span<const std::int32_t> cycle, std::size_t limit) {
  std::vector<SequenceMove> moves;
  if (cycle.size() < 2) return moves;
  std::vector<std::size_t> place(graph.size());
  for (std::size_t p = 0; p < sequence.size(); ++p) place[at(sequence[p])] = p;
  // Starts the cycle where a stretch starts.
  std::vector<std::int32_t> turned(cycle.begin(), cycle.end());
  for (std::size_t k = 0; k < cycle.size(); ++k) {
    if (share_resource(graph, cycle[k], cycle[(k + cycle.size() - 1) % cycle.size()])) continue;
    std::rotate(turned.begin(), turned.begin() + static_cast<std::ptrdiff_t>(k), turned.end());
    break;
  }
  for (std::size_t begin = 0, end = 0; begin < turned.size(); begin = end) {
    std::size_t wrap = 0;
    for (end = begin + 1; end < turned.size() && share_resource(graph, turned[end - 1], turned[end]); ++end) {
      if (place[at(turned[end])] > place[at(turned[end - 1])]) continue;
      if (wrap != 0) break;  // a stretch of two iterations: the rest is another one
      wrap = end - begin;
    }
    const std::span stretch = std::span(turned).subspan(begin, end - begin);
    if (stretch.size() > 1) moves_off_stretch(stretch, wrap == 0 ? stretch.size() : wrap, limit, moves);
  }
  return moves;
}

}  // namespace weft
