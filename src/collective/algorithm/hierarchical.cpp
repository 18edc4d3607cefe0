// Two levels: `inner` consecutive ranks (a node) form an inner group; the ranks with the same place in their inner
// groups form an outer group. The slow links between nodes carry one inner-th of the buffer per rank, and all ranks of
// a node use them at once.
//
// Inside, all pairs send at once (a switch joins them, and one message is the shortest way); between nodes go rings and
// chains, so that no receiver of the slow network is flooded.
#include <algorithm>

#include "collective/algorithm/generators.hpp"
#include "collective/algorithm/phases.hpp"

namespace weft {
namespace {

// Every rank (o, i), o its inner group and i its place there, has a slice of `parts` pieces.
struct Levels {
  std::int64_t inner, outer, parts;
  bool by_place;  // slices in the order (i, o) instead of that of the ranks

  std::int64_t rank(std::int64_t o, std::int64_t i) const { return o * inner + i; }
  Pieces slice(std::int64_t o, std::int64_t i) const {
    return consecutive((by_place ? i * outer + o : rank(o, i)) * parts, parts);
  }
  // What place i works on for all groups: one run where slices are ordered by place.
  std::vector<Pieces> slices_of_place(std::int64_t i) const {
    if (by_place) return {consecutive(i * outer * parts, outer * parts)};
    std::vector<Pieces> runs;
    for (std::int64_t o = 0; o < outer; ++o) runs.push_back(slice(o, i));
    return runs;
  }
  std::vector<Group> inner_groups() const {
    std::vector<Group> groups;
    for (std::int64_t o = 0; o < outer; ++o) {
      groups.push_back({consecutive(o * inner, inner), [*this](std::int64_t i) { return slices_of_place(i); }, parts});
    }
    return groups;
  }
  std::vector<Group> outer_groups() const {
    std::vector<Group> groups;
    for (std::int64_t i = 0; i < inner; ++i) {
      groups.push_back(
          {members_of_place(0, i), [*this, i](std::int64_t o) { return std::vector<Pieces>{slice(o, i)}; }, parts});
    }
    return groups;
  }
  // Beginning with the one in group `first`.
  std::vector<std::int64_t> members_of_place(std::int64_t first, std::int64_t i) const {
    std::vector<std::int64_t> members;
    for (std::int64_t o = 0; o < outer; ++o) members.push_back(rank(wrapped(first + o, outer), i));
    return members;
  }
};

void reduce_scatter(Holdings& holdings, const Levels& levels) {
  for (const Group& group : levels.inner_groups()) direct_reduce_scatter(holdings, group);
  for (const Group& group : levels.outer_groups()) ring_reduce_scatter(holdings, group);
}

void all_gather(Holdings& holdings, const Levels& levels) {
  for (const Group& group : levels.outer_groups()) ring_all_gather(holdings, group);
  for (const Group& group : levels.inner_groups()) direct_all_gather(holdings, group);
}

// The root shares the buffer out inside its group, every place sends its slice along the groups, each group collects.
// (Slices are here those of places: levels.outer is not counted in them.)
void broadcast(Holdings& holdings, const Levels& levels, std::int64_t root) {
  const std::int64_t top = root / levels.inner;
  const auto slice = [&](std::int64_t i) { return consecutive(i * levels.parts, levels.parts); };
  const auto hand_over = [&](std::int64_t from, std::int64_t to, std::int64_t i) {
    if (from == to || to == root) return;
    holdings.copy({.from = from, .to = to, .pieces = slice(i), .messages = levels.parts});
  };
  for (std::int64_t i = 0; i < levels.inner; ++i) hand_over(root, levels.rank(top, i), i);
  for (std::int64_t i = 0; i < levels.inner; ++i) {
    chain_broadcast(holdings, levels.members_of_place(top, i), slice(i));
  }
  for (std::int64_t distance = 1; distance < levels.inner; ++distance) {
    for (std::int64_t o = 0; o < levels.outer; ++o) {
      for (std::int64_t i = 0; i < levels.inner; ++i) {
        hand_over(levels.rank(o, i), levels.rank(o, (i + distance) % levels.inner), i);
      }
    }
  }
}

void reduce(Holdings& holdings, const Levels& levels, std::int64_t root) {
  const std::int64_t top = root / levels.inner;
  const auto slice = [&](std::int64_t i) { return consecutive(i * levels.parts, levels.parts); };
  for (Group& group : levels.inner_groups()) {
    group.slice = [&](std::int64_t i) { return std::vector<Pieces>{slice(i)}; };
    direct_reduce_scatter(holdings, group);
  }
  for (std::int64_t i = 0; i < levels.inner; ++i) {
    chain_reduce(holdings, levels.members_of_place(top + 1, i), slice(i));  // ends in group `top`
    if (levels.rank(top, i) == root) continue;
    holdings.copy({.from = levels.rank(top, i), .to = root, .pieces = slice(i), .messages = levels.parts});
  }
}

// First everybody gives place i of its own group all that goes to place i of any group; then each rank has one message
// for every other group, in the order in which it lies in the output there.
void exchange(ProgramBuilder& builder, const Levels& levels) {
  const std::int64_t parts = levels.parts;
  const auto shelf = [&](std::int64_t rank, std::int64_t o, std::int64_t i) {
    return scratch_of(rank, (o * levels.inner + i) * parts);
  };
  for (std::int64_t distance = 0; distance < levels.inner; ++distance) {
    for (std::int64_t o = 0; o < levels.outer; ++o) {
      for (std::int64_t i = 0; i < levels.inner; ++i) {
        const std::int64_t from = levels.rank(o, i);
        const std::int64_t place = (i + distance) % levels.inner;
        const std::int64_t to = levels.rank(o, place);
        for (std::int64_t target = 0; target < levels.outer; ++target) {
          // In place the output still holds what has to leave.
          const bool arrived = target == o && !builder.in_place();
          copy_in_parts(builder, input_of(from, levels.rank(target, place) * parts),
                        arrived ? output_of(to, from * parts) : shelf(to, target, i), parts, parts);
        }
      }
    }
  }
  for (std::int64_t distance = builder.in_place() ? 0 : 1; distance < levels.outer; ++distance) {
    for (std::int64_t o = 0; o < levels.outer; ++o) {
      for (std::int64_t i = 0; i < levels.inner; ++i) {
        const std::int64_t target = (o + distance) % levels.outer;
        copy_in_parts(builder, shelf(levels.rank(o, i), target, 0),
                      output_of(levels.rank(target, i), levels.rank(o, 0) * parts), levels.inner * parts, parts);
      }
    }
  }
}

}  // namespace

Program hierarchical_program(const ProgramRequest& request) {
  const std::int64_t inner = request.inner;
  const bool has_places_only = request.kind == Collective::broadcast || request.kind == Collective::reduce;
  const Levels levels{inner, request.ranks / inner, request.parts, request.kind == Collective::all_reduce};
  ProgramBuilder builder = builder_for(request, (has_places_only ? inner : request.ranks) * request.parts);
  if (request.kind == Collective::all_to_all) {
    exchange(builder, levels);
    return std::move(builder).finish();
  }
  Holdings holdings(builder);
  if (request.kind == Collective::broadcast) broadcast(holdings, levels, request.root);
  if (request.kind == Collective::reduce) reduce(holdings, levels, request.root);
  if (request.kind == Collective::reduce_scatter || request.kind == Collective::all_reduce) {
    reduce_scatter(holdings, levels);
  }
  if (request.kind == Collective::all_gather || request.kind == Collective::all_reduce) all_gather(holdings, levels);
  holdings.settle();
  return std::move(builder).finish();
}

}  // namespace weft
