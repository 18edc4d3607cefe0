#include "plan/schedule/weave.hpp"

#include <algorithm>

#include "graph/op_lists.hpp"
#include "graph/operation_part.hpp"
#include "plan/schedule/cyclic/improve_order.hpp"
#include "plan/schedule/cyclic/list_order.hpp"

namespace weft {
namespace {

// What ZeRO 2 and 3 move in every micro-batch: when, is decided by overlap_sharded_traffic.
bool is_sharded_traffic(const Operation& op) {
  return op.communication && op.per_micro_batch && (op.role == Role::param_gather || op.role == Role::grad_reduce);
}

class Weaver {
 public:
  Weaver(Plan& plan, const CostModel& cost, const OpLists& writers, const OpLists& readers, std::size_t rank_class,
         std::int64_t visits)
      : plan_(plan),
        cost_(cost),
        writers_(writers),
        readers_(readers),
        class_(plan.classes[rank_class]),
        visits_(visits) {}

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

 private:
  void add_block(std::size_t block) {
    if (index_.empty()) index_.assign(plan_.graph.operations.size(), -1);
    for (const OpId id : class_.blocks[block].operations) {
      if (is_sharded_traffic(plan_.graph.op(id))) {
        sharded_.push_back(id);
        continue;
      }
      index_[id.index()] = static_cast<std::int32_t>(problem_.operations.size());
      problem_.operations.push_back(lane_of(id));
      operations_.push_back(id);
      block_of_.push_back(block);
    }
  }

  // What runs beside compute has its own lane.
  CyclicOperation lane_of(OpId id) const {
    const Operation& op = plan_.graph.op(id);
    const Issue& issue = plan_.issues[id.index()];
    CyclicOperation result;
    result.ns = static_cast<double>(cost_.alone(op).value);
    if (!op.communication) return result;
    if (!issue.blocking) result.lane = issue.queue;
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

  // The micro-batches between the one whose forward follows the update and the one whose backward precedes it.
  void add_other_micro_batches() {
    if (plan_.graph.micro_batches == 1) return;
    double between = 0;
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      const bool counts = plan_.graph.op(operations_[i]).per_micro_batch && problem_.operations[i].lane == 0;
      if (counts) between += problem_.operations[i].ns;
    }
    CyclicOperation others;
    others.ns = between * static_cast<double>(plan_.graph.micro_batches - 1);
    const auto at = static_cast<std::int32_t>(problem_.operations.size());
    problem_.operations.push_back(others);
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      const Operation& op = plan_.graph.op(operations_[i]);
      const auto own = static_cast<std::int32_t>(i);
      if (!op.per_micro_batch) continue;
      if (block_of_[i] % 2 == 0) {
        problem_.edges.push_back({own, at, 0});
      } else {
        problem_.edges.push_back({at, own, 0});
      }
    }
  }

  void add_data(bool across_iterations) {
    const StepGraph& graph = plan_.graph;
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      const Operation& op = graph.op(operations_[i]);
      for (const Read& read : op.reads) {
        if (read.distance > 0 && !across_iterations) continue;
        const Slice slice = slice_of(graph, op, read.value);
        for (const OpId writer : writers_[read.value.index()]) {
          const std::int32_t from = index_[writer.index()];
          if (from < 0 || !overlap(slice, slice_of(graph, graph.op(writer), read.value))) continue;
          problem_.edges.push_back({from, static_cast<std::int32_t>(i), read.distance});
        }
      }
    }
  }

  void reorder() {
    problem_.lanes = static_cast<std::int32_t>(class_.queues.size());
    problem_.links = static_cast<std::int32_t>(cost_.link_resources());
    if (operations_.empty()) return;
    const CyclicGraph graph(problem_);
    std::vector<std::int32_t> sequence = list_sequence(graph).sequence;
    if (visits_ > 0) {
      const Improved better = improve_order(problem_, graph.orders_of(sequence), {.visits = visits_});
      sequence = graph.sequence_of(better.orders).value();
    }
    for (const std::size_t block : block_of_) class_.blocks[block].operations.clear();
    for (const std::int32_t i : sequence) {
      const auto at = static_cast<std::size_t>(i);
      if (at < operations_.size()) class_.blocks[block_of_[at]].operations.push_back(operations_[at]);
    }
    insert_sharded_traffic();
  }

  // Each gather in front of its first reader, each reduction behind the last operation whose result it reduces: from
  // there overlap_sharded_traffic takes them.
  void insert_sharded_traffic() {
    if (sharded_.empty()) return;
    for (IssueBlock& block : class_.blocks) {
      std::vector<std::vector<OpId>> before(block.operations.size()), behind(block.operations.size());
      std::vector<std::int32_t> position(plan_.graph.operations.size(), -1);
      for (std::size_t i = 0; i < block.operations.size(); ++i) {
        position[block.operations[i].index()] = static_cast<std::int32_t>(i);
      }
      for (const OpId id : sharded_) {
        const Operation& op = plan_.graph.op(id);
        const bool gathers = op.role == Role::param_gather;
        std::int32_t place = -1;
        const auto look_at = [&](OpId user) {
          const std::int32_t at = position[user.index()];
          if (at >= 0 && (place < 0 || (gathers ? at < place : at > place))) place = at;
        };
        for (const ValueId value : op.writes) {
          for (const OpId reader : readers_[value.index()]) {
            if (gathers) look_at(reader);
          }
        }
        for (const Read& read : op.reads) {
          for (const OpId writer : writers_[read.value.index()]) {
            if (!gathers) look_at(writer);
          }
        }
        if (place >= 0) (gathers ? before : behind)[static_cast<std::size_t>(place)].push_back(id);
      }
      std::vector<OpId> operations;
      for (std::size_t i = 0; i < block.operations.size(); ++i) {
        operations.insert(operations.end(), before[i].begin(), before[i].end());
        operations.push_back(block.operations[i]);
        operations.insert(operations.end(), behind[i].begin(), behind[i].end());
      }
      block.operations = std::move(operations);
    }
  }

  Plan& plan_;
  const CostModel& cost_;
  const OpLists& writers_;
  const OpLists& readers_;
  ClassPlan& class_;
  std::int64_t visits_;
  CyclicProblem problem_;
  std::vector<OpId> sharded_;
  std::vector<OpId> operations_;       // by operation of the problem
  std::vector<std::size_t> block_of_;  // by operation of the problem
  std::vector<std::int32_t> index_;    // by operation of the plan; -1: not in the problem
};

}  // namespace

void weave_blocks(Plan& plan, const CostModel& cost, std::int64_t visits) {
  const OpLists writers = writers_by_value(plan.graph), readers = readers_by_value(plan.graph);
  const auto classes = static_cast<std::int64_t>(plan.classes.size());
  for (std::size_t c = 0; c < plan.classes.size(); ++c) {
    if (plan.layout.pp == 1 && plan.layout.vpp == 1) {
      Weaver(plan, cost, writers, readers, c, visits / classes).whole_step();
      continue;
    }
    // The update block comes last and is ordered across classes.
    const std::size_t blocks = plan.classes[c].blocks.size() - 1;
    for (std::size_t b = 0; b < blocks; ++b) {
      Weaver(plan, cost, writers, readers, c, visits / classes / static_cast<std::int64_t>(blocks)).one_block(b);
    }
  }
}

}  // namespace weft
