#include "exec/leg_shares.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

namespace weft {
namespace {

std::int64_t divided(std::int64_t elements, std::int64_t by) {
  return (elements + by - 1) / by;
}

template <class Iterator>
std::int64_t product(Iterator begin, Iterator end) {
  return std::accumulate(begin, end, std::int64_t{1}, std::multiplies<>());
}

// A part's range of slice `index` of so many elements each; the last slices of the whole may be short or empty.
ElementRange range_of_slice(std::int64_t elements, std::int64_t length, std::int64_t index, const Origin& part) {
  const ElementRange range = part_range(length, part);
  return {std::min(elements, index * length + range.begin), std::min(elements, index * length + range.end)};
}

}  // namespace

bool LegShares::sums_in_place() const {
  return rule == Substitution::all_reduce_in_halves || rule == Substitution::all_reduce_in_levels ||
         rule == Substitution::all_reduce_in_three_levels;
}

std::vector<std::int64_t> LegShares::sizes() const {
  switch (rule) {
    case Substitution::all_reduce_in_halves:
      return {ranks};
    case Substitution::all_reduce_in_levels:
      return {inner};
    case Substitution::all_reduce_in_three_levels:
      return {inner, middle};
    case Substitution::reduce_scatter_in_three_levels:
    case Substitution::all_gather_in_three_levels:
      return {inner, middle, ranks / (inner * middle)};
    default:
      return {inner, ranks / inner};
  }
}

std::size_t LegShares::level() const {
  if (scope == Scope::top) return 2;
  return scope == Scope::outer || scope == Scope::middle ? 1 : 0;
}

// Shards of a reduce_scatter lie in the order of the ranks, whose innermost coordinate runs fastest. The slices of an
// all_reduce lie the other way round, so that what a rank has in a leg is consecutive.
std::int64_t LegShares::coordinate_of_shard(std::int64_t shard, std::size_t at) const {
  const std::vector<std::int64_t> all = sizes();
  const auto place = all.begin() + static_cast<std::ptrdiff_t>(at);
  const std::int64_t below = sums_in_place() ? product(place + 1, all.end()) : product(all.begin(), place);
  return shard / below % *place;
}

std::int64_t LegShares::own_coordinate(std::size_t at) const {
  const std::vector<std::int64_t> all = sizes();
  const auto place = all.begin() + static_cast<std::ptrdiff_t>(at);
  return position / product(all.begin(), place) % *place;
}

bool LegShares::is_own_below(std::int64_t shard, std::size_t level) const {
  for (std::size_t at = 0; at < level; ++at) {
    if (coordinate_of_shard(shard, at) != own_coordinate(at)) return false;
  }
  return true;
}

std::vector<ElementRange> LegShares::of_member(std::int64_t elements, const Origin& part, std::int64_t member) const {
  const std::vector<std::int64_t> all = sizes();
  const std::int64_t shards = product(all.begin(), all.end()), length = divided(elements, shards);
  const std::size_t at = level();
  std::vector<ElementRange> stretches;
  for (std::int64_t shard = 0; shard < shards; ++shard) {
    // The outermost level of an all_reduce adds up what has no coordinate there.
    const bool is_members = at == all.size() || coordinate_of_shard(shard, at) == member;
    if (is_members && is_own_below(shard, at)) stretches.push_back(range_of_slice(elements, length, shard, part));
  }
  return stretches;
}

std::vector<ElementRange> LegShares::of_member_between(std::int64_t elements, std::int64_t levels,
                                                       std::int64_t member) const {
  const std::vector<std::int64_t> all = sizes();
  const std::int64_t length = divided(elements, ranks), side_by_side = product(all.begin(), all.begin() + levels);
  std::vector<ElementRange> found;
  for (std::int64_t shard = 0; shard < ranks; ++shard) {
    if (!is_own_below(shard, static_cast<std::size_t>(levels))) continue;
    if (member >= 0 && coordinate_of_shard(shard, level()) != member) continue;
    const std::int64_t begin = shard / side_by_side * length;
    const std::int64_t there = std::min(length, elements - std::min(elements, shard * length));
    // Shards that lie in their own places end where the whole ends.
    const std::int64_t from = levels == 0 ? std::min(elements, begin) : begin;
    found.push_back({from, from + there});
  }
  return found;
}

std::vector<ElementRange> LegShares::between(std::int64_t elements, std::int64_t levels) const {
  return of_member_between(elements, levels, -1);
}

}  // namespace weft
