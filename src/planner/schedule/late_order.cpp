#include "planner/schedule/late_order.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "graph/op_lists.hpp"
#include "graph/operation_part.hpp"
#include "plan/late.hpp"
#include "plan/memory/lifetimes.hpp"
#include "planner/schedule/cyclic/improve_order.hpp"
#include "planner/schedule/cyclic/list_order.hpp"
#include "planner/schedule/cyclic_operation.hpp"
#include "planner/schedule/extra_work.hpp"

namespace weft {
namespace {

class LateOrder {
 public:
  LateOrder(Plan& plan, const CostModel& cost)
      : plan_(plan),
        cost_(cost),
        class_(plan.classes.front()),
        writers_(writers_by_value(plan.graph)),
        readers_(readers_by_value(plan.graph)),
        index_(plan.graph.operations.size(), -1) {}

  void run(const LateOptions& options) {
    for (const bool forward : {false, true}) {
      for (const BlockId b : class_.blocks.ids()) {
        if ((class_.blocks[b].kind == BlockKind::forward) == forward) add_block(b);
      }
    }
    add_data();
    for (const OpId id : plan_.graph.operations.ids()) {
      const Operation& op = plan_.graph.op(id);
      if (op.phase == Phase::weight_grad && !op.is_transfer()) gradients_of_[{op.layer, op.role}].push_back(id);
    }
    keep_weights_until_read();
    keep_activations_until_read();
    keep_slots_until_read();
    forward_behind_input_grads(options.layers);
    cut(find_sequence(options.visits));
  }

 private:
  static std::int32_t number(std::size_t i) { return static_cast<std::int32_t>(i); }

  void add_block(BlockId block) {
    for (const OpId id : class_.blocks[block].operations) {
      index_[id] = number(problem_.operations.size());
      problem_.operations.push_back(cyclic_operation(plan_, cost_, id));
      operations_.push_back(id);
      block_of_.push_back(block);
    }
  }

  bool is_forward(std::int32_t i) const {
    return operations_[i].valid() && class_.blocks[block_of_[i]].kind == BlockKind::forward;
  }
  bool may_be_late_here(std::int32_t i) const {
    return operations_[i].valid() && !is_forward(i) && may_be_late(plan_.graph.op(operations_[i]));
  }

  // `to` of a step waits for `from` of the step `distance` before it. In the problem, a forward counts to the step
  // before its own.
  void add_edge(OpId from, OpId to, std::int32_t distance) {
    const std::int32_t a = index_[from], b = index_[to];
    distance += (is_forward(a) ? 1 : 0) - (is_forward(b) ? 1 : 0);
    WEFT_CHECK(distance == 0 || distance == 1);
    problem_.edges.push_back({a, b, distance});
  }

  void add_data() {
    const StepGraph& graph = plan_.graph;
    for (const OpId id : graph.operations.ids()) {
      for (const Read& read : graph.op(id).reads) {
        const Slice slice = read_slice_of(graph, graph.op(id), read.value);
        for (const OpId writer : writers_[read.value.index()]) {
          if (overlap(slice, slice_of(graph, graph.op(writer), read.value))) add_edge(writer, id, read.distance);
        }
      }
    }
  }

  // Backward reads the weights that its forward read: whoever writes where they lie comes after that.
  void keep_weights_until_read() {
    const std::vector<ValueId> storage = find_storage(plan_);
    std::vector<std::vector<OpId>> writers_of_storage(storage.size());
    for (const ValueId value : plan_.graph.values.ids()) {
      for (const OpId writer : writers_[value.index()])
        writers_of_storage[storage[value.index()].index()].push_back(writer);
    }
    for (const OpId id : plan_.graph.operations.ids()) {
      const Operation& op = plan_.graph.op(id);
      if (!op.per_micro_batch || is_forward(index_[id])) continue;  // forward comes before all of its own backward
      for (const Read& read : op.reads) {
        if (read.distance == 0) continue;
        for (const OpId writer : writers_of_storage[storage[read.value.index()].index()]) {
          add_edge(id, writer, 0);
          if (runs_beside_compute(writer)) gradients_behind(id);
        }
      }
    }
  }

  bool runs_beside_compute(OpId id) const {
    return class_.queues[plan_.issues[id].queue].kind != QueueKind::compute && !plan_.issues[id].blocking;
  }

  // An order does not hold back what runs beside compute, but its data does: an update waits for the weight's gradient.
  void gradients_behind(OpId reader) {
    const Operation& op = plan_.graph.op(reader);
    for (const OpId gradient : gradients_of_[{op.layer, op.role}]) add_edge(reader, gradient, 0);
  }

  // The next forward writes where this one's activations lie, so late readers come before it. That costs little: the
  // weight must be updated by then anyway, and no activation needs a second copy.
  void keep_activations_until_read() {
    for (const ValueId value : plan_.graph.values.ids()) {
      if (!plan_.graph.value(value).per_micro_batch) continue;
      for (const OpId reader : readers_[value.index()]) {
        if (!may_be_late_here(index_[reader])) continue;
        for (const OpId writer : writers_[value.index()]) {
          if (is_forward(index_[writer])) add_edge(reader, writer, 1);
        }
      }
    }
  }

  // Weight gradients of experts come before the layer's next gate.
  void keep_slots_until_read() {
    std::map<std::int32_t, std::vector<OpId>> gates;  // by layer
    for (const OpId id : plan_.graph.operations.ids()) {
      const Operation& op = plan_.graph.op(id);
      if (op.role == Role::gate && op.phase == Phase::forward) gates[op.layer].push_back(id);
    }
    for (const OpId id : plan_.graph.operations.ids()) {
      if (!is_late_before_gate(plan_.graph.op(id))) continue;
      for (const OpId gate : gates[plan_.graph.op(id).layer]) add_edge(id, gate, 1);
    }
  }

  // Only what may be late runs beside the next forward, and the weight gradients of the last layers do.
  void forward_behind_input_grads(std::int32_t late_layers) {
    std::vector<bool> follows_forward(operations_.size(), false), is_followed(operations_.size(), false);
    const auto is_kept = [&](std::int32_t i) { return !is_forward(i) && !may_be_late_here(i); };
    for (const CyclicEdge& edge : problem_.edges) {
      if (edge.distance != 0) continue;
      if (is_forward(edge.from) && is_forward(edge.to)) follows_forward[edge.to] = true;
      if (is_kept(edge.from) && is_kept(edge.to)) is_followed[edge.from] = true;
    }
    const std::int32_t border = number(operations_.size());
    for (std::int32_t i = 0; i < border; ++i) {
      if (is_forward(i) && !follows_forward[i]) problem_.edges.push_back({border, i, 0});
      if (is_kept(i) && !is_followed[i]) problem_.edges.push_back({i, border, 0});
      if (!may_be_late_here(i)) continue;
      const Operation& op = plan_.graph.op(operations_[i]);
      if (!op.per_micro_batch || op.layer < plan_.model.layers - late_layers) continue;
      problem_.edges.push_back({border, i, 0});
      plan_.issues[operations_[i]].late = true;
    }
    problem_.operations.push_back({});
    operations_.push_back(OpId{});
    block_of_.push_back(BlockId{});
  }

  std::vector<OpId> find_sequence(std::int64_t visits) {
    problem_.queues = number(class_.queues.size());
    problem_.links = number(cost_.link_resources());
    const CyclicGraph graph(problem_);
    std::vector<std::int32_t> sequence = list_sequence(graph).sequence;
    if (visits > 0) {
      const Improved better = improve_order(problem_, graph.orders_of(sequence), {.visits = visits});
      sequence = graph.sequence_of(better.orders).value();
    }
    std::vector<OpId> operations;
    for (const std::int32_t i : sequence) {
      if (operations_[i].valid()) operations.push_back(operations_[i]);
    }
    return operations;
  }

  // A pass begins with the first operation of forward. What stands before that ends the pass before.
  void cut(std::vector<OpId> sequence) {
    const auto is_of_forward = [&](OpId id) { return is_forward(index_[id]); };
    const auto first = std::find_if(sequence.begin(), sequence.end(), is_of_forward);
    for (auto it = first; it != sequence.end(); ++it) plan_.issues[*it].late = !is_of_forward(*it);
    make_consistent();
    // What is late although it stands before forward goes to the head of the pass.
    const auto rest = std::stable_partition(sequence.begin(), first, [&](OpId id) { return !plan_.issues[id].late; });
    std::rotate(sequence.begin(), rest, sequence.end());
    issue(sequence);
  }

  // Writers of one value are late together, legs of one transfer too, which work in place, and whoever reads a late
  // value of its own step.
  void make_consistent() {
    std::map<OpId, std::vector<OpId>> legs;  // by operation of the model
    for (const OpId id : plan_.graph.operations.ids()) {
      const Operation& op = plan_.graph.op(id);
      if (op.rule == Substitution::none) continue;
      for (const Origin& origin : op.origins) legs[origin.operation].push_back(id);
    }
    for (bool changed = true; changed;) {
      changed = false;
      const auto make_late = [&](OpId id) { changed = !std::exchange(plan_.issues[id].late, true) || changed; };
      for (const auto& [origin, ids] : legs) {
        if (std::none_of(ids.begin(), ids.end(), [&](OpId id) { return plan_.issues[id].late; })) continue;
        for (const OpId id : ids) make_late(id);
      }
      for (const ValueId value : plan_.graph.values.ids()) {
        const auto writers = writers_[value.index()];
        if (std::none_of(writers.begin(), writers.end(), [&](OpId id) { return plan_.issues[id].late; })) continue;
        for (const OpId writer : writers) make_late(writer);
        for (const OpId reader : readers_[value.index()]) {
          for (const Read& read : plan_.graph.op(reader).reads) {
            if (read.value == value && read.distance == 0) make_late(reader);
          }
        }
      }
    }
  }

  void issue(const std::vector<OpId>& sequence) {
    for (IssueBlock& block : class_.blocks) block.operations.clear();
    class_.order.clear();
    for (const OpId id : sequence) {
      const BlockId b = block_of_[index_[id]];
      std::vector<OpId>& block = class_.blocks[b].operations;
      const MicroBatch micro_batch = plan_.graph.op(id).per_micro_batch ? MicroBatch{0} : kOncePerStep;
      const auto at = number(block.size());
      if (class_.order.empty() || class_.order.back().block != b) class_.order.push_back({b, micro_batch, at, at});
      class_.order.back().end = at + 1;
      block.push_back(id);
    }
  }

  Plan& plan_;
  const CostModel& cost_;
  ClassPlan& class_;
  const OpLists writers_, readers_;
  std::map<std::pair<std::int32_t, Role>, std::vector<OpId>> gradients_of_;  // by layer and role
  CyclicProblem problem_;
  std::vector<OpId> operations_;   // by operation of the problem; not valid: of the problem alone
  std::vector<BlockId> block_of_;  // likewise
  IdVector<OpId, std::int32_t> index_;
};

bool allows_late(const Layout& layout, const ClusterSpec& cluster) {
  return layout.zero < 3 && layout.reduces_once_a_step() && layout.pp == 1 && layout.vpp == 1 &&
         layout.micro_batches() == 1 && layout.layer_group == 1 && !layout.has_slices() && layout.clip_grad == 0 &&
         !layout.compress.is_on() && !layout.encodes_weights() && !has_extra_work(layout) &&
         cluster.execution.runtime != Runtime::cuda;
}

}  // namespace

bool allows_late_order(const PlanRequest& request) {
  return allows_late(request.layout, request.cluster);
}

bool may_order_late(const Plan& plan) {
  return allows_late(plan.layout, plan.cluster) && plan.classes.size() == 1;
}

void order_with_late(Plan& plan, const CostModel& cost, const LateOptions& options) {
  LateOrder(plan, cost).run(options);
}

}  // namespace weft
