// The levels of a group: members that share a node, and members with the same place in their nodes; and likewise those
// that share a part of a node, or a switch.
#pragma once

#include <vector>

#include "graph/rank_classes.hpp"

namespace weft {

// Fills what a group has of levels. `members` are those of `self`'s own group in their order, all of them; view and
// members of `group` are known.
void add_levels(const Cluster& cluster, const std::vector<Rank>& members, Rank self, ClassGroup& group);

// ClassGroup::borders of a group with members of one class: the domains of a fabric hold more than one member, equally
// many, next to each other in the group's order, and not all of them.
std::vector<std::int64_t> level_borders(const Cluster& cluster, const std::vector<Rank>& members,
                                        const GroupView& view);

// Members whose places differ between two borders alone: of those that share `below` consecutive members one place, of
// those that share `up_to` all.
struct LevelSpan {
  std::int64_t below = 1, up_to = 1;
  std::int64_t size() const { return up_to / below; }
  friend bool operator==(const LevelSpan&, const LevelSpan&) = default;
};
// For every two of 1, the borders and the size but these two themselves, in the order of ClassGroup::between.
std::vector<LevelSpan> level_spans(const std::vector<std::int64_t>& borders, std::int64_t size);
// Of a group of so many with these levels; the scope is neither self nor that of a level that is missing.
LevelSpan span_of(Scope scope, LevelSizes levels, std::int64_t size);

// Of the members of a group, those that `self` works with in a scope, in their order. `levels`: of the group (any where
// the scope is the whole group).
std::vector<Rank> scoped_members(const std::vector<Rank>& members, LevelSizes levels, Rank self, Scope scope);
std::vector<Rank> members_between(const std::vector<Rank>& members, LevelSpan span, Rank self);

}  // namespace weft
