#include "plan/unfold.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "graph/op_lists.hpp"
#include "graph/operation_part.hpp"
#include "plan/waits.hpp"

namespace weft {
namespace {

// Every number that names something names something that is there.
void check_names(const Plan& plan) {
  if (plan.classes.size() != plan.graph.classes.size() || plan.issues.size() != plan.graph.operations.size()) {
    fail("the plan orders {} rank classes and issues {} operations, its graph has {} and {}", plan.classes.size(),
         plan.issues.size(), plan.graph.classes.size(), plan.graph.operations.size());
  }
  for (std::size_t c = 0; c < plan.classes.size(); ++c) {
    const ClassPlan& class_plan = plan.classes[c];
    const std::string& where = plan.graph.classes[c].name;
    for (std::size_t q = 0; q < class_plan.queues.size(); ++q) {
      const QueueKind kind = class_plan.queues[q].kind;
      if ((kind == QueueKind::compute) == (q == 0)) continue;
      fail("{}: queue {} ('{}') is a {} queue; queue 0 is the compute queue and the only one", where, q,
           class_plan.queues[q].name, name_of(kind));
    }
    const auto extra = [](const Queue& queue) { return queue.kind == QueueKind::extra; };
    if (std::count_if(class_plan.queues.begin(), class_plan.queues.end(), extra) > 1) {
      fail("{}: has more than one extra queue", where);
    }
    for (const IssueBlock& block : class_plan.blocks) {
      for (const OpId id : block.operations) {
        if (id.valid() && id.index() < plan.graph.operations.size()) continue;
        fail("{}: block '{}' names operation {}, which is not in 0..{}", where, name_of(block), id.value,
             static_cast<std::int64_t>(plan.graph.operations.size()) - 1);
      }
    }
    for (const Slot& slot : class_plan.order) {
      if (slot.block >= 0 && static_cast<std::size_t>(slot.block) < class_plan.blocks.size() &&
          slot.micro_batch >= -1 && slot.micro_batch < plan.graph.micro_batches) {
        const auto length = static_cast<std::int32_t>(class_plan.blocks[slot.block].operations.size());
        const bool to_end = slot.end == -1;
        if (slot.begin >= 0 && slot.begin <= length && (to_end || (slot.begin <= slot.end && slot.end <= length))) {
          continue;
        }
        fail("{}: its order names operations {} to {} of block {}, which has {}", where, slot.begin, slot.end,
             slot.block, length);
      }
      fail("{}: its order names block {} of {}, micro-batch {} of {}", where, slot.block, class_plan.blocks.size(),
           slot.micro_batch, plan.graph.micro_batches);
    }
  }
  for (std::size_t i = 0; i < plan.issues.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    const ClassPlan& class_plan = plan.classes[op.rank_class.index()];
    const std::int32_t queue = plan.issues[i].queue;
    const std::string& where = plan.graph.classes[op.rank_class.index()].name;
    if (queue < 0 || static_cast<std::size_t>(queue) >= class_plan.queues.size()) {
      fail("{}: '{}' is issued to queue {}, which is not in 0..{}", where, describe(op), queue,
           static_cast<std::int64_t>(class_plan.queues.size()) - 1);
    }
    const Queue& target = class_plan.queues[queue];
    if ((target.kind == QueueKind::communication) != op.is_transfer()) {
      fail("{}: '{}' is issued to '{}', which is a {} queue; transfers and only they go to communication queues", where,
           describe(op), target.name, name_of(target.kind));
    }
  }
}

// By value, for those whose writers wait; empty where none does (or nothing is placed yet).
std::vector<std::vector<OpId>> readers_of_waiting_values(const Plan& plan) {
  const auto waits = [](const Placement& place) { return place.waits && place.copies > 0; };
  if (plan.placements.size() != plan.graph.values.size() ||
      std::none_of(plan.placements.begin(), plan.placements.end(), waits)) {
    return {};
  }
  std::vector<std::vector<OpId>> readers(plan.graph.values.size());
  for (std::size_t i = 0; i < plan.graph.operations.size(); ++i) {
    for (const Read& read : plan.graph.operations[i].reads) {
      const bool per_micro_batch =
          plan.graph.value(read.value).per_micro_batch && plan.graph.operations[i].per_micro_batch;
      if (per_micro_batch && waits(plan.placements[read.value.index()])) {
        readers[read.value.index()].push_back(make_id<OpId>(i));
      }
    }
  }
  return readers;
}

}  // namespace

// By operation: who writes what it reads.
class Unfolded::DataSources {
 public:
  struct Source {
    OpId writer;
    std::int8_t distance = 0;
  };

  explicit DataSources(const StepGraph& graph) {
    const OpLists writers = writers_by_value(graph);
    begin_.reserve(graph.operations.size() + 1);
    begin_.push_back(0);
    for (const Operation& op : graph.operations) {
      for (const Read& read : op.reads) {
        const Slice slice = read_slice_of(graph, op, read.value);
        for (const OpId writer : writers[read.value.index()]) {
          if (!overlap(slice, slice_of(graph, graph.op(writer), read.value))) continue;
          sources_.push_back({writer, static_cast<std::int8_t>(read.distance)});
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
  lay_out(plan);
  join(plan);
  connect(plan);
}

void Unfolded::lay_out(const Plan& plan) {
  const auto micro_batches = static_cast<std::int32_t>(plan.graph.micro_batches);
  const std::size_t operations = plan.graph.operations.size();
  std::int64_t total = 0;
  for (const Operation& op : plan.graph.operations) {
    first_instance_.push_back(static_cast<std::int32_t>(total));
    per_micro_batch_.push_back(op.per_micro_batch);
    total += op.per_micro_batch ? micro_batches : 1;
    if (total > INT32_MAX / 2) fail("the plan has more than {} operation instances a step", INT32_MAX / 2);
  }
  position_.assign(total, -1);
  instances_.reserve(total);
  for (std::size_t c = 0; c < plan.classes.size(); ++c) {
    const ClassPlan& class_plan = plan.classes[c];
    queue_length_.emplace_back(class_plan.queues.size(), 0);
    std::int32_t chain = 0;
    for (const Slot& slot : class_plan.order) {
      for (const OpId id : operations_of(class_plan, slot)) {
        const Operation& op = plan.graph.op(id);
        const Issue& issue = plan.issues[id.index()];
        if (op.rank_class.index() != c) {
          fail("{}: its order names '{}' of {}", plan.graph.classes[c].name, describe(op),
               plan.graph.classes[op.rank_class.index()].name);
        }
        if (op.per_micro_batch != (slot.micro_batch >= 0)) {
          fail("{}: '{}' runs {}, but its slot says micro-batch {}", plan.graph.classes[c].name, describe(op),
               op.per_micro_batch ? "once per micro-batch" : "once a step", slot.micro_batch);
        }
        Instance instance;
        instance.operation = id;
        instance.micro_batch = slot.micro_batch;
        instance.rank_class = static_cast<std::int32_t>(c);
        instance.queue = issue.queue;
        instance.queue_position = queue_length_[c][issue.queue]++;
        const QueueKind kind = class_plan.queues[issue.queue].kind;
        if (kind == QueueKind::compute || issue.blocking) instance.chain_position = chain++;
        const std::size_t key = static_cast<std::size_t>(first_instance_[id.index()] + std::max(0, slot.micro_batch));
        if (position_[key] >= 0) fail("{} is issued twice", weft::describe(plan, instance));
        position_[key] = static_cast<std::int32_t>(instances_.size());
        instances_.push_back(instance);
      }
    }
    chain_length_.push_back(chain);
  }
  for (std::size_t i = 0; i < operations; ++i) {
    const Operation& op = plan.graph.operations[i];
    for (std::int32_t mb = 0; mb < (op.per_micro_batch ? micro_batches : 1); ++mb) {
      if (position_[first_instance_[i] + mb] >= 0) continue;
      fail("{}: '{}'{} is never issued", plan.graph.classes[op.rank_class.index()].name, describe(op),
           op.per_micro_batch ? fmt::format(", micro-batch {},", mb) : "");
    }
  }
}

void Unfolded::join(const Plan& plan) {
  struct Member {
    std::int32_t transfer, micro_batch, instance;
    auto operator<=>(const Member&) const = default;
  };
  std::vector<Member> members;
  for (std::size_t i = 0; i < instances_.size(); ++i) {
    const Operation& op = plan.graph.op(instances_[i].operation);
    if (op.communication && op.communication->transfer >= 0) {
      members.push_back({op.communication->transfer, instances_[i].micro_batch, static_cast<std::int32_t>(i)});
    }
  }
  std::sort(members.begin(), members.end());
  for (std::size_t i = 0; i < members.size(); ++i) {
    const bool first = i == 0 || members[i].transfer != members[i - 1].transfer ||
                       members[i].micro_batch != members[i - 1].micro_batch;
    if (first) joint_begin_.push_back(static_cast<std::int32_t>(i));
    instances_[members[i].instance].joint = static_cast<std::int32_t>(joint_begin_.size() - 1);
    joint_members_.push_back(members[i].instance);
  }
  joint_begin_.push_back(static_cast<std::int32_t>(members.size()));
}

void Unfolded::connect(const Plan& plan) {
  const auto micro_batches = static_cast<std::int32_t>(plan.graph.micro_batches);
  const DataSources sources(plan.graph);
  const std::vector<std::vector<OpId>> readers = readers_of_waiting_values(plan);
  WaitsInIssueOrder waits(plan, instances_);

  // The last instance so far in each queue and in the chain; before the first, the last of the previous iteration.
  struct Tail {
    std::vector<std::int32_t> queue;
    std::int32_t chain = -1;
  };
  std::vector<Tail> last(plan.classes.size());
  for (std::size_t c = 0; c < last.size(); ++c) last[c].queue.assign(plan.classes[c].queues.size(), -1);
  for (std::size_t i = 0; i < instances_.size(); ++i) {
    Tail& tail = last[instances_[i].rank_class];
    tail.queue[instances_[i].queue] = static_cast<std::int32_t>(i);
    if (instances_[i].chain_position >= 0) tail.chain = static_cast<std::int32_t>(i);
  }
  const std::vector<Tail> wrap = last;
  for (Tail& tail : last) {
    std::fill(tail.queue.begin(), tail.queue.end(), -1);
    tail.chain = -1;
  }

  reserve_edges(plan, sources);
  edge_begin_.push_back(0);
  for (std::size_t i = 0; i < instances_.size(); ++i) {
    const Instance& instance = instances_[i];
    const auto c = static_cast<std::size_t>(instance.rank_class);
    const auto q = static_cast<std::size_t>(instance.queue);
    for (const DataSources::Source& source : sources.of(instance.operation)) {
      const bool each = per_micro_batch_[source.writer.index()] && instance.micro_batch < 0;
      const std::int32_t first = each ? 0 : std::max(0, instance.micro_batch);
      const std::int32_t end = each ? micro_batches : first + 1;
      for (std::int32_t mb = first; mb < end; ++mb)
        edges_.push_back({instance_of(source.writer, mb), source.distance, EdgeKind::data});
    }
    wait_for_memory(plan, instance, readers);
    for (const WaitsInIssueOrder::For& wait : waits.next(instance)) {
      edges_.push_back({instance_of(wait.until, wait.micro_batch), wait.distance, EdgeKind::wait});
    }
    const auto self = static_cast<std::int32_t>(i);
    Tail& tail = last[c];
    const std::int32_t before = tail.queue[q];
    if (before >= 0) {
      edges_.push_back({before, 0, EdgeKind::queue});
    } else {
      edges_.push_back({wrap[c].queue[q], 1, EdgeKind::queue});
    }
    tail.queue[q] = self;
    if (instance.chain_position >= 0) {
      // Only neighbours of which one is a blocking transfer need an edge; the rest is queue order.
      const bool blocking = plan.issues[instance.operation.index()].blocking;
      const std::int32_t neighbour = tail.chain >= 0 ? tail.chain : wrap[c].chain;
      const Instance& other = instances_[neighbour];
      if (other.queue != instance.queue && (blocking || plan.issues[other.operation.index()].blocking)) {
        edges_.push_back({neighbour, static_cast<std::int8_t>(tail.chain >= 0 ? 0 : 1), EdgeKind::blocking});
      }
      tail.chain = self;
    }
    edge_begin_.push_back(static_cast<std::int64_t>(edges_.size()));
  }
}

// Room for all data edges and the order's; memory and explicit waits add few.
void Unfolded::reserve_edges(const Plan& plan, const DataSources& sources) {
  const auto micro_batches = static_cast<std::size_t>(plan.graph.micro_batches);
  std::size_t edges = 2 * instances_.size() + plan.waits.size() * micro_batches;
  for (std::size_t i = 0; i < plan.graph.operations.size(); ++i) {
    // Either the reader repeats, or it waits for every repetition of its writers.
    edges += sources.of(make_id<OpId>(i)).size() * micro_batches;
  }
  edges_.reserve(edges);
  edge_begin_.reserve(instances_.size() + 1);
}

// The copy that this instance writes was used `copies` micro-batches ago, or last in the previous iteration.
void Unfolded::wait_for_memory(const Plan& plan, const Instance& writer,
                               const std::vector<std::vector<OpId>>& readers) {
  if (readers.empty() || writer.micro_batch < 0) return;
  const auto micro_batches = static_cast<std::int32_t>(plan.graph.micro_batches);
  for (const Write& write : plan.graph.op(writer.operation).writes) {
    if (readers[write.value.index()].empty()) continue;
    const std::int32_t copies = plan.placements[write.value.index()].copies;
    const bool earlier = writer.micro_batch >= copies;
    const std::int32_t used = earlier ? writer.micro_batch - copies
                                      : writer.micro_batch + (micro_batches - 1 - writer.micro_batch) / copies * copies;
    for (const OpId reader : readers[write.value.index()]) {
      const std::int32_t from = instance_of(reader, used);
      const bool in_chain = instances_[from].chain_position >= 0 && writer.chain_position >= 0;
      if (!in_chain) edges_.push_back({from, static_cast<std::int8_t>(earlier ? 0 : 1), EdgeKind::reuse});
    }
  }
}

std::span<const Edge> Unfolded::waits_for(std::size_t instance) const {
  return std::span(edges_).subspan(edge_begin_[instance],
                                   static_cast<std::size_t>(edge_begin_[instance + 1] - edge_begin_[instance]));
}

std::span<const std::int32_t> Unfolded::members(std::size_t joint) const {
  const auto begin = static_cast<std::size_t>(joint_begin_[joint]);
  return std::span(joint_members_).subspan(begin, static_cast<std::size_t>(joint_begin_[joint + 1]) - begin);
}

std::int32_t Unfolded::instance_of(OpId operation, std::int32_t micro_batch) const {
  const std::int32_t offset = per_micro_batch_[operation.index()] ? micro_batch : 0;
  return position_[first_instance_[operation.index()] + offset];
}

std::int32_t Unfolded::queue_length(std::size_t rank_class, std::size_t queue) const {
  return queue_length_[rank_class][queue];
}

std::string describe(const Plan& plan, const Instance& instance) {
  std::string text =
      fmt::format("{}: {}", plan.graph.classes[instance.rank_class].name, describe(plan.graph.op(instance.operation)));
  if (instance.micro_batch >= 0) text += fmt::format(", micro-batch {}", instance.micro_batch);
  return text;
}

}  // namespace weft
