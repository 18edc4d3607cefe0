// Two levels: `inner` consecutive ranks (a node) form an inner group; the ranks with the same place in their inner
// groups form an outer group. The slow links between nodes carry one inner-th of the buffer per rank, and all ranks of
// a node use them at once.
//
// Inside an inner group all pairs send at once (a switch joins them, and one message is the shortest way). Between
// nodes data goes along rings and chains, so that no receiver of the slow network is flooded.
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
  // Returns the pieces of place i for all groups: one range where slices are ordered by place, otherwise one for each
  // group, from `first` downwards.
  std::vector<Pieces> slices_of_place(std::int64_t i, std::int64_t first) const {
    if (by_place) return {consecutive(i * outer * parts, outer * parts)};
    std::vector<Pieces> runs;
    for (std::int64_t o = 0; o < outer; ++o) runs.push_back(slice(wrapped(first - o, outer), i));
    return runs;
  }
  // Group o begins with the slices of group o + offset.
  std::vector<Group> inner_groups(std::int64_t offset) const {
    std::vector<Group> groups;
    for (std::int64_t o = 0; o < outer; ++o) {
      const auto slices = [*this, first = o + offset](std::int64_t i) { return slices_of_place(i, first); };
      groups.push_back({consecutive(o * inner, inner), slices, parts});
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

// Inside, slices travel in the order in which the ring needs them (it starts with the slice before its own) or has
// them.
void reduce_scatter(Holdings& holdings, const Levels& levels) {
  for (const Group& group : levels.inner_groups(-1)) direct_reduce_scatter(holdings, group);
  for (const Group& group : levels.outer_groups()) ring_reduce_scatter(holdings, group);
}

void all_gather(Holdings& holdings, const Levels& levels) {
  for (const Group& group : levels.outer_groups()) ring_all_gather(holdings, group);
  for (const Group& group : levels.inner_groups(0)) direct_all_gather(holdings, group);
}

// A slice is one inner-th of the buffer: the root distributes the slices inside its group, every place sends its own
// along the groups, and each group collects.
void broadcast(Holdings& holdings, const Levels& levels, std::int64_t root) {
  const std::int64_t top = root / levels.inner;
  const auto slice = [&](std::int64_t i) { return consecutive(i * levels.parts, levels.parts); };
  const auto hand_over = [&](std::int64_t from, std::int64_t to, std::int64_t i) {
    if (from == to || to == root) return;
    holdings.copy({.from = from, .to = to, .pieces = slice(i), .messages = levels.parts});
  };
  for (std::int64_t i = 0; i < levels.inner; ++i) hand_over(root, levels.rank(top, i), i);
  for (std::int64_t i = 0; i < levels.inner; ++i) chain_broadcast(holdings, levels.members_of_place(top, i), slice(i));
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
  for (Group& group : levels.inner_groups(0)) {
    group.slice = [&](std::int64_t i) { return std::vector<Pieces>{slice(i)}; };
    direct_reduce_scatter(holdings, group);
  }
  for (std::int64_t i = 0; i < levels.inner; ++i) {
    chain_reduce(holdings, levels.members_of_place(top + 1, i), slice(i));  // ends in group `top`
    if (levels.rank(top, i) == root) continue;
    holdings.copy({.from = levels.rank(top, i), .to = root, .pieces = slice(i), .messages = levels.parts});
  }
}

// In every group the rank at the root's place collects the group's slices and sends them to the root as one message.
void gather(Holdings& holdings, const Levels& levels, std::int64_t root) {
  for (std::int64_t o = 0; o < levels.outer; ++o) {
    const std::int64_t collector = levels.rank(o, root % levels.inner);
    for (std::int64_t i = 0; i < levels.inner; ++i) {
      const std::int64_t from = levels.rank(o, i);
      if (from == root) continue;
      Move move{.from = from, .to = collector, .pieces = levels.slice(o, i)};
      move.messages = from == collector ? 1 : levels.parts;
      if (collector != root && levels.inner > 1) move.dst = SlotRef{BufferKind::scratch, i * levels.parts};
      if (from != collector || move.dst) holdings.copy(move);
    }
    if (collector == root) continue;
    const Pieces group = consecutive(levels.rank(o, 0) * levels.parts, levels.inner * levels.parts);
    holdings.copy({.from = collector, .to = root, .pieces = group, .messages = levels.parts});
  }
}

void scatter(Holdings& holdings, const Levels& levels, std::int64_t root) {
  for (std::int64_t o = 0; o < levels.outer; ++o) {
    const std::int64_t collector = levels.rank(o, root % levels.inner);
    if (collector != root) {
      const Pieces group = consecutive(levels.rank(o, 0) * levels.parts, levels.inner * levels.parts);
      Move move{.from = root, .to = collector, .pieces = group, .messages = levels.parts};
      if (levels.inner > 1) move.dst = SlotRef{BufferKind::scratch, 0};
      holdings.copy(move);
    }
    for (std::int64_t i = 0; i < levels.inner; ++i) {
      const std::int64_t to = levels.rank(o, i);
      if (to == collector) continue;
      holdings.copy({.from = collector, .to = to, .pieces = levels.slice(o, i), .messages = levels.parts});
    }
  }
}

// Every rank reports to place 0 of its group and these report to rank 0; the answers go the same way back.
void barrier(Holdings& holdings, const Levels& levels) {
  const auto inside = [&](const auto& visit) {
    for (std::int64_t o = 0; o < levels.outer; ++o) {
      for (std::int64_t i = 1; i < levels.inner; ++i) visit(levels.rank(o, i), levels.rank(o, 0));
    }
  };
  const auto across = [&](const auto& visit) {
    for (std::int64_t o = 1; o < levels.outer; ++o) visit(levels.rank(o, 0), std::int64_t{0});
  };
  const auto report = [&](std::int64_t from, std::int64_t to) {
    holdings.reduce({.from = from, .to = to, .pieces = {0}});
  };
  const auto release = [&](std::int64_t to, std::int64_t from) {
    holdings.copy({.from = from, .to = to, .pieces = {0}});
  };
  inside(report);
  across(report);
  across(release);
  inside(release);
}

// First every rank gives place i of its own group all that goes to place i of any group. Then each rank has one message
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
        for (std::int64_t behind = 1; behind <= levels.outer; ++behind) {
          const std::int64_t target =
              (o + behind) % levels.outer;  // the own group comes last: its data goes no further
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
  const Levels levels{inner, request.ranks / inner, request.parts, request.kind == Collective::all_reduce};
  const bool by_place_only = request.kind == Collective::broadcast || request.kind == Collective::reduce;
  std::int64_t slices = by_place_only ? inner : request.ranks;
  if (request.kind == Collective::barrier) slices = 1;
  ProgramBuilder builder = builder_for(request, slices * request.parts);
  if (request.kind == Collective::all_to_all) {
    exchange(builder, levels);
    return std::move(builder).finish();
  }
  Holdings holdings(builder);
  switch (request.kind) {
    case Collective::broadcast:
      broadcast(holdings, levels, request.root);
      break;
    case Collective::reduce:
      reduce(holdings, levels, request.root);
      break;
    case Collective::gather:
      gather(holdings, levels, request.root);
      break;
    case Collective::scatter:
      scatter(holdings, levels, request.root);
      break;
    case Collective::reduce_scatter:
      reduce_scatter(holdings, levels);
      break;
    case Collective::all_gather:
      all_gather(holdings, levels);
      break;
    case Collective::barrier:
      barrier(holdings, levels);
      break;
    default:
      reduce_scatter(holdings, levels);
      all_gather(holdings, levels);
  }
  holdings.settle();
  return std::move(builder).finish();
}

}  // namespace weft
