#include "planner/schedule/weave.hpp"

#include <algorithm>
#include <map>

#include "graph/op_lists.hpp"
#include "graph/operation_part.hpp"
#include "planner/schedule/cyclic/improve_order.hpp"
#include "planner/schedule/cyclic/list_order.hpp"
#include "planner/schedule/sharded_units.hpp"

namespace weft {
namespace {

class Weaver {
 public:
  Weaver(Plan& plan, const CostModel& cost, const OpLists& writers, const OpLists& readers, std::size_t rank_class,
         const WeaveOptions& options)
      : plan_(plan),
        cost_(cost),
        writers_(writers),
        readers_(readers),
        class_(plan.classes[rank_class]),
        options_(options),
        index_(plan.graph.operations.size(), -1),
        sharded_(class_.blocks.size()) {}

  void whole_step() {
    for (std::size_t b = 0; b < class_.blocks.size(); ++b) add_block(b);
    add_other_micro_batches();
    add_data(true);
    reorder();
  }

  void one_block(std::size_t block) {
    add_block(block);
    add_data(false);
    reorder();
  }

  // Pairs repeat: the next begins while this one's last transfers are under way. `near`: its backward is that of this
  // one's forward. `keep`: the order within each block stays as it is. Returns the pieces, as many of each block in
  // turn; micro-batches are yet to be said.
  std::vector<Slot> pair(std::size_t forward, std::size_t backward, bool near, bool keep) {
    add_block(forward);
    add_block(backward);
    if (keep) keep_order();
    add_data(false);
    const auto crosses = [&](const CyclicEdge& edge) {
      return in_a_block(edge.from) && in_a_block(edge.to) && block(edge.from) != block(edge.to);
    };
    if (!near) std::erase_if(problem_.edges, crosses);
    for (CyclicEdge& edge : problem_.edges) {
      if (crosses(edge)) edge.distance = 1;
    }
    return pieces_of(reorder());
  }

 private:
  static std::int32_t number(std::size_t i) { return static_cast<std::int32_t>(i); }

  void add_block(std::size_t block) {
    for (const OpId id : class_.blocks[block].operations) {
      if (is_sharded_traffic(plan_.graph.op(id))) continue;
      index_[id.index()] = number(problem_.operations.size());
      problem_.operations.push_back(cyclic_operation(id));
      operations_.push_back(id);
      block_of_.push_back(block);
    }
    if (options_.within_layers) keep_layers_apart(block);
    sharded_[block] = find_sharded_units(plan_.graph, class_.blocks[block], writers_, readers_);
    if (options_.prefetch >= 0) keep_apart(sharded_[block].gathers, options_.prefetch + 1);
    if (options_.gradient_buffers >= 0) keep_apart(sharded_[block].reductions, options_.gradient_buffers);
  }

  // A transfer that runs beside compute goes to the queue that the plan gives it; everything else is compute.
  CyclicOperation cyclic_operation(OpId id) const {
    const Operation& op = plan_.graph.op(id);
    CyclicOperation result;
    result.ns = static_cast<double>(cost_.alone(op).value);
    if (!op.communication) return result;
    if (!plan_.issues[id.index()].blocking) result.queue = plan_.issues[id.index()].queue;
    result.link = slowest_link(op);
    result.fixed_order = op.communication->transfer >= 0;
    return result;
  }

  std::int32_t slowest_link(const Operation& op) const {
    const TransferCost transfer = cost_.transfer(op);
    const auto slowest = std::max_element(transfer.work.begin(), transfer.work.end(),
                                          [](const LinkWork& a, const LinkWork& b) { return a.seconds < b.seconds; });
    return slowest == transfer.work.end() ? -1 : slowest->resource.value;
  }

  // Whoever uses unit i + distance or a later one comes after all that use unit i: its memory is then free.
  void keep_apart(const std::vector<ShardedUnit>& units, int distance) {
    std::int32_t before = -1;
    for (std::size_t u = 0; u + static_cast<std::size_t>(distance) < units.size(); ++u) {
      const std::int32_t border = add_marker();
      if (before >= 0) problem_.edges.push_back({before, border, 0});
      for (const OpId user : units[u].users) problem_.edges.push_back({index_[user.index()], border, 0});
      for (const OpId user : units[u + static_cast<std::size_t>(distance)].users) {
        problem_.edges.push_back({border, index_[user.index()], 0});
      }
      before = border;
    }
  }

  void keep_layers_apart(std::size_t block) {
    std::vector<std::vector<std::int32_t>> layers;
    std::int32_t layer = 0;
    for (const OpId id : class_.blocks[block].operations) {
      if (index_[id.index()] < 0) continue;
      const Operation& op = plan_.graph.op(id);
      if (layers.empty() || op.layer != layer) layers.emplace_back();
      layer = op.layer;
      layers.back().push_back(index_[id.index()]);
    }
    for (std::size_t i = 0; i + 1 < layers.size(); ++i) {
      const std::int32_t border = add_marker();
      for (const std::int32_t before : layers[i]) problem_.edges.push_back({before, border, 0});
      for (const std::int32_t behind : layers[i + 1]) problem_.edges.push_back({border, behind, 0});
    }
  }

  // An operation of the problem alone: it takes no time and stands between others.
  std::int32_t add_marker(double ns = 0) {
    CyclicOperation result;
    result.ns = ns;
    problem_.operations.push_back(result);
    operations_.push_back(OpId{});
    block_of_.push_back(class_.blocks.size());
    return number(problem_.operations.size() - 1);
  }

  // The micro-batches between the one whose forward follows the update and the one whose backward precedes it.
  void add_other_micro_batches() {
    if (plan_.graph.micro_batches == 1) return;
    double between = 0;
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      const bool counts =
          operations_[i].valid() && plan_.graph.op(operations_[i]).per_micro_batch && problem_.operations[i].queue == 0;
      if (counts) between += problem_.operations[i].ns;
    }
    const std::int32_t others = add_marker(between * static_cast<double>(plan_.graph.micro_batches - 1));
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      if (!operations_[i].valid() || !plan_.graph.op(operations_[i]).per_micro_batch) continue;
      const bool forward = class_.blocks[block_of_[i]].kind == BlockKind::forward;
      problem_.edges.push_back(forward ? CyclicEdge{number(i), others, 0} : CyclicEdge{others, number(i), 0});
    }
  }

  void add_data(bool across_iterations) {
    const StepGraph& graph = plan_.graph;
    std::map<std::pair<std::int32_t, Role>, std::vector<std::int32_t>> weight_readers;  // in backward
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      if (!operations_[i].valid()) continue;
      const Operation& op = graph.op(operations_[i]);
      const bool backward = op.phase == Phase::input_grad || op.phase == Phase::recompute;
      if (backward && !op.communication) weight_readers[{op.layer, op.role}].push_back(number(i));
      for (const Read& read : op.reads) {
        if (read.distance > 0 && !across_iterations) continue;
        const Slice slice = read_slice_of(graph, op, read.value);
        for (const OpId writer : writers_[read.value.index()]) {
          const std::int32_t from = index_[writer.index()];
          if (from < 0 || !overlap(slice, slice_of(graph, graph.op(writer), read.value))) continue;
          problem_.edges.push_back({from, number(i), read.distance});
        }
      }
    }
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      if (!operations_[i].valid()) continue;
      const Operation& op = graph.op(operations_[i]);
      if (op.phase != Phase::weight_grad || op.communication) continue;
      for (const std::int32_t reader : weight_readers[{op.layer, op.role}]) {
        problem_.edges.push_back({reader, number(i), 0});
      }
    }
  }

  std::size_t block(std::int32_t operation) const { return block_of_[operation]; }
  bool in_a_block(std::int32_t operation) const { return block(operation) < class_.blocks.size(); }

  void keep_order() {
    for (std::int32_t i = 1; i < number(operations_.size()); ++i) {
      if (block(i) == block(i - 1)) problem_.edges.push_back({i - 1, i, 0});
    }
  }

  std::vector<Slot> pieces_of(const std::vector<std::int32_t>& sequence) const {
    std::vector<Slot> pieces;
    std::vector<std::int32_t> position(class_.blocks.size(), 0);
    for (const std::int32_t i : sequence) {
      if (!in_a_block(i)) continue;
      const auto b = number(block(i));
      std::int32_t& at = position[block(i)];
      if (pieces.empty() || pieces.back().block != b) pieces.push_back({b, -1, at, at});
      pieces.back().end = ++at;
    }
    return pieces;
  }

  std::vector<std::int32_t> reorder() {
    problem_.queues = number(class_.queues.size());
    problem_.links = number(cost_.link_resources());
    if (operations_.empty()) return {};
    const CyclicGraph graph(problem_);
    std::vector<std::int32_t> sequence = list_sequence(graph).sequence;
    if (options_.visits > 0) {
      const Improved better = improve_order(problem_, graph.orders_of(sequence), {.visits = options_.visits});
      sequence = graph.sequence_of(better.orders).value();
    }
    std::vector<std::vector<OpId>> ordered(class_.blocks.size());
    for (const std::int32_t i : sequence) {
      const auto at = static_cast<std::size_t>(i);
      if (operations_[at].valid()) ordered[block_of_[at]].push_back(operations_[at]);
    }
    for (std::size_t b = 0; b < ordered.size(); ++b) {
      if (!ordered[b].empty()) class_.blocks[b].operations = with_sharded_units(ordered[b], sharded_[b]);
    }
    return sequence;
  }

  Plan& plan_;
  const CostModel& cost_;
  const OpLists& writers_;
  const OpLists& readers_;
  ClassPlan& class_;
  WeaveOptions options_;
  CyclicProblem problem_;
  std::vector<OpId> operations_;       // by operation of the problem; invalid: of the problem alone
  std::vector<std::size_t> block_of_;  // by operation of the problem
  std::vector<std::int32_t> index_;    // by operation of the plan; -1: not in the problem
  std::vector<ShardedUnits> sharded_;  // by block
};

}  // namespace

void weave_blocks(Plan& plan, const CostModel& cost, const WeaveOptions& options) {
  const OpLists writers = writers_by_value(plan.graph), readers = readers_by_value(plan.graph);
  for (std::size_t c = 0; c < plan.classes.size(); ++c) {
    WeaveOptions share = options;
    share.visits /= static_cast<std::int64_t>(plan.classes.size());
    if (plan.layout.pp == 1 && plan.layout.vpp == 1 && !options.within_layers) {
      Weaver(plan, cost, writers, readers, c, share).whole_step();
      continue;
    }
    const std::vector<IssueBlock>& blocks = plan.classes[c].blocks;
    const auto is_update = [](const IssueBlock& block) { return block.kind == BlockKind::update; };
    share.visits /= std::ssize(blocks) - std::count_if(blocks.begin(), blocks.end(), is_update);
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      if (is_update(blocks[b])) continue;  // ordered across classes
      Weaver(plan, cost, writers, readers, c, share).one_block(b);
    }
  }
}

void weave_pairs(Plan& plan, const CostModel& cost, const WeaveOptions& options) {
  const OpLists writers = writers_by_value(plan.graph), readers = readers_by_value(plan.graph);
  // Where several chunks make several kinds of pairs, a block's order must serve all of them: that of the block alone.
  const bool several = plan.layout.vpp > 1;
  if (several && !options.pairs_in_order) weave_blocks(plan, cost, options);
  const bool keep = several || options.pairs_in_order;
  for (std::size_t c = 0; c < plan.classes.size(); ++c) {
    ClassPlan& class_plan = plan.classes[c];
    const std::vector<PipelineSlot> pipeline = pipeline_order(plan.layout, plan.graph.classes[c].stage, true);
    std::map<std::pair<std::int32_t, std::int32_t>, std::vector<Slot>> patterns;
    std::vector<Slot> order;
    for (std::size_t i = 0; i < class_plan.order.size(); ++i) {
      const Slot& slot = class_plan.order[i];
      if (i >= pipeline.size() || !pipeline[i].with_next) {
        order.push_back(slot);
        continue;
      }
      const Slot& backward = class_plan.order[++i];
      const auto [pattern, first] = patterns.try_emplace({slot.block, backward.block});
      if (first) {
        const bool near = block_of(class_plan, slot).chunk == block_of(class_plan, backward).chunk &&
                          slot.micro_batch - backward.micro_batch == 1;
        pattern->second =
            Weaver(plan, cost, writers, readers, c, options)
                .pair(static_cast<std::size_t>(slot.block), static_cast<std::size_t>(backward.block), near, keep);
      }
      for (Slot piece : pattern->second) {
        piece.micro_batch = piece.block == slot.block ? slot.micro_batch : backward.micro_batch;
        order.push_back(piece);
      }
    }
    class_plan.order = std::move(order);
  }
}

}  // namespace weft
