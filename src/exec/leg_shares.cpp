#include "exec/leg_shares.hpp"

#include <algorithm>

namespace weft {
namespace {

std::int64_t divided(std::int64_t elements, std::int64_t by) {
  return (elements + by - 1) / by;
}

// A part's range of slice `index` of so many elements each; the last slices of the whole may be short or empty.
ElementRange range_of_slice(std::int64_t elements, std::int64_t length, std::int64_t index, const Origin& part) {
  const ElementRange range = part_range(length, part);
  return {std::min(elements, index * length + range.begin), std::min(elements, index * length + range.end)};
}

}  // namespace

std::vector<ElementRange> LegShares::of_member(std::int64_t elements, const Origin& part, std::int64_t member) const {
  const std::int64_t place = position % inner;
  switch (rule) {
    case Substitution::all_reduce_in_halves:
      return {range_of_slice(elements, divided(elements, ranks), member, part)};
    case Substitution::all_reduce_in_levels:
      return {range_of_slice(elements, divided(elements, inner), scope == Scope::outer ? place : member, part)};
    default:
      break;
  }
  const std::int64_t shard = divided(elements, ranks);
  if (scope == Scope::outer) return {range_of_slice(elements, shard, member * inner + place, part)};
  std::vector<ElementRange> stretches;
  for (std::int64_t group = 0; group < ranks / inner; ++group) {
    stretches.push_back(range_of_slice(elements, shard, group * inner + member, part));
  }
  return stretches;
}

std::vector<ElementRange> LegShares::between(std::int64_t elements) const {
  std::vector<ElementRange> shards;
  for (std::int64_t group = 0; group < ranks / inner; ++group) {
    shards.push_back(of_member_between(elements, group).front());
  }
  return shards;
}

std::vector<ElementRange> LegShares::of_member_between(std::int64_t elements, std::int64_t member) const {
  const std::int64_t shard = divided(elements, ranks);
  const std::int64_t begin = std::min(elements, (member * inner + position % inner) * shard);
  return {{member * shard, member * shard + std::min(shard, elements - begin)}};
}

}  // namespace weft
