// Knows which elements of a parameter the members of a leg of a substituted transfer have (graph/substitute.hpp).
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

  // The share of member `member` of the scope, of a whole with so many elements: stretches, ascending. In an all_reduce
  // every member has the same. `part`: of a part, its range of every shard.
  std::vector<ElementRange> of_member(std::int64_t elements, const Origin& part, std::int64_t member) const;

  // reduce_scatter in levels, where what lies between the legs has a place of its own: one shard for every inner
  // group, behind each other. All that this rank has, and the one for inner group `member`.
  std::vector<ElementRange> between(std::int64_t elements) const;
  std::vector<ElementRange> of_member_between(std::int64_t elements, std::int64_t member) const;
};

}  // namespace weft
