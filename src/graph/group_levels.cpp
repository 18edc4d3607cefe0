#include "graph/group_levels.hpp"

#include <algorithm>

namespace weft {
namespace {

// Whether every `inner` consecutive members lie in one domain of the fabric.
bool runs_share_domains(const Cluster& cluster, const std::vector<Rank>& members, LevelId fabric, std::size_t inner) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (cluster.domain_of(fabric, members[i]) != cluster.domain_of(fabric, members[i / inner * inner])) return false;
  }
  return true;
}

}  // namespace

std::int64_t inner_group_size(const Cluster& cluster, const std::vector<Rank>& members, const GroupView& view) {
  if (!view.even) return 0;
  const auto split = std::find_if(view.within.begin(), view.within.end(), [](std::int64_t n) { return n > 1; });
  if (split == view.within.end() || *split == view.size) return 0;
  const std::int64_t inner = *split;
  const auto divides = [&](std::int64_t n) { return n % inner == 0; };
  if (!divides(view.size) || !std::all_of(split, view.within.end(), divides)) return 0;
  const LevelId fabric = cluster.fabrics()[split - view.within.begin()];
  return runs_share_domains(cluster, members, fabric, static_cast<std::size_t>(inner)) ? inner : 0;
}

GroupView outer_view(const GroupView& view, std::int64_t inner) {
  GroupView outer;
  outer.size = view.size / inner;
  for (const std::int64_t within : view.within) outer.within.push_back(std::max<std::int64_t>(1, within / inner));
  return outer;
}

void add_levels(const Cluster& cluster, const std::vector<Rank>& members, Rank self, ClassGroup& group) {
  const GroupView& view = group.view;
  if (group.spans_classes()) return;
  const std::int64_t inner = inner_group_size(cluster, members, view);
  if (inner == 0) return;

  ClassGroup of_inner, of_outer;
  of_inner.members = of_outer.members = group.members;
  of_inner.view.size = inner;
  for (const std::int64_t within : view.within) of_inner.view.within.push_back(std::min(within, inner));
  of_outer.view = outer_view(view, inner);
  if (of_inner.view.size <= kListedMembers) of_inner.ranks = scoped_members(members, inner, self, Scope::inner);
  const std::vector<Rank> outer = scoped_members(members, inner, self, Scope::outer);
  if (of_outer.view.size <= kListedMembers) of_outer.ranks = outer;
  add_levels(cluster, outer, self, of_outer);
  group.levels = {std::move(of_inner), std::move(of_outer)};
}

std::vector<Rank> scoped_members(const std::vector<Rank>& members, LevelSizes levels, Rank self, Scope scope) {
  if (scope == Scope::whole) return members;
  if (scope == Scope::middle || scope == Scope::top) {
    const std::vector<Rank> outer = scoped_members(members, levels.inner, self, Scope::outer);
    return scoped_members(outer, levels.middle, self, scope == Scope::middle ? Scope::inner : Scope::outer);
  }
  const std::int64_t own = std::find(members.begin(), members.end(), self) - members.begin();
  std::vector<Rank> found;
  for (std::int64_t i = 0; i < std::ssize(members); ++i) {
    const bool with =
        scope == Scope::inner ? i / levels.inner == own / levels.inner : i % levels.inner == own % levels.inner;
    if (with) found.push_back(members[i]);
  }
  return found;
}

}  // namespace weft
