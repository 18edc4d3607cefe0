#include "plan/describe_operations.hpp"

#include <map>

namespace weft {
namespace {

TrafficKind traffic_kind(const Operation& op) {
  switch (op.role) {
    case Role::grad_reduce:
      return TrafficKind::dp_grad;
    case Role::param_gather:
      return TrafficKind::param_gather;
    case Role::tied_reduce:
    case Role::norm_reduce:
      return TrafficKind::other;
    default:
      break;
  }
  switch (op.communication->group) {
    case GroupKind::tp:
    case GroupKind::kv:
    case GroupKind::etp:
      return TrafficKind::tp;
    case GroupKind::cp:
      return TrafficKind::cp;
    case GroupKind::ep:
      return TrafficKind::ep;
    case GroupKind::pp_prev:
    case GroupKind::pp_next:
      return TrafficKind::pp;
    default:
      return TrafficKind::other;
  }
}

}  // namespace

std::vector<TimelineOperation> describe_operations(const Plan& plan, const std::vector<Nanos>& alone, bool names,
                                                   Timeline& timeline) {
  const auto add_name = [&](std::string name) {
    timeline.names.push_back(std::move(name));
    return static_cast<std::int32_t>(timeline.names.size()) - 1;
  };
  std::map<Phase, std::int32_t> phases;
  std::map<GroupKind, std::int32_t> groups;
  const auto once = [&](auto& known, auto what) {
    if (!names) return 0;
    const auto [found, added] = known.try_emplace(what, 0);
    if (added) found->second = add_name(std::string(name_of(what)));
    return found->second;
  };
  std::vector<TimelineOperation> templates;
  templates.reserve(plan.graph.operations.size());
  for (std::size_t i = 0; i < plan.graph.operations.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    TimelineOperation t;
    if (names) t.name = add_name(describe(op));
    t.phase = once(phases, op.phase);
    t.rank = op.rank_class.value;
    t.queue = plan.issues[i].queue;
    if (op.communication) {
      t.group = once(groups, op.communication->group);
      t.activity = Activity::transfer;
      t.traffic = traffic_kind(op);
      t.bytes = op.communication->bytes;
      t.receives = op.communication->collective == Collective::send_recv && !op.communication->sends;
    }
    t.alone = alone[i];
    templates.push_back(t);
  }
  return templates;
}

}  // namespace weft
