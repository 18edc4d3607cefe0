#include "planner/schedule/blocks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "graph/op_lists.hpp"

namespace weft {
namespace {

// Sends and receives in each direction progress on their own, as separate streams would.
// The legs of a substituted transfer do so too, so that one part may be between nodes while the next is inside them; so
// do sums inside nodes of what is encoded between them.
std::string queue_name(const Operation& op, bool by_chunk) {
  const Communication& c = *op.communication;
  if (op.rule != Substitution::none || op.role == Role::node_reduce || op.role == Role::node_gather) {
    std::string name(name_of(c.group));
    if (c.scope != Scope::whole) name.append(" ").append(in_words(c.scope, c.levels));
    return c.collective == Collective::all_gather ? name + " gather" : name;
  }
  if (c.group == GroupKind::pp_prev || c.group == GroupKind::pp_next) {
    const std::string name =
        fmt::format("pp {} {}", op.phase == Phase::forward ? "forward" : "backward", c.sends ? "send" : "recv");
    return by_chunk ? fmt::format("{} {}", name, op.chunk) : name;
  }
  return std::string(name_of(c.group));
}

// Returns the moment in backward at which each reduction may start, counted in the operations of its class, or -1 where
// `finished` has none. Members of a reduction in several classes go by the latest of theirs, so that all order it alike
// although what hides their all-to-alls may differ; and no reduction goes before one that it reads from.
std::vector<std::int32_t> agreed_moments(const StepGraph& graph, const std::vector<std::int32_t>& finished) {
  std::vector<std::int32_t> operations(graph.classes.size(), 0), place, moments(graph.operations.size(), -1);
  for (const Operation& op : graph.operations) place.push_back(operations[op.rank_class.index()]++);
  for (std::size_t i = 0; i < moments.size(); ++i) {
    if (finished[i] >= 0) moments[i] = place[finished[i]];
  }
  const OpLists writers = writers_by_value(graph);
  for (const Role role : {Role::replica_reduce, Role::grad_reduce, Role::shard_reduce}) {
    std::map<std::int32_t, std::int32_t> latest;  // by transfer
    for (std::size_t i = 0; i < moments.size(); ++i) {
      const Operation& op = graph.operations[i];
      if (moments[i] < 0 || op.role != role) continue;
      for (const Read& read : op.reads) {
        for (const OpId writer : writers[read.value.index()]) {
          if (graph.op(writer).is_transfer()) moments[i] = std::max(moments[i], moments[writer.index()]);
        }
      }
      if (op.communication->transfer < 0) continue;
      std::int32_t& shared = latest.try_emplace(op.communication->transfer, moments[i]).first->second;
      shared = std::max(shared, moments[i]);
    }
    for (std::size_t i = 0; i < moments.size(); ++i) {
      const Operation& op = graph.operations[i];
      if (moments[i] < 0 || op.role != role || op.communication->transfer < 0) continue;
      moments[i] = latest.at(op.communication->transfer);
    }
  }
  return moments;
}

// Whether it is of the head of a layer group, each micro-batch of which goes forward and at once backward. The head's
// parameters are gathered ahead of that, at the end of forward.
bool is_of_layer_group_head(const Operation& op, const Layout& layout) {
  if (layout.layer_group == 1 || op.layer >= 0) return false;
  switch (op.role) {
    case Role::final_norm:
    case Role::head:
    case Role::head_gather:
    case Role::loss:
    case Role::loss_reduce:
      return true;
    default:
      return false;
  }
}

// Holds the blocks that a pipeline's order names, chunk after chunk and slice after slice in the order of a pass, and
// the update.
class Blocks {
 public:
  Blocks(const std::vector<PipelinePass>& pipeline, const Layout& layout)
      : layout_(layout), ids_(layout.vpp * layout.slices() * kBlockKinds) {
    for (const PipelinePass& pass : pipeline) ids_[place(pass.kind, pass.chunk, pass.slice)] = BlockId{0};
    for (std::int32_t chunk = 0; chunk < layout.vpp; ++chunk) {
      for (std::int32_t slice = 0; slice < layout.slices(); ++slice) declare(chunk, slice);
    }
    blocks_.push_back({BlockKind::update});
  }

  void add(OpId id, const Operation& op) {
    const BlockId block = op.per_micro_batch ? of(kind_of(op), op.chunk, slice_of(op)) : update();
    blocks_[block].operations.push_back(id);
  }
  BlockId of(BlockKind kind, std::int32_t chunk, std::int32_t slice) const { return ids_[place(kind, chunk, slice)]; }
  BlockId update() const { return blocks_.last_id(); }
  IdVector<BlockId, IssueBlock> take() { return std::move(blocks_); }

 private:
  void declare(std::int32_t chunk, std::int32_t slice) {
    for (int k = 0; k < kBlockKinds; ++k) {
      const auto kind = static_cast<BlockKind>(k);
      BlockId& id = ids_[place(kind, chunk, slice)];
      if (!id.valid()) continue;
      id = blocks_.next_id();
      blocks_.push_back({.kind = kind, .chunk = chunk, .slice = layout_.has_slices() ? slice : -1});
    }
  }
  std::size_t place(BlockKind kind, std::int32_t chunk, std::int32_t slice) const {
    return static_cast<std::size_t>((chunk * layout_.slices() + slice) * kBlockKinds + static_cast<std::int32_t>(kind));
  }
  std::int32_t slice_of(const Operation& op) const { return layout_.has_slices() ? op.turn : 0; }
  // Where backward is split, what makes gradients of weights has a block of its own, but for what takes a moment.
  BlockKind kind_of(const Operation& op) const {
    // The micro-batches of a reduction group go forward and at once backward, all of them in one block, so that each
    // has the memory that the one before it had.
    const bool passes_in_turns = layout_.reduction_group() > 1;
    if (op.phase == Phase::forward && !passes_in_turns && !is_of_layer_group_head(op, layout_)) {
      return BlockKind::forward;
    }
    if (of(BlockKind::backward, op.chunk, slice_of(op)).valid()) return BlockKind::backward;
    return half_of_backward(op, layout_);
  }

  const Layout& layout_;
  IdVector<BlockId, IssueBlock> blocks_;
  std::vector<BlockId> ids_;  // by chunk, slice and kind; not valid: no such block
};

}  // namespace

QueueId communication_queue(ClassPlan& plan, const std::string& name) {
  for (const QueueId q : plan.queues.ids()) {
    if (plan.queues[q].name == name) return q;
  }
  plan.queues.push_back({name, QueueKind::communication});
  return plan.queues.last_id();
}

void issue_by_group(Plan& plan) {
  plan.classes.assign(plan.graph.classes.size(), {});
  plan.issues.assign(plan.graph.operations.size(), {});
  // Where micro-batches go back and forth, each chunk of a stage has peers of its own. Where orders are searched, the
  // messages of two chunks may leave in another order than their receiver reads them in.
  const ScheduleRow& row = row_of(plan.layout.schedule);
  const bool by_chunk = row.in_waves || (row.searched && row.several_chunks);
  for (ClassPlan& c : plan.classes) c.queues.push_back({"compute", QueueKind::compute});
  for (std::size_t i = 0; i < plan.graph.operations.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    if (!op.communication) continue;
    plan.issues[i].queue = communication_queue(plan.classes[op.rank_class.index()], queue_name(op, by_chunk));
  }
}

void block_on_transfers(Plan& plan) {
  for (std::size_t i = 0; i < plan.graph.operations.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    // A blocking send would deadlock 1F1B: each neighbour would wait for the other to receive first.
    const bool send =
        op.communication && op.communication->collective == Collective::send_recv && op.communication->sends;
    plan.issues[i].blocking = op.is_transfer() && !send;
  }
}

// A norm reads what was recomputed, which its weight gradient would keep until the other half. It is brief, so where
// some layers alone are recomputed those of all go with their input gradients.
BlockKind half_of_backward(const Operation& op, const Layout& layout) {
  if (op.phase != Phase::weight_grad) return BlockKind::input_grad;
  const bool is_brief =
      op.key.kind == OpKind::norm && layout.recompute == Recompute::full && layout.reduces_once_a_step();
  return is_brief ? BlockKind::input_grad : BlockKind::weight_grad;
}

void order_blocks(Plan& plan, const PipelineOrders& of_stages) {
  std::vector<Blocks> blocks;
  for (const RankClass& c : plan.graph.classes) blocks.emplace_back(of_stages[c.stage], plan.layout);
  for (std::size_t i = 0; i < plan.graph.operations.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    blocks[op.rank_class.index()].add(make_id<OpId>(i), op);
  }
  for (std::size_t c = 0; c < plan.classes.size(); ++c) {
    std::vector<IssueSlot>& order = plan.classes[c].order;
    order.clear();
    for (const PipelinePass& pass : of_stages[plan.graph.classes[c].stage]) {
      order.push_back({blocks[c].of(pass.kind, pass.chunk, pass.slice), pass.micro_batch});
    }
    order.push_back({blocks[c].update(), kOncePerStep});
    plan.classes[c].blocks = blocks[c].take();
  }
}

void order_reductions(Plan& plan, const std::vector<std::int32_t>& finished) {
  const std::vector<std::int32_t> moments = agreed_moments(plan.graph, finished);
  for (ClassPlan& c : plan.classes) {
    std::vector<OpId>& update = block_of(c, BlockKind::update).operations;
    const auto rest =
        std::stable_partition(update.begin(), update.end(), [&](OpId id) { return moments[id.index()] >= 0; });
    // The sort is stable: reductions stand before those that read them and finish no later.
    std::stable_sort(update.begin(), rest, [&](OpId a, OpId b) { return moments[a.index()] < moments[b.index()]; });
  }
}

}  // namespace weft
