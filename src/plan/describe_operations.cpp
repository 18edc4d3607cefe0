#include "plan/describe_operations.hpp"

#include <fmt/format.h>

#include <map>

namespace weft {
namespace {

TrafficKind traffic_kind(const Operation& op) {
  switch (op.role) {
    case Role::grad_reduce:
    case Role::shard_reduce:
    case Role::grad_exchange:
    case Role::grad_gather:
    case Role::node_reduce:
    case Role::node_gather:
      return TrafficKind::dp_grad;
    case Role::param_gather:
      return TrafficKind::param_gather;
    case Role::tied_reduce:
    case Role::norm_reduce:
      return TrafficKind::other;
    default:
      break;
  }
  constexpr std::pair<GroupKind, TrafficKind> kTraffic[] = {
      {GroupKind::tp, TrafficKind::tp},     {GroupKind::kv, TrafficKind::tp}, {GroupKind::etp, TrafficKind::tp},
      {GroupKind::cp, TrafficKind::cp},     {GroupKind::ep, TrafficKind::ep}, {GroupKind::pp_prev, TrafficKind::pp},
      {GroupKind::pp_next, TrafficKind::pp}};
  for (const auto& [group, traffic] : kTraffic) {
    if (group == op.communication->group) return traffic;
  }
  return TrafficKind::other;
}

// Returns how many ranks take part in a transfer.
std::int64_t members_of(const ClassGroup& group, const Communication& c) {
  if (c.scope == Scope::self) return 1;
  return group.has_scope(c.scope, c.levels) ? group.scoped(c.scope, c.levels).view.size : group.view.size;
}

using ScopedGroup = std::tuple<GroupKind, Scope, LevelSizes>;

// Returns "dp", or "dp inner" for a transfer within one of the levels of its group.
std::string group_name(const ScopedGroup& group) {
  const auto& [kind, scope, levels] = group;
  const std::string name(name_of(kind));
  return scope == Scope::whole ? name : fmt::format("{} {}", name, in_words(scope, levels));
}

}  // namespace

std::vector<TimelineOperation> describe_operations(const Plan& plan, const std::vector<Nanos>& alone, bool names,
                                                   Timeline& timeline) {
  const auto add_name = [&](std::string name) {
    timeline.names.push_back(std::move(name));
    return static_cast<std::int32_t>(timeline.names.size()) - 1;
  };
  std::map<Phase, std::int32_t> phases;
  std::map<ScopedGroup, std::int32_t> groups;
  std::map<Collective, std::int32_t> collectives;
  const auto once = [&](auto& known, auto what, auto text_of) {
    if (!names) return 0;
    const auto [found, added] = known.try_emplace(what, 0);
    if (added) found->second = add_name(std::string(text_of(what)));
    return found->second;
  };
  const auto plain_name = [](auto what) { return name_of(what); };
  std::vector<TimelineOperation> templates;
  templates.reserve(plan.graph.operations.size());
  for (std::size_t i = 0; i < plan.graph.operations.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    TimelineOperation t;
    if (names) t.name = add_name(describe(op));
    t.phase = once(phases, op.phase, plain_name);
    t.rank = op.rank_class.value;
    t.queue = plan.issues[i].queue;
    if (op.communication) {
      const Communication& c = *op.communication;
      t.group = once(groups, ScopedGroup{c.group, c.scope, c.levels}, group_name);
      if (names) t.collective = once(collectives, c.collective, plain_name);
      const ClassGroup& group = plan.graph.classes[op.rank_class.index()].group(c.group);
      t.group_size = static_cast<std::int32_t>(members_of(group, c));
      t.activity = Activity::transfer;
      t.traffic = traffic_kind(op);
      t.bytes = c.bytes;
      t.receives = c.collective == Collective::send_recv && !c.sends;
    }
    t.alone = alone[i];
    templates.push_back(t);
  }
  return templates;
}

}  // namespace weft
