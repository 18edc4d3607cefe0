// Knows which elements of a parameter the members of a leg of a substituted transfer have (graph/substitute.hpp).
//
// A parameter is cut into shards of equal length. Of reduce_scatter and all_gather there is one for every rank, of
// all_reduce one for every place below the outermost level. A shard has a coordinate at every level, as a rank has. In
// a leg, member m of a scope has the shards whose coordinate at the scope's level is m, and whose coordinates further
// in are those of this rank.
#pragma once

#include <cstdint>
#include <vector>

#include "base/element_range.hpp"
#include "graph/operation_part.hpp"

namespace weft {

struct LegShares {
  Substitution rule = Substitution::none;
  Scope scope = Scope::whole;
  std::int64_t ranks = 1;     // of the whole group
  std::int64_t inner = 1;     // of an inner group
  std::int64_t position = 0;  // of this rank in the whole group
  std::int64_t middle = 1;    // of a middle group, where the rule has three levels

  // The share of member `member` of the scope, of a whole with so many elements: stretches, ascending. In an all_reduce
  // every member has the same. `part`: of a part, its range of every shard.
  std::vector<ElementRange> of_member(std::int64_t elements, const Origin& part, std::int64_t member) const;

  // reduce_scatter and all_gather in levels, where what lies between the legs has a place of its own: the shards whose
  // coordinates at the `levels` innermost levels are those of this rank, behind each other (0: all, in their own
  // places). Where those of member `member` of the scope lie there, and where all of them lie.
  std::vector<ElementRange> of_member_between(std::int64_t elements, std::int64_t levels, std::int64_t member) const;
  std::vector<ElementRange> between(std::int64_t elements, std::int64_t levels) const;

 private:
  bool sums_in_place() const;
  std::vector<std::int64_t> sizes() const;  // of the levels that shards have coordinates at, the innermost first
  std::size_t level() const;                // of the scope
  std::int64_t coordinate_of_shard(std::int64_t shard, std::size_t at) const;
  std::int64_t own_coordinate(std::size_t at) const;
  bool is_own_below(std::int64_t shard, std::size_t level) const;
};

}  // namespace weft
