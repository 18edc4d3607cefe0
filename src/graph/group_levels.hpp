// The levels of a group: members that share a node, and members with the same place in their nodes. Where nodes lie
// below several switches, the latter have two levels again.
#pragma once

#include <vector>

#include "graph/rank_classes.hpp"

namespace weft {

// Fills ClassGroup::levels. `members` are those of `self`'s own group in their order, all of them; view and members of
// `group` are known. There are levels where the innermost domains that hold more than one member hold equally many,
// next to each other in the group's order, and not all of them.
void add_levels(const Cluster& cluster, const std::vector<Rank>& members, Rank self, ClassGroup& group);

// How many members an inner group would have; 0 where the view or the order of the members allows no levels.
std::int64_t inner_group_size(const Cluster& cluster, const std::vector<Rank>& members, const GroupView& view);
// What the outer groups of a view look like, given the size of its inner ones.
GroupView outer_view(const GroupView& view, std::int64_t inner);

// Of the members of a group, those that `self` works with in a scope, in their order. `levels`: of the group (any where
// the scope is the whole group).
std::vector<Rank> scoped_members(const std::vector<Rank>& members, LevelSizes levels, Rank self, Scope scope);

}  // namespace weft
