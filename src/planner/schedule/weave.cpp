#include "planner/schedule/weave.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "graph/op_lists.hpp"
#include "graph/operation_part.hpp"
#include "planner/schedule/cyclic/improve_order.hpp"
#include "planner/schedule/cyclic/list_order.hpp"
#include "planner/schedule/cyclic_operation.hpp"
#include "planner/schedule/sharded_units.hpp"

namespace weft {
namespace {

class Weaver {
 public:
  Weaver(Plan& plan, const CostModel& cost, const OpLists& writers, const OpLists& readers, ClassId rank_class,
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
    for (const BlockId b : class_.blocks.ids()) add_block(b);
    add_other_micro_batches();
    add_data(true);
    reorder();
  }

  void one_block(BlockId block) {
    add_block(block);
    add_data(false);
    reorder();
  }

  // Weight gradients that stand alone wait for nobody, and a search would bring the inputs of all of them at once. A
  // transfer goes as far ahead as what is computed meanwhile takes, and behind the one before it.
  void weight_grads(BlockId block) {
    std::vector<OpId>& order = class_.blocks[block].operations;
    std::size_t first = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const CyclicOperation transfer = cyclic_operation(plan_, cost_, order[i]);
      if (transfer.queue == 0) continue;
      std::size_t to = i;
      for (double covered = 0; to > first && covered < transfer.ns && !reads_of(order[i], order[to - 1]); --to) {
        covered += cyclic_operation(plan_, cost_, order[to - 1]).ns;
      }
      std::rotate(order.begin() + static_cast<std::ptrdiff_t>(to), order.begin() + static_cast<std::ptrdiff_t>(i),
                  order.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      first = to + 1;
    }
  }

  // Pairs repeat: the next begins while this one's last transfers are under way. `near`: its backward is that of this
  // one's forward. `keep`: the order within each block stays as it is. Returns sections of the two blocks in
  // turn, without their micro-batches.
  std::vector<IssueSlot> pair(BlockId forward, BlockId backward, bool near, bool keep) {
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
    return sections_of(reorder());
  }

 private:
  static std::int32_t number(std::size_t i) { return static_cast<std::int32_t>(i); }

  bool reads_of(OpId reader, OpId writer) const {
    const std::vector<Write>& writes = plan_.graph.op(writer).writes;
    return std::ranges::any_of(plan_.graph.op(reader).reads, [&](const Read& read) {
      return std::ranges::any_of(writes, [&](const Write& write) { return write.value == read.value; });
    });
  }

  void add_block(BlockId block) {
    for (const OpId id : class_.blocks[block].operations) {
      if (is_sharded_traffic(plan_.graph.op(id))) continue;
      index_[id] = number(problem_.operations.size());
      problem_.operations.push_back(cyclic_operation(plan_, cost_, id));
      operations_.push_back(id);
      block_of_.push_back(block);
    }
    if (options_.within_layers) keep_layers_apart(block);
    sharded_[block] = find_sharded_units(plan_.graph, class_.blocks[block], writers_, readers_);
    if (options_.prefetch >= 0) keep_apart(sharded_[block].gathers, options_.prefetch + 1);
    if (options_.gradient_buffers >= 0) keep_apart(sharded_[block].reductions, options_.gradient_buffers);
  }

  // Whoever uses unit i + distance or a later one comes after all that use unit i: its memory is then free.
  void keep_apart(const std::vector<ShardedUnit>& units, int distance) {
    std::int32_t before = -1;
    for (std::size_t u = 0; u + static_cast<std::size_t>(distance) < units.size(); ++u) {
      const std::int32_t border = add_marker();
      if (before >= 0) problem_.edges.push_back({before, border, 0});
      for (const OpId user : units[u].users) problem_.edges.push_back({index_[user], border, 0});
      for (const OpId user : units[u + static_cast<std::size_t>(distance)].users) {
        problem_.edges.push_back({border, index_[user], 0});
      }
      before = border;
    }
  }

  void keep_layers_apart(BlockId block) {
    std::vector<std::vector<std::int32_t>> layers;
    std::int32_t layer = 0;
    for (const OpId id : class_.blocks[block].operations) {
      if (index_[id] < 0) continue;
      const Operation& op = plan_.graph.op(id);
      if (layers.empty() || op.layer != layer) layers.emplace_back();
      layer = op.layer;
      layers.back().push_back(index_[id]);
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
    block_of_.push_back(BlockId{});
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
    // In backward. The micro-batches of a reduction group come one after the other, each with gradients of its own.
    const auto turn_of = [&](const Operation& op) { return plan_.layout.reduction_group() > 1 ? op.turn : -1; };
    std::map<std::tuple<std::int32_t, Role, std::int32_t>, std::vector<std::int32_t>> weight_readers;
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      if (!operations_[i].valid()) continue;
      const Operation& op = graph.op(operations_[i]);
      const bool backward = op.phase == Phase::input_grad || op.phase == Phase::recompute;
      if (backward && !op.communication) weight_readers[{op.layer, op.role, turn_of(op)}].push_back(number(i));
      for (const Read& read : op.reads) {
        if (read.distance > 0 && !across_iterations) continue;
        const Slice slice = read_slice_of(graph, op, read.value);
        for (const OpId writer : writers_[read.value.index()]) {
          const std::int32_t from = index_[writer];
          if (from < 0 || !overlap(slice, slice_of(graph, graph.op(writer), read.value))) continue;
          problem_.edges.push_back({from, number(i), read.distance});
        }
      }
    }
    if (options_.free_weight_grads && across_iterations) return update_behind_readers();
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      if (!operations_[i].valid()) continue;
      const Operation& op = graph.op(operations_[i]);
      if (op.phase != Phase::weight_grad || op.communication) continue;
      for (const std::int32_t reader : weight_readers[{op.layer, op.role, turn_of(op)}]) {
        problem_.edges.push_back({reader, number(i), 0});
      }
    }
  }

  // Whoever writes a parameter comes after all that read the old one.
  void update_behind_readers() {
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      if (!operations_[i].valid()) continue;
      const Operation& op = plan_.graph.op(operations_[i]);
      for (const Read& read : op.reads) {
        if (read.distance == 0 || !op.per_micro_batch) continue;
        for (const OpId writer : writers_[read.value.index()]) {
          if (index_[writer] >= 0) problem_.edges.push_back({number(i), index_[writer], 0});
        }
      }
    }
  }

  BlockId block(std::int32_t operation) const { return block_of_[operation]; }
  bool in_a_block(std::int32_t operation) const { return block(operation).valid(); }

  void keep_order() {
    for (std::int32_t i = 1; i < number(operations_.size()); ++i) {
      if (block(i) == block(i - 1)) problem_.edges.push_back({i - 1, i, 0});
    }
  }

  std::vector<IssueSlot> sections_of(const std::vector<std::int32_t>& sequence) const {
    std::vector<IssueSlot> sections;
    IdVector<BlockId, std::int32_t> position(class_.blocks.size(), 0);
    for (const std::int32_t i : sequence) {
      if (!in_a_block(i)) continue;
      const BlockId b = block(i);
      std::int32_t& at = position[b];
      if (sections.empty() || sections.back().block != b) sections.push_back({b, kOncePerStep, at, at});
      sections.back().end = ++at;
    }
    return sections;
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
    IdVector<BlockId, std::vector<OpId>> ordered(class_.blocks.size());
    for (const std::int32_t i : sequence) {
      if (operations_[i].valid()) ordered[block(i)].push_back(operations_[i]);
    }
    for (const BlockId b : ordered.ids()) {
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
  std::vector<OpId> operations_;        // by operation of the problem; not valid: of the problem alone
  std::vector<BlockId> block_of_;       // likewise
  IdVector<OpId, std::int32_t> index_;  // of the problem; -1: not in it
  IdVector<BlockId, ShardedUnits> sharded_;
};

}  // namespace

void weave_blocks(Plan& plan, const CostModel& cost, const WeaveOptions& options) {
  const OpLists writers = writers_by_value(plan.graph), readers = readers_by_value(plan.graph);
  for (const ClassId c : plan.classes.ids()) {
    WeaveOptions share = options;
    share.visits /= static_cast<std::int64_t>(plan.classes.size());
    if (plan.layout.pp == 1 && plan.layout.vpp == 1 && !options.within_layers) {
      Weaver(plan, cost, writers, readers, c, share).whole_step();
      continue;
    }
    const IdVector<BlockId, IssueBlock>& blocks = plan.classes[c].blocks;
    const auto is_update = [](const IssueBlock& block) { return block.kind == BlockKind::update; };
    share.visits /= std::ssize(blocks) - std::count_if(blocks.begin(), blocks.end(), is_update);
    for (const BlockId b : blocks.ids()) {
      if (is_update(blocks[b])) continue;  // ordered across classes
      Weaver weaver(plan, cost, writers, readers, c, share);
      if (blocks[b].kind == BlockKind::weight_grad && plan.layout.reduces_once_a_step()) {
        weaver.weight_grads(b);
      } else {
        weaver.one_block(b);
      }
    }
  }
}

void weave_pairs(Plan& plan, const CostModel& cost, const PipelineOrders& orders, const WeaveOptions& options) {
  const OpLists writers = writers_by_value(plan.graph), readers = readers_by_value(plan.graph);
  // Where several chunks make several kinds of pairs, a block's order must serve all of them: that of the block alone.
  const bool several = plan.layout.vpp > 1;
  if (several && !options.pairs_in_order) weave_blocks(plan, cost, options);
  const bool keep = several || options.pairs_in_order;
  for (const ClassId c : plan.classes.ids()) {
    ClassPlan& class_plan = plan.classes[c];
    const std::vector<PipelinePass>& pipeline = orders[plan.graph.classes[c].stage];
    std::map<std::pair<BlockId, BlockId>, std::vector<IssueSlot>> patterns;
    std::vector<IssueSlot> order;
    for (std::size_t i = 0; i < class_plan.order.size(); ++i) {
      const IssueSlot& slot = class_plan.order[i];
      if (i >= pipeline.size() || !pipeline[i].with_next) {
        order.push_back(slot);
        continue;
      }
      const IssueSlot& backward = class_plan.order[++i];
      const auto [pattern, first] = patterns.try_emplace({slot.block, backward.block});
      if (first) {
        const bool near = block_of(class_plan, slot).chunk == block_of(class_plan, backward).chunk &&
                          slot.micro_batch.value - backward.micro_batch.value == 1;
        pattern->second = Weaver(plan, cost, writers, readers, c, options).pair(slot.block, backward.block, near, keep);
      }
      for (IssueSlot section : pattern->second) {
        section.micro_batch = section.block == slot.block ? slot.micro_batch : backward.micro_batch;
        order.push_back(section);
      }
    }
    class_plan.order = std::move(order);
  }
}

}  // namespace weft
