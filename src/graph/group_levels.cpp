#include "graph/group_levels.hpp"

#include <algorithm>

namespace weft {
namespace {

// Whether every `run` consecutive members lie in one domain of the fabric.
bool runs_share_domains(const Cluster& cluster, const std::vector<Rank>& members, LevelId fabric, std::size_t run) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (cluster.domain_of(fabric, members[i]) != cluster.domain_of(fabric, members[i / run * run])) return false;
  }
  return true;
}

std::int64_t members_in_node(const Cluster& cluster, const GroupView& view) {
  const std::size_t parts = cluster.fabrics_of_parts();
  return parts < view.within.size() ? view.within[parts] : view.size;
}

GroupView view_between(const GroupView& view, LevelSpan span) {
  GroupView result;
  result.size = span.size();
  for (const std::int64_t within : view.within) {
    result.within.push_back(std::clamp<std::int64_t>(within / span.below, 1, span.size()));
  }
  return result;
}

}  // namespace

std::vector<std::int64_t> level_borders(const Cluster& cluster, const std::vector<Rank>& members,
                                        const GroupView& view) {
  std::vector<std::int64_t> borders;
  if (!view.even) return borders;
  for (std::size_t i = 0; i < view.within.size(); ++i) {
    const std::int64_t within = view.within[i], inside = borders.empty() ? 1 : borders.back();
    if (within == inside || within == view.size || within % inside != 0 || view.size % within != 0) continue;
    const LevelId fabric = cluster.fabrics()[i];
    if (runs_share_domains(cluster, members, fabric, static_cast<std::size_t>(within))) borders.push_back(within);
  }
  return borders;
}

std::vector<LevelSpan> level_spans(const std::vector<std::int64_t>& borders, std::int64_t size) {
  std::vector<std::int64_t> bounds{1};
  bounds.insert(bounds.end(), borders.begin(), borders.end());
  bounds.push_back(size);
  std::vector<LevelSpan> spans;
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    for (std::size_t j = i + 1; j < bounds.size(); ++j) {
      if (j - i + 1 < bounds.size()) spans.push_back({bounds[i], bounds[j]});
    }
  }
  return spans;
}

LevelSpan span_of(Scope scope, LevelSizes levels, std::int64_t size) {
  switch (scope) {
    case Scope::inner:
      return {1, levels.inner};
    case Scope::outer:
      return {levels.inner, size};
    case Scope::middle:
      return {levels.inner, levels.inner * levels.middle};
    case Scope::top:
      return {levels.inner * levels.middle, size};
    default:
      return {1, size};
  }
}

void add_levels(const Cluster& cluster, const std::vector<Rank>& members, Rank self, ClassGroup& group) {
  const GroupView& view = group.view;
  group.in_node = members_in_node(cluster, view);
  if (group.spans_classes()) return;
  group.borders = level_borders(cluster, members, view);
  if (group.borders.empty()) return;
  for (const LevelSpan span : level_spans(group.borders, view.size)) {
    ClassGroup& level = group.between.emplace_back();
    level.members = group.members;
    level.view = view_between(view, span);
    level.in_node = members_in_node(cluster, level.view);
    if (level.view.size <= kListedMembers) level.ranks = members_between(members, span, self);
  }
}

std::vector<Rank> members_between(const std::vector<Rank>& members, LevelSpan span, Rank self) {
  const std::int64_t own = std::find(members.begin(), members.end(), self) - members.begin();
  std::vector<Rank> found;
  for (std::int64_t i = 0; i < std::ssize(members); ++i) {
    if (i / span.up_to == own / span.up_to && i % span.below == own % span.below) found.push_back(members[i]);
  }
  return found;
}

std::vector<Rank> scoped_members(const std::vector<Rank>& members, LevelSizes levels, Rank self, Scope scope) {
  if (scope == Scope::whole) return members;
  return members_between(members, span_of(scope, levels, std::ssize(members)), self);
}

LevelSizes ClassGroup::level_sizes() const {
  auto inner = std::find_if(borders.begin(), borders.end(), [&](std::int64_t border) { return border >= in_node; });
  if (inner == borders.end()) inner = borders.begin();
  if (inner == borders.end()) return {};
  return {*inner, inner + 1 == borders.end() ? 1 : inner[1] / *inner};
}

bool ClassGroup::has_scope(Scope scope, LevelSizes levels) const {
  if (scope == Scope::whole) return true;
  if (scope == Scope::self || borders.empty()) return false;
  if (levels == kOwnLevels) levels = level_sizes();
  const auto is_border = [&](std::int64_t run) {
    return std::find(borders.begin(), borders.end(), run) != borders.end();
  };
  if (!is_border(levels.inner)) return false;
  if (levels.middle != 1 && !is_border(levels.inner * levels.middle)) return false;
  return scope == Scope::inner || scope == Scope::outer || levels.middle > 1;
}

const ClassGroup& ClassGroup::scoped(Scope scope, LevelSizes levels) const {
  WEFT_CHECK(has_scope(scope, levels));
  if (scope == Scope::whole) return *this;
  if (levels == kOwnLevels) levels = level_sizes();
  const LevelSpan span = span_of(scope, levels, view.size);
  const std::size_t last = borders.size() + 1;  // bound of the group, counted from that of a member alone
  const auto bound = [&](std::int64_t places) {
    if (places == 1) return std::size_t{0};
    return static_cast<std::size_t>(std::find(borders.begin(), borders.end(), places) - borders.begin()) + 1;
  };
  std::size_t before = 0;
  for (std::size_t below = 0; below < bound(span.below); ++below) before += last - below - (below == 0 ? 1 : 0);
  return between[before + bound(span.up_to) - bound(span.below) - 1];
}

}  // namespace weft
