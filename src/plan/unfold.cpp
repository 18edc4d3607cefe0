#include "plan/unfold.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "graph/op_lists.hpp"
#include "graph/operation_part.hpp"
#include "plan/late.hpp"
#include "plan/waits.hpp"

namespace weft {
namespace {

// Throws where a number names something that is not there.
void check_names(const Plan& plan) {
  if (plan.classes.size() != plan.graph.classes.size() || plan.issues.size() != plan.graph.operations.size()) {
    fail("the plan orders {} rank classes and issues {} operations, its graph has {} and {}", plan.classes.size(),
         plan.issues.size(), plan.graph.classes.size(), plan.graph.operations.size());
  }
  for (const ClassId c : plan.classes.ids()) {
    const ClassPlan& class_plan = plan.classes[c];
    const std::string& where = plan.graph.classes[c].name;
    for (const QueueId q : class_plan.queues.ids()) {
      const QueueKind kind = class_plan.queues[q].kind;
      if ((kind == QueueKind::compute) == (q == kComputeQueue)) continue;
      fail("{}: queue {} ('{}') is a {} queue; queue 0 is the compute queue and the only one", where, q.value,
           class_plan.queues[q].name, name_of(kind));
    }
    const auto extra = [](const Queue& queue) { return queue.kind == QueueKind::extra; };
    if (std::count_if(class_plan.queues.begin(), class_plan.queues.end(), extra) > 1) {
      fail("{}: has more than one extra queue", where);
    }
    for (const IssueBlock& block : class_plan.blocks) {
      for (const OpId id : block.operations) {
        if (plan.graph.operations.contains(id)) continue;
        fail("{}: block '{}' names operation {}, which is not in 0..{}", where, name_of(block), id.value,
             static_cast<std::int64_t>(plan.graph.operations.size()) - 1);
      }
    }
    for (const IssueSlot& slot : class_plan.order) {
      if (class_plan.blocks.contains(slot.block) && slot.micro_batch >= kOncePerStep &&
          slot.micro_batch.value < plan.graph.micro_batches) {
        const auto length = static_cast<std::int32_t>(class_plan.blocks[slot.block].operations.size());
        const bool to_end = slot.end == -1;
        if (slot.begin >= 0 && slot.begin <= length && (to_end || (slot.begin <= slot.end && slot.end <= length))) {
          continue;
        }
        fail("{}: its order names operations {} to {} of block {}, which has {}", where, slot.begin, slot.end,
             slot.block.value, length);
      }
      fail("{}: its order names block {} of {}, micro-batch {} of {}", where, slot.block.value,
           class_plan.blocks.size(), slot.micro_batch.value, plan.graph.micro_batches);
    }
  }
  for (const OpId id : plan.issues.ids()) {
    const Operation& op = plan.graph.op(id);
    const ClassPlan& class_plan = plan.classes[op.rank_class];
    const QueueId queue = plan.issues[id].queue;
    const std::string& where = plan.graph.classes[op.rank_class].name;
    if (!class_plan.queues.contains(queue)) {
      fail("{}: '{}' is issued to queue {}, which is not in 0..{}", where, describe(op), queue.value,
           static_cast<std::int64_t>(class_plan.queues.size()) - 1);
    }
    const Queue& target = class_plan.queues[queue];
    if ((target.kind == QueueKind::communication) != op.is_transfer()) {
      fail("{}: '{}' is issued to '{}', which is a {} queue; transfers and only they go to communication queues", where,
           describe(op), target.name, name_of(target.kind));
    }
  }
}

// The readers of those values whose writers wait for memory; empty where none does, or nothing is placed yet.
IdVector<ValueId, std::vector<OpId>> readers_of_waiting_values(const Plan& plan) {
  const auto waits = [](const Placement& place) { return place.waits && place.copies > 0; };
  if (plan.placements.size() != plan.graph.values.size() ||
      std::none_of(plan.placements.begin(), plan.placements.end(), waits)) {
    return {};
  }
  IdVector<ValueId, std::vector<OpId>> readers(plan.graph.values.size());
  for (const OpId id : plan.graph.operations.ids()) {
    const Operation& op = plan.graph.op(id);
    for (const Read& read : op.reads) {
      const bool per_micro_batch = plan.graph.value(read.value).per_micro_batch && op.per_micro_batch;
      if (per_micro_batch && waits(plan.placements[read.value])) readers[read.value].push_back(id);
    }
  }
  return readers;
}

}  // namespace

// Knows for each operation who writes what it reads.
class Unfolded::DataSources {
 public:
  struct Source {
    OpId writer;
    std::int8_t distance = 0;
  };

  explicit DataSources(const Plan& plan) {
    const StepGraph& graph = plan.graph;
    const OpLists writers = writers_by_value(graph);
    begin_.reserve(graph.operations.size() + 1);
    begin_.push_back(0);
    for (const OpId id : graph.operations.ids()) {
      const Operation& op = graph.op(id);
      for (const Read& read : op.reads) {
        const Slice slice = read_slice_of(graph, op, read.value);
        for (const OpId writer : writers[read.value.index()]) {
          if (!overlap(slice, slice_of(graph, graph.op(writer), read.value))) continue;
          sources_.push_back({writer, static_cast<std::int8_t>(passes_between(plan, writer, id, read.distance))});
        }
      }
      begin_.push_back(sources_.size());
    }
  }
  std::span<const Source> of(OpId operation) const {
    const std::size_t begin = begin_[operation.index()];
    return std::span(sources_).subspan(begin, begin_[operation.index() + 1] - begin);
  }

 private:
  std::vector<Source> sources_;
  std::vector<std::size_t> begin_;
};

Unfolded::Unfolded(const Plan& plan) {
  check_names(plan);
  check_waits(plan);
  check_late(plan);
  lay_out(plan);
  join(plan);
  connect(plan);
}

void Unfolded::lay_out(const Plan& plan) {
  const auto executions = [&](const Operation& op) { return op.per_micro_batch ? plan.graph.micro_batches : 1; };
  std::size_t total = 0;
  for (const Operation& op : plan.graph.operations) {
    first_position_.push_back(total);
    per_micro_batch_.push_back(op.per_micro_batch);
    total += executions(op);
    if (total > INT32_MAX / 2) fail("the plan has more than {} operation instances a step", INT32_MAX / 2);
  }
  found_.resize(total);
  instances_.reserve(total);
  for (const ClassId c : plan.classes.ids()) {
    const ClassPlan& class_plan = plan.classes[c];
    first_of_class_.push_back(instances_.next_id());
    queue_length_.emplace_back(class_plan.queues.size(), 0);
    std::int32_t chain = 0;
    for (const IssueSlot& slot : class_plan.order) {
      for (const OpId id : operations_of(class_plan, slot)) {
        const Operation& op = plan.graph.op(id);
        const Issue& issue = plan.issues[id];
        if (op.rank_class != c) {
          fail("{}: its order names '{}' of {}", plan.graph.classes[c].name, describe(op),
               plan.graph.classes[op.rank_class].name);
        }
        if (op.per_micro_batch != slot.micro_batch.valid()) {
          fail("{}: '{}' runs {}, but its slot says micro-batch {}", plan.graph.classes[c].name, describe(op),
               op.per_micro_batch ? "once per micro-batch" : "once a step", slot.micro_batch.value);
        }
        Instance instance;
        instance.operation = id;
        instance.micro_batch = slot.micro_batch;
        instance.rank_class = c;
        instance.queue = issue.queue;
        instance.queue_position = queue_length_[c][issue.queue]++;
        const QueueKind kind = class_plan.queues[issue.queue].kind;
        if (kind == QueueKind::compute || issue.blocking) instance.chain_position = chain++;
        InstanceId& found = found_[first_position_[id] + (op.per_micro_batch ? slot.micro_batch.index() : 0)];
        if (found.valid()) fail("{} is issued twice", weft::describe(plan, instance));
        found = instances_.next_id();
        instances_.push_back(instance);
      }
    }
    chain_length_.push_back(chain);
  }
  first_of_class_.push_back(instances_.next_id());
  for (const OpId id : plan.graph.operations.ids()) {
    const Operation& op = plan.graph.op(id);
    for (const MicroBatch mb : IdRange<MicroBatch>(executions(op))) {
      if (instance_of(id, mb).valid()) continue;
      fail("{}: '{}'{} is never issued", plan.graph.classes[op.rank_class].name, describe(op),
           op.per_micro_batch ? fmt::format(", micro-batch {},", mb.value) : "");
    }
  }
}

void Unfolded::join(const Plan& plan) {
  struct Member {
    std::int32_t transfer;
    MicroBatch micro_batch;
    InstanceId instance;
    auto operator<=>(const Member&) const = default;
  };
  std::vector<Member> members;
  for (const InstanceId i : instances_.ids()) {
    const Operation& op = plan.graph.op(instances_[i].operation);
    if (op.communication && op.communication->transfer >= 0) {
      members.push_back({op.communication->transfer, instances_[i].micro_batch, i});
    }
  }
  std::sort(members.begin(), members.end());
  for (std::size_t i = 0; i < members.size(); ++i) {
    const bool first = i == 0 || members[i].transfer != members[i - 1].transfer ||
                       members[i].micro_batch != members[i - 1].micro_batch;
    if (first) joint_begin_.push_back(i);
    instances_[members[i].instance].joint = make_id<JointId>(joint_begin_.size() - 1);
    joint_members_.push_back(members[i].instance);
  }
  joint_begin_.push_back(members.size());
}

void Unfolded::connect(const Plan& plan) {
  const IdRange<MicroBatch> micro_batches(plan.graph.micro_batches);
  const DataSources sources(plan);
  const IdVector<ValueId, std::vector<OpId>> readers = readers_of_waiting_values(plan);
  WaitsInIssueOrder waits(plan, instances_);

  // The last instance so far in each queue and in the chain; before the first, the last of the previous iteration.
  struct Tail {
    IdVector<QueueId, InstanceId> queue;
    InstanceId chain;
  };
  IdVector<ClassId, Tail> last;
  for (const ClassPlan& c : plan.classes) last.push_back({IdVector<QueueId, InstanceId>(c.queues.size()), {}});
  IdVector<ClassId, Tail> wrap = last;
  for (const InstanceId i : instances_.ids()) {
    Tail& tail = wrap[instances_[i].rank_class];
    tail.queue[instances_[i].queue] = i;
    if (instances_[i].chain_position >= 0) tail.chain = i;
  }

  reserve_edges(plan, sources);
  edge_begin_.push_back(0);
  for (const InstanceId self : instances_.ids()) {
    const Instance& instance = instances_[self];
    for (const DataSources::Source& source : sources.of(instance.operation)) {
      const auto wait_for = [&](MicroBatch mb) {
        edges_.push_back({instance_of(source.writer, mb), source.distance, EdgeKind::data});
      };
      if (per_micro_batch_[source.writer] && instance.micro_batch == kOncePerStep) {
        for (const MicroBatch mb : micro_batches) wait_for(mb);
      } else {
        wait_for(instance.micro_batch);
      }
    }
    wait_for_memory(plan, instance, readers);
    for (const WaitsInIssueOrder::For& wait : waits.next(instance)) {
      edges_.push_back({instance_of(wait.until, wait.micro_batch), wait.distance, EdgeKind::wait});
    }
    Tail& tail = last[instance.rank_class];
    const Tail& previous = wrap[instance.rank_class];
    InstanceId& before = tail.queue[instance.queue];
    if (before.valid()) {
      edges_.push_back({before, 0, EdgeKind::queue});
    } else {
      edges_.push_back({previous.queue[instance.queue], 1, EdgeKind::queue});
    }
    before = self;
    if (instance.chain_position >= 0) {
      // Only neighbours of which one is a blocking transfer need an edge; the rest is queue order.
      const bool blocking = plan.issues[instance.operation].blocking;
      const InstanceId neighbour = tail.chain.valid() ? tail.chain : previous.chain;
      const Instance& other = instances_[neighbour];
      if (other.queue != instance.queue && (blocking || plan.issues[other.operation].blocking)) {
        edges_.push_back({neighbour, static_cast<std::int8_t>(tail.chain.valid() ? 0 : 1), EdgeKind::blocking});
      }
      tail.chain = self;
    }
    edge_begin_.push_back(edges_.size());
  }
}

// Makes room for all edges of data and order; memory and explicit waits add few.
void Unfolded::reserve_edges(const Plan& plan, const DataSources& sources) {
  const std::size_t micro_batches = plan.graph.micro_batches;
  std::size_t edges = 2 * instances_.size() + plan.waits.size() * micro_batches;
  // Either a reader repeats, or it waits for every repetition of its writers.
  for (const OpId id : plan.graph.operations.ids()) edges += sources.of(id).size() * micro_batches;
  edges_.reserve(edges);
  edge_begin_.reserve(instances_.size() + 1);
}

// The copy that this instance writes was used `copies` micro-batches ago, or last in the previous iteration, whose late
// readers are of this pass.
void Unfolded::wait_for_memory(const Plan& plan, const Instance& writer,
                               const IdVector<ValueId, std::vector<OpId>>& readers) {
  if (readers.empty() || writer.micro_batch == kOncePerStep) return;
  const std::int32_t mb = writer.micro_batch.value, last = static_cast<std::int32_t>(plan.graph.micro_batches) - 1;
  for (const Write& write : plan.graph.op(writer.operation).writes) {
    if (readers[write.value].empty()) continue;
    const std::int32_t copies = plan.placements[write.value].copies;
    const bool earlier = mb >= copies;
    const MicroBatch used{earlier ? mb - copies : mb + (last - mb) / copies * copies};
    for (const OpId reader : readers[write.value]) {
      const InstanceId from = instance_of(reader, used);
      const bool in_chain = instances_[from].chain_position >= 0 && writer.chain_position >= 0;
      const std::int32_t passes = passes_between(plan, reader, writer.operation, earlier ? 0 : 1);
      if (!in_chain) edges_.push_back({from, static_cast<std::int8_t>(passes), EdgeKind::reuse});
    }
  }
}

std::span<const Edge> Unfolded::waits_for(InstanceId instance) const {
  const std::size_t begin = edge_begin_[instance.index()];
  return std::span(edges_).subspan(begin, edge_begin_[instance.index() + 1] - begin);
}

std::span<const InstanceId> Unfolded::members(JointId joint) const {
  const std::size_t begin = joint_begin_[joint.index()];
  return std::span(joint_members_).subspan(begin, joint_begin_[joint.index() + 1] - begin);
}

InstanceId Unfolded::instance_of(OpId operation, MicroBatch micro_batch) const {
  return found_[first_position_[operation] + (per_micro_batch_[operation] ? micro_batch.index() : 0)];
}

std::string describe(const Plan& plan, const Instance& instance) {
  std::string text =
      fmt::format("{}: {}", plan.graph.classes[instance.rank_class].name, describe(plan.graph.op(instance.operation)));
  if (instance.micro_batch.valid()) text += fmt::format(", micro-batch {}", instance.micro_batch.value);
  return text;
}

}  // namespace weft
