#include "planner/partition/merge.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "base/error.hpp"

namespace weft {
namespace {

// One kernel or one message can do these at once: all but the size agrees (and, across classes, the number: a bucket's
// members are several transfers of the same classes).
bool agree(const Operation& a, const Operation& b) {
  OpKey ka = a.key, kb = b.key;
  ka.dims[0] = kb.dims[0] = 0;
  if (a.rank_class != b.rank_class || a.role != b.role || a.phase != b.phase ||
      a.per_micro_batch != b.per_micro_batch || ka != kb || a.is_transfer() != b.is_transfer()) {
    return false;
  }
  if (!a.communication) return true;
  const Communication &ca = *a.communication, &cb = *b.communication;
  return ca.collective == cb.collective && ca.group == cb.group && ca.scope == cb.scope && ca.levels == cb.levels &&
         a.rule == b.rule && a.leg == b.leg && ca.sends == cb.sends && (ca.transfer >= 0) == (cb.transfer >= 0);
}

Operation merged(const StepGraph& graph, const std::vector<OpId>& members) {
  Operation result = graph.op(members.front());
  result.subject = result.role;
  result.reads.clear();
  result.writes.clear();
  result.origins.clear();
  std::set<std::pair<std::int32_t, std::int32_t>> read;
  std::int64_t first_dim = 0;
  Bytes bytes;
  bool one_layer = true;
  for (const OpId id : members) {
    const Operation& member = graph.op(id);
    WEFT_CHECK(agree(graph.op(members.front()), member));
    for (const Read& r : member.reads) {
      if (read.insert({r.value.value, r.distance}).second) result.reads.push_back(r);
    }
    result.writes.insert(result.writes.end(), member.writes.begin(), member.writes.end());
    if (member.origins.empty()) {
      result.origins.push_back({id, 0, 0, 1, 1});
    } else {
      result.origins.insert(result.origins.end(), member.origins.begin(), member.origins.end());
    }
    first_dim += member.key.dims[0];
    if (member.communication) {
      bytes += member.communication->bytes;
      // Every class of the group merges the same transfers, so all arrive at the same number.
      result.communication->transfer = std::min(result.communication->transfer, member.communication->transfer);
    }
    one_layer = one_layer && member.layer == result.layer;
  }
  result.key.dims[0] = first_dim;
  if (result.communication) result.communication->bytes = bytes;
  if (!one_layer) result.layer = -1;
  return result;
}

// Buckets that differ in nothing else (data and expert-data gradients of one layer) are told apart by their part.
void number_parts(StepGraph& graph, const std::vector<std::size_t>& merged_at) {
  using Identity = std::tuple<ClassId, std::int32_t, std::int32_t, Phase, Role, Role, std::int32_t, std::int32_t>;
  const auto identity = [](const Operation& op) {
    return Identity{op.rank_class, op.chunk, op.layer, op.phase, op.role, op.subject, op.part, op.leg};
  };
  std::array<bool, kRoles> has_merged{};
  for (const std::size_t i : merged_at) {
    graph.operations[i].part = -1;
    has_merged[static_cast<std::size_t>(graph.operations[i].role)] = true;
  }
  std::set<Identity> taken;  // only what has the role of a merged one could have its identity
  for (const Operation& op : graph.operations) {
    if (has_merged[static_cast<std::size_t>(op.role)]) taken.insert(identity(op));
  }
  for (const std::size_t i : merged_at) {
    Operation& op = graph.operations[i];
    do ++op.part;
    while (!taken.insert(identity(op)).second);
  }
}

// Classes that share a transfer must have merged it with the same others, or their members would wait for each other
// in vain. `set_of`: by operation; -1: it stays alone.
void check_transfers(const StepGraph& graph, const std::vector<std::int32_t>& set_of, std::size_t sets) {
  std::vector<std::int32_t> least(sets, std::numeric_limits<std::int32_t>::max());  // transfer of each set
  const auto transfer = [&](std::size_t op) {
    return graph.operations[op].communication ? graph.operations[op].communication->transfer : -1;
  };
  for (std::size_t i = 0; i < set_of.size(); ++i) {
    if (set_of[i] < 0) continue;
    std::int32_t& number = least[set_of[i]];
    number = std::min(number, transfer(i));
  }
  std::map<std::int32_t, std::int32_t> became;  // by transfer
  for (std::size_t i = 0; i < set_of.size(); ++i) {
    if (transfer(i) < 0) continue;
    const std::int32_t number = set_of[i] < 0 ? transfer(i) : least[set_of[i]];
    WEFT_CHECK(became.try_emplace(transfer(i), number).first->second == number);
  }
}

// What travels rounded is a buffer of its own, as in Megatron, which has one for each element type.
std::vector<MergeSet> apart_by_wire_type(const StepGraph& graph, const std::vector<MergeSet>& sets) {
  std::vector<MergeSet> result;
  for (const MergeSet& set : sets) {
    std::map<ElementType, MergeSet> by_type;
    for (const OpId id : set.members) {
      MergeSet& together = by_type[graph.op(id).key.dtype];
      together.at_last = set.at_last;
      together.members.push_back(id);
    }
    for (auto& [type, together] : by_type) result.push_back(std::move(together));
  }
  return result;
}

}  // namespace

StepGraph merge_operations(const StepGraph& graph, const std::vector<MergeSet>& together) {
  const std::vector<MergeSet> sets = apart_by_wire_type(graph, together);
  std::vector<std::int32_t> set_of(graph.operations.size(), -1);
  std::vector<OpId> place_of_set;
  for (std::size_t s = 0; s < sets.size(); ++s) {
    WEFT_CHECK(!sets[s].members.empty());
    const auto [first, last] = std::minmax_element(sets[s].members.begin(), sets[s].members.end());
    place_of_set.push_back(sets[s].at_last ? *last : *first);
    for (const OpId id : sets[s].members) {
      WEFT_CHECK(set_of[id.index()] < 0);
      set_of[id.index()] = static_cast<std::int32_t>(s);
    }
  }
  check_transfers(graph, set_of, sets.size());
  StepGraph result;
  result.micro_batches = graph.micro_batches;
  result.tokens = graph.tokens;
  result.classes = graph.classes;
  result.links = graph.links;
  result.values = graph.values;
  result.operations.reserve(graph.operations.size());
  std::vector<std::size_t> merged_at;
  for (std::size_t i = 0; i < graph.operations.size(); ++i) {
    const OpId id = make_id<OpId>(i);
    if (set_of[i] < 0) {
      result.operations.push_back(graph.operations[i]);
      if (result.operations.back().origins.empty()) result.operations.back().origins.push_back({id, 0, 0, 1, 1});
      continue;
    }
    const std::size_t set = set_of[i];
    if (id != place_of_set[set]) continue;
    merged_at.push_back(result.operations.size());
    result.operations.push_back(merged(graph, sets[set].members));
  }
  number_parts(result, merged_at);
  return result;
}

std::vector<MergeSet> one_bucket(const StepGraph& graph) {
  // Identity of a bucket; layer -1 where all layers share one. Where a group spans classes, they have the same
  // parameters (all are of one stage) and so the same buckets.
  using Key = std::tuple<ClassId, Role, Phase, std::int32_t, ElementType, std::int32_t, std::int32_t, std::int32_t,
                         std::int32_t>;
  std::map<Key, std::vector<OpId>> buckets;
  for (std::size_t i = 0; i < graph.operations.size(); ++i) {
    const Operation& op = graph.operations[i];
    const bool bucketed = op.role == Role::grad_reduce || op.role == Role::shard_reduce ||
                          op.role == Role::replica_reduce || op.role == Role::param_gather || op.role == Role::update;
    if (!bucketed) continue;
    const std::int32_t group = op.communication ? op.communication->group.number : -1;
    // The embedding and the head are layers of their own, at the two ends of the model.
    const bool head = op.subject == Role::head || op.subject == Role::final_norm;
    const std::int32_t layer = !op.per_micro_batch ? -1 : op.layer < 0 && head ? -2 : op.layer;
    const std::int32_t chunk = op.per_micro_batch ? op.chunk : 0;
    const std::int32_t width = static_cast<std::int32_t>(op.key.dims[1]);  // the update's bytes per parameter
    // What is gathered encoded travels apart from what is not.
    const ElementType type = op.communication ? op.communication->format.type : ElementType::fp32;
    buckets[{op.rank_class, op.role, op.phase, group, type, layer, chunk, width, op.turn}].push_back(make_id<OpId>(i));
  }
  std::vector<MergeSet> sets;
  for (auto& [key, members] : buckets) {
    const bool reduces = std::get<1>(key) == Role::grad_reduce && graph.op(members.front()).per_micro_batch;
    if (members.size() > 1) sets.push_back({std::move(members), reduces});
  }
  return sets;
}

std::vector<MergeSet> merge_sets_of_legs(const SubstitutedGraph& substituted, const std::vector<MergeSet>& of_whole) {
  std::vector<MergeSet> result;
  for (const MergeSet& set : of_whole) {
    std::map<std::tuple<Substitution, LevelSizes, std::int32_t>, MergeSet> by_leg;
    for (const OpId whole : set.members) {
      for (const OpId leg : substituted.legs_of(whole)) {
        const Operation& op = substituted.graph().op(leg);
        MergeSet& together = by_leg[{op.rule, op.communication ? op.communication->levels : kOwnLevels, op.leg}];
        together.at_last = set.at_last;
        together.members.push_back(leg);
      }
    }
    for (auto& [leg, together] : by_leg) {
      if (set.members.size() == 1 || together.members.size() > 1) result.push_back(std::move(together));
    }
  }
  return result;
}

}  // namespace weft
