#include "planner/partition/buckets.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "graph/op_lists.hpp"

namespace weft {
namespace {

constexpr double kMiB = 1024 * 1024;

bool once_a_step(const Operation& op, Role role) {
  return op.role == role && !op.per_micro_batch && op.is_transfer();
}

// Whether it is one of the reductions that buckets are made of.
bool is_reduction(const Operation& op) {
  return once_a_step(op, Role::replica_reduce) || once_a_step(op, Role::grad_reduce) ||
         once_a_step(op, Role::shard_reduce);
}

// The transfers and the update of a parameter carry this name.
using ParameterName = std::tuple<ClassId, std::int32_t, Role>;
ParameterName parameter_of(const Operation& op) {
  return {op.rank_class, op.layer, op.subject};
}

using GroupName = std::pair<ClassId, GroupKind>;
using Buckets = std::map<GroupName, std::vector<std::vector<OpId>>>;

class Cutter {
 public:
  Cutter(const StepGraph& graph, const BucketRule& rule)
      : graph_(graph), rule_(rule), finished_(last_gradient_writers(graph)) {
    for (const Operation& op : graph.operations) {
      if (op.role == Role::tied_reduce) shared_.insert(parameter_of(op));
    }
  }

  // Returns the buckets of all groups of all classes.
  Buckets cut(Role role) const {
    std::map<GroupName, std::vector<BucketItem>> items;
    for (std::size_t i = 0; i < graph_.operations.size(); ++i) {
      const Operation& op = graph_.operations[i];
      if (once_a_step(op, role)) items[{op.rank_class, op.communication->group}].push_back(item(make_id<OpId>(i)));
    }
    Buckets buckets;
    for (auto& [group, list] : items) {
      // The graph has reductions in the order of backward, gathers in that of forward.
      if (role == Role::param_gather) std::reverse(list.begin(), list.end());
      if (role != Role::param_gather && rule_.order == BucketRule::Order::as_backward_finishes) {
        std::stable_sort(list.begin(), list.end(), [&](const BucketItem& a, const BucketItem& b) {
          return finished_[a.operation.index()] < finished_[b.operation.index()];
        });
      }
      buckets[group] = cut_into_buckets(list, rule_, graph_.classes[group.first.index()].stage);
    }
    return buckets;
  }

 private:
  BucketItem item(OpId id) const {
    const Operation& op = graph_.op(id);
    const Value& value =
        graph_.value(op.role == Role::param_gather ? write_of(op, Operand::payload) : read_of(op, Operand::payload));
    return {id, op.chunk, value.elements(), value.bytes(), shared_.contains(parameter_of(op))};
  }

  const StepGraph& graph_;
  const BucketRule& rule_;
  std::vector<std::int32_t> finished_;
  std::set<ParameterName> shared_;
};

void append(std::vector<MergeSet>& sets, std::vector<std::vector<OpId>> buckets) {
  for (std::vector<OpId>& members : buckets) {
    if (members.size() > 1) sets.push_back({std::move(members)});
  }
}

}  // namespace

BucketRule ddp_buckets(std::optional<double> mib) {
  BucketRule rule;
  rule.first_limit = static_cast<std::int64_t>(mib.value_or(1) * kMiB);
  rule.limit = static_cast<std::int64_t>(mib.value_or(25) * kMiB);
  return rule;
}

BucketRule megatron_whole_chunks(bool distributed_optimizer) {
  BucketRule rule;
  rule.unit = BucketRule::Unit::parameters;
  rule.order = BucketRule::Order::last_declared_first;
  rule.spans_chunks = false;
  rule.shared_embedding_apart = distributed_optimizer;
  return rule;
}

BucketRule megatron_buckets(const StepGraph& graph, bool distributed_optimizer,
                            std::optional<std::int64_t> parameters) {
  BucketRule rule = megatron_whole_chunks(distributed_optimizer);
  const std::int64_t group = graph.classes.front().group(GroupKind::dp).view.size;
  rule.first_limit = rule.limit = parameters.value_or(std::max<std::int64_t>(40'000'000, 1'000'000 * group));
  rule.cuts_first_chunk_only = true;
  return rule;
}

std::vector<std::vector<OpId>> cut_into_buckets(const std::vector<BucketItem>& items, const BucketRule& rule,
                                                std::int64_t stage) {
  std::vector<std::vector<OpId>> buckets;
  bool open = false;
  std::int64_t size = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const BucketItem& item = items[i];
    const bool apart = rule.shared_embedding_apart && item.shared_embedding;
    const bool other_chunk = !rule.spans_chunks && i > 0 && items[i - 1].chunk != item.chunk;
    if (!open || apart || other_chunk) {
      buckets.emplace_back();
      size = 0;
    }
    buckets.back().push_back(item.operation);
    size += rule.unit == BucketRule::Unit::parameters ? item.parameters : item.gradient.value;
    const bool has_first_layers = item.chunk == 0 && (stage == 0 || stage == rule.rank_with_copy);
    const bool cuts = !rule.cuts_first_chunk_only || has_first_layers;
    const std::int64_t limit = !cuts ? BucketRule::kUnlimited : buckets.size() == 1 ? rule.first_limit : rule.limit;
    open = !apart && size < limit;
  }
  return buckets;
}

std::vector<MergeSet> bucket_sets(const StepGraph& graph, const BucketRule& rule, bool gathers) {
  std::vector<MergeSet> sets = one_bucket(graph);
  std::erase_if(sets, [&](const MergeSet& set) {
    const Operation& op = graph.op(set.members.front());
    return is_reduction(op) || (gathers && once_a_step(op, Role::param_gather));
  });
  const Cutter cutter(graph, rule);
  Buckets reductions = cutter.cut(Role::grad_reduce);
  const bool of_shards_alone = reductions.empty();
  if (of_shards_alone) reductions = cutter.cut(Role::shard_reduce);
  std::vector<std::vector<OpId>> lists;
  for (const auto& [group, buckets] : reductions) lists.insert(lists.end(), buckets.begin(), buckets.end());
  append(sets, transfers_by_bucket(graph, Role::replica_reduce, lists));
  for (const auto& [group, buckets] : reductions) append(sets, buckets);
  if (!of_shards_alone) append(sets, transfers_by_bucket(graph, Role::shard_reduce, lists));
  if (gathers) {
    for (const auto& [group, buckets] : cutter.cut(Role::param_gather)) append(sets, buckets);
  }
  return sets;
}

std::vector<std::vector<OpId>> transfers_by_bucket(const StepGraph& graph, Role role,
                                                   const std::vector<std::vector<OpId>>& buckets) {
  constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  std::map<ParameterName, std::size_t> bucket_of;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    for (const OpId id : buckets[b]) bucket_of[parameter_of(graph.op(id))] = b;
  }
  std::map<std::tuple<ClassId, std::size_t, GroupKind>, std::vector<OpId>> sets;
  for (std::size_t i = 0; i < graph.operations.size(); ++i) {
    const Operation& op = graph.operations[i];
    if (!once_a_step(op, role)) continue;
    const auto found = bucket_of.find(parameter_of(op));
    const std::size_t bucket = found == bucket_of.end() ? kNone : found->second;
    sets[{op.rank_class, bucket, op.communication->group}].push_back(make_id<OpId>(i));
  }
  std::vector<std::vector<OpId>> result;
  for (auto& [name, members] : sets) result.push_back(std::move(members));
  return result;
}

std::vector<std::int32_t> last_gradient_writers(const StepGraph& graph) {
  std::vector<std::int32_t> last(graph.operations.size(), -1);
  const OpLists writers = writers_by_value(graph);
  // Replicas' reductions come before data parallelism's, which read them, and those come before the sums over replicas
  // of shards: one pass.
  for (std::size_t i = 0; i < graph.operations.size(); ++i) {
    const Operation& op = graph.operations[i];
    if (!is_reduction(op)) continue;
    for (const Read& read : op.reads) {
      for (const OpId writer : writers[read.value.index()]) {
        last[i] = std::max(last[i], graph.op(writer).per_micro_batch ? writer.value : last[writer.index()]);
      }
    }
  }
  return last;
}

}  // namespace weft
