#include "planner/partition/urgent_parts.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "planner/partition/buckets.hpp"

namespace weft {
namespace {

constexpr std::int64_t kSmallestPart = 4096;
// More parts shorten the wait for the one under way by less than a hundredth of the communication, and each wakes a
// thread on every rank, which the modelled time of a transfer does not contain.
constexpr std::int64_t kMaxUrgentParts = 64;

// A rank uses these at once: a layer; the embedding; the last norm and the head. They are in the order of their use.
struct UnitName {
  std::int32_t chunk = 0;
  std::int32_t place = 0;  // -1: the embedding; the head behind all layers
  friend auto operator<=>(const UnitName&, const UnitName&) = default;
};
UnitName unit_of(const Operation& op) {
  const bool head = op.layer < 0 && (op.subject == Role::head || op.subject == Role::final_norm);
  return {op.chunk, head ? std::numeric_limits<std::int32_t>::max() : op.layer};
}

using Unit = std::vector<OpId>;

// Cuts the transfers of one role and group of a class into consecutive ones that travel together.
class Runs {
 public:
  Runs(const StepGraph& graph, std::int64_t part) : graph_(graph), part_(part) {}

  // Those of one unit.
  void add(const UnitName& name, const Unit& unit) {
    if (!open_.empty() && name.chunk != chunk_) close();
    chunk_ = name.chunk;
    std::int64_t all = open_bytes_;
    for (const OpId id : unit) all += bytes(id);
    for (const OpId id : unit) {
      if (bytes(id) >= part_) {
        alone_.push_back(id);
        continue;
      }
      open_.push_back(id);
      open_bytes_ += bytes(id);
      if (open_bytes_ >= part_) close();
    }
    if (all >= part_) close();
  }
  void close() {
    if (!open_.empty()) together_.push_back(std::move(open_));
    open_.clear();
    open_bytes_ = 0;
  }

  const std::vector<std::vector<OpId>>& together() const { return together_; }
  const std::vector<OpId>& alone() const { return alone_; }
  std::int64_t part() const { return part_; }

 private:
  std::int64_t bytes(OpId id) const { return graph_.op(id).communication->bytes.value; }

  const StepGraph& graph_;
  std::int64_t part_;
  std::int32_t chunk_ = 0;
  std::int64_t open_bytes_ = 0;
  std::vector<OpId> open_;
  std::vector<std::vector<OpId>> together_;
  std::vector<OpId> alone_;
};

// Decides about all that one class does once a step.
class ClassParts {
 public:
  ClassParts(const StepGraph& graph, const CostModel& cost, ClassId rank_class)
      : graph_(graph), rank_class_(rank_class) {
    for (std::size_t i = 0; i < graph.operations.size(); ++i) {
      const Operation& op = graph.operations[i];
      if (op.rank_class != rank_class) continue;
      gathers_by_layer_ = gathers_by_layer_ || (op.per_micro_batch && op.role == Role::param_gather);
      if (op.per_micro_batch) continue;
      if (op.role == Role::update) updates_[unit_of(op)].push_back(make_id<OpId>(i));
      gathers_encoded_ = gathers_encoded_ || carries_codes(op);
      if (carries_codes(op)) continue;  // each travels alone and whole
      if (op.role == Role::grad_reduce || op.role == Role::shard_reduce || op.role == Role::param_gather) {
        transfers_[{op.role, op.communication->group}][unit_of(op)].push_back(make_id<OpId>(i));
      }
    }
    // Without transfers of a step there is nothing to update a layer early for; but at ZeRO 3 forward begins with the
    // first layer's gather, which waits for its update only.
    updates_by_layer_ = !transfers_.empty() || gathers_encoded_ || (gathers_by_layer_ && apart_costs_little(cost));
  }

  using Kind = std::pair<Role, GroupKind>;
  // `cuts_sums_of_shards`: what replicas of shards sum is cut too.
  template <class PartSize>
  void cut(PartSize part_size, bool cuts_sums_of_shards, UrgentParts& result) {
    std::map<Kind, Runs> runs;
    for (const auto& [kind, units] : transfers_) {
      Bytes all;
      for (const auto& [name, unit] : units) {
        for (const OpId id : unit) all += graph_.op(id).communication->bytes;
      }
      const OpId first = units.begin()->second.front();
      runs.emplace(kind, Runs(graph_, part_size(rank_class_, kind, graph_.op(first), all).value));
    }
    for (const auto& [kind, units] : transfers_) {
      for (const auto& [name, unit] : units) runs.at(kind).add(name, unit);
    }
    // Where data parallelism reduces in every micro-batch, replicas of shards reduce once a step.
    const bool once =
        std::any_of(runs.begin(), runs.end(), [](const auto& r) { return r.first.first == Role::grad_reduce; });
    const Role reduces = once ? Role::grad_reduce : Role::shard_reduce;
    for (auto& [kind, run] : runs) {
      run.close();
      for (const OpId id : run.alone()) {
        if (kind.first == reduces) reductions_.push_back({id});
        if (kind.first == Role::shard_reduce && !cuts_sums_of_shards) continue;
        const std::int64_t bytes = graph_.op(id).communication->bytes.value;
        result.parts[id.index()] = static_cast<std::int32_t>((bytes + run.part() / 2) / run.part());
      }
      for (const std::vector<OpId>& list : run.together()) {
        if (kind.first == reduces) reductions_.push_back(list);
        if (list.size() > 1) result.sets.push_back({list});
        for (const OpId id : list) update_together(list.front(), id);
      }
    }
    add_updates(result);
  }
  // Returns which reductions of gradients travel together.
  const std::vector<std::vector<OpId>>& reductions() const { return reductions_; }

 private:
  // Each unit's update is a kernel of its own.
  bool apart_costs_little(const CostModel& cost) const {
    Operation all;
    double apart = 0;
    for (const auto& [name, unit] : updates_) {
      Operation own = graph_.op(unit.front());
      for (std::size_t i = 1; i < unit.size(); ++i) own.key.dims[0] += graph_.op(unit[i]).key.dims[0];
      apart += seconds(cost.compute(own));
      const std::int64_t before = all.key.dims[0];
      all = own;
      all.key.dims[0] += before;
    }
    constexpr double kMaxUpdateOverhead = 1.05;
    return !updates_.empty() && apart <= kMaxUpdateOverhead * seconds(cost.compute(all));
  }

  // What travels together is updated together. A parameter is its layer and role.
  using ParameterName = std::pair<std::int32_t, Role>;
  static ParameterName parameter_of(const Operation& op) { return {op.layer, op.subject}; }
  ParameterName leader(ParameterName name) const {
    for (auto next = leader_.find(name); next != leader_.end() && next->second != name; next = leader_.find(name)) {
      name = next->second;
    }
    return name;
  }
  void update_together(OpId a, OpId b) {
    leader_[leader(parameter_of(graph_.op(b)))] = leader(parameter_of(graph_.op(a)));
  }

  void add_updates(UrgentParts& result) const {
    using Group = std::tuple<ParameterName, UnitName, std::int64_t>;  // one kernel has one width
    std::map<Group, std::vector<OpId>> groups;
    for (const auto& [name, unit] : updates_) {
      for (const OpId id : unit) {
        const Operation& op = graph_.op(id);
        const ParameterName all{-1, Role::update};
        const bool apart = updates_by_layer_ && (!transfers_.empty() || gathers_encoded_);
        const UnitName layer = updates_by_layer_ && !apart ? name : UnitName{};
        groups[{apart ? leader(parameter_of(op)) : all, layer, op.key.dims[1]}].push_back(id);
      }
    }
    for (auto& [group, members] : groups) {
      if (members.size() > 1) result.sets.push_back({std::move(members)});
    }
  }

  const StepGraph& graph_;
  ClassId rank_class_;
  static bool carries_codes(const Operation& op) {
    return op.role == Role::param_gather && op.communication->format.type == ElementType::u8;
  }

  bool gathers_by_layer_ = false, gathers_encoded_ = false, updates_by_layer_ = true;
  std::map<UnitName, Unit> updates_;
  std::map<ParameterName, ParameterName> leader_;  // of those that are updated together; absent: the parameter itself
  std::map<Kind, std::map<UnitName, Unit>> transfers_;
  std::vector<std::vector<OpId>> reductions_;
};

// Returns by class the first of those that it shares transfers with, directly or through others: all classes of a
// stage, and where a pipeline has two directions those of the stages with the copies of the same layers.
std::vector<std::size_t> first_that_shares(const StepGraph& graph) {
  std::vector<std::size_t> first;
  for (std::size_t c = 0; c < graph.classes.size(); ++c) first.push_back(c);
  const auto join = [&](std::size_t a, std::size_t b) {
    const std::size_t low = std::min(first[a], first[b]), high = std::max(first[a], first[b]);
    std::ranges::replace(first, high, low);
  };
  std::map<std::int64_t, std::size_t> of_stage;
  std::map<std::int32_t, std::size_t> of_transfer;
  for (std::size_t c = 0; c < graph.classes.size(); ++c) {
    join(of_stage.try_emplace(graph.classes[c].stage, c).first->second, c);
  }
  for (const Operation& op : graph.operations) {
    const bool is_cut = op.role == Role::grad_reduce || op.role == Role::shard_reduce || op.role == Role::param_gather;
    if (op.per_micro_batch || !is_cut || op.communication->transfer < 0) continue;
    const std::size_t c = op.rank_class.index();
    join(of_transfer.try_emplace(op.communication->transfer, c).first->second, c);
  }
  return first;
}

}  // namespace

Bytes best_part(const CostModel& cost, const Operation& probe, Bytes all) {
  Bytes best = all;
  double least = std::numeric_limits<double>::max();
  const auto large_enough = [&](std::int64_t parts) { return parts == 1 || all.value / parts >= kSmallestPart; };
  for (std::int64_t parts = 1; parts <= kMaxUrgentParts && large_enough(parts); parts *= 2) {
    Operation part = probe;
    part.communication->bytes = {std::max<std::int64_t>(1, all.value / parts)};
    part.key.dims[0] = part.communication->bytes.value;
    cost.choose_program(part);
    const double time = seconds(cost.alone(part)) * static_cast<double>(1 + parts);
    if (time < least) {
      least = time;
      best = part.communication->bytes;
    }
  }
  return best;
}

UrgentParts urgent_parts(const StepGraph& graph, const CostModel& cost, std::optional<Bytes> part) {
  UrgentParts result;
  result.parts.assign(graph.operations.size(), 1);
  // What repeats in every micro-batch goes by layer, as everywhere.
  for (MergeSet& set : one_bucket(graph)) {
    if (graph.op(set.members.front()).per_micro_batch) result.sets.push_back(std::move(set));
  }
  // Classes that share transfers cut them alike, whatever links each of them has.
  const std::vector<std::size_t> first_of = first_that_shares(graph);
  std::map<std::tuple<std::size_t, Role, GroupKind>, Bytes> sizes;
  const auto part_size = [&](ClassId c, const ClassParts::Kind& kind, const Operation& probe, Bytes all) {
    if (part) return *part;
    const std::tuple key{first_of[c.index()], kind.first, kind.second};
    const auto known = sizes.find(key);
    return known != sizes.end() ? known->second : sizes.emplace(key, best_part(cost, probe, all)).first->second;
  };
  std::vector<std::vector<OpId>> reductions;
  for (std::size_t c = 0; c < graph.classes.size(); ++c) {
    ClassParts parts(graph, cost, make_id<ClassId>(c));
    parts.cut(part_size, part.has_value(), result);
    reductions.insert(reductions.end(), parts.reductions().begin(), parts.reductions().end());
  }
  for (std::vector<OpId>& members : transfers_by_bucket(graph, Role::replica_reduce, reductions)) {
    if (members.size() > 1) result.sets.push_back({std::move(members)});
  }
  return result;
}

}  // namespace weft
