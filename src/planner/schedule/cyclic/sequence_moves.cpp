#include "planner/schedule/cyclic/sequence_moves.hpp"

#include <algorithm>
#include <utility>

namespace weft {

namespace {

std::size_t at(std::int32_t index) {
  return index;
}

bool share_resource(const CyclicGraph& graph, std::int32_t i, std::int32_t j) {
  return graph.queue(i) == graph.queue(j) || (graph.link(i) >= 0 && graph.link(i) == graph.link(j));
}

}  // namespace

SequenceMover::SequenceMover(const CyclicGraph& graph)
    : graph_(graph), marked_(graph.size(), 0), resource_marked_(graph.resources(), 0) {}

// Whether an operation between the two has to move with those marked so far, which are on one side of it.
bool SequenceMover::goes_along(std::int32_t i, std::int32_t moved, bool keep_others,
                               std::span<const CyclicNeighbour> neighbours) {
  bool along = false;
  for (const CyclicNeighbour& n : neighbours) along |= n.distance == 0 && marked_[at(n.operation)] != 0;
  if (keep_others) {
    const auto follows = [&](std::int32_t resource) {
      return resource >= 0 && resource != graph_.queue(moved) && resource != graph_.link(moved) &&
             resource_marked_[at(resource)] != 0;
    };
    along |= follows(graph_.queue(i)) || follows(graph_.link(i));
  }
  if (along) {
    marked_[at(i)] = 1;
    resource_marked_[at(graph_.queue(i))] = 1;
    if (graph_.link(i) >= 0) resource_marked_[at(graph_.link(i))] = 1;
  }
  return along;
}

SequenceMover::Change SequenceMover::change(const SequenceMove& move, std::span<const std::int32_t> sequence,
                                            std::span<const std::int32_t> place) {
  std::size_t first = at(place[at(move.operation)]), last = at(place[at(move.anchor)]);
  if (first == last || (first < last) != move.behind) return {};
  if (!move.behind) std::swap(first, last);
  std::fill(resource_marked_.begin(), resource_marked_.end(), 0);
  marked_[at(move.operation)] = 1;
  arranged_.clear();
  going_.assign(1, move.operation);
  // Those that stay, away from the operation, then those that go: backwards in time where it is brought forward.
  const std::size_t length = last - first + 1;
  for (std::size_t k = 1; k < length; ++k) {
    const std::int32_t i = sequence[move.behind ? first + k : last - k];
    const auto neighbours = move.behind ? graph_.before(i) : graph_.after(i);
    (goes_along(i, move.operation, move.keep_others, neighbours) ? going_ : arranged_).push_back(i);
  }
  const bool possible = marked_[at(move.anchor)] == 0;
  for (std::int32_t i : going_) marked_[at(i)] = 0;
  if (!possible) return {};
  arranged_.insert(arranged_.end(), going_.begin(), going_.end());
  if (!move.behind) std::reverse(arranged_.begin(), arranged_.end());
  return {first, arranged_};
}

bool SequenceMover::apply(const SequenceMove& move, std::vector<std::int32_t>& sequence) {
  std::vector<std::int32_t> place(sequence.size());
  for (std::size_t p = 0; p < sequence.size(); ++p) place[at(sequence[p])] = static_cast<std::int32_t>(p);
  const Change changed = change(move, sequence, place);
  std::copy(changed.arranged.begin(), changed.arranged.end(),
            sequence.begin() + static_cast<std::ptrdiff_t>(changed.first));
  return !changed.arranged.empty();
}

namespace {

// The moves off one stretch of the cycle, of which [0, wrap) is before the step into the next iteration. That part can
// leave before the first, the part behind it behind the last; where there is no wrap, all can do both.
void moves_off_stretch(std::span<const std::int32_t> stretch, std::size_t wrap, std::size_t limit, std::size_t turn,
                       std::vector<SequenceMove>& moves) {
  const std::size_t end = stretch.size();
  const auto add = [&](std::size_t operation, std::size_t anchor, bool behind) {
    for (bool keep_others : {false, true}) moves.push_back({stretch[operation], stretch[anchor], behind, keep_others});
  };
  const auto add_kth = [&](std::size_t k) {
    if (k < wrap) add(k, 0, false);
    const std::size_t from_end = end - 1 - k;
    if (wrap == end || from_end >= wrap) add(from_end, end - 1, true);
  };
  const std::size_t near_ends = std::min(end, 1 + (end - 1 <= limit ? limit : limit / 2));
  for (std::size_t k = 1; k < near_ends; ++k) add_kth(k);
  const std::size_t stride = 1 + (end - near_ends) / std::max<std::size_t>(1, limit / 2);
  for (std::size_t k = near_ends + turn % stride; k < end; k += stride) add_kth(k);
}

}  // namespace

std::vector<SequenceMove> moves_off_cycle(const CyclicGraph& graph, std::span<const std::int32_t> sequence,
                                          std::span<const std::int32_t> cycle, std::size_t limit, std::size_t turn) {
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
    if (stretch.size() > 1) moves_off_stretch(stretch, wrap == 0 ? stretch.size() : wrap, limit, turn, moves);
  }
  return moves;
}

}  // namespace weft
