#include "planner/schedule/pass_clock.hpp"

#include <algorithm>

#include "graph/operation_part.hpp"
#include "planner/schedule/cyclic_operation.hpp"

namespace weft {

PassSteps::PassSteps(const Plan& plan, const CostModel& cost, const OpLists& writers, ClassId rank_class)
    : graph_(plan.graph),
      class_(plan.classes[rank_class]),
      links_(cost.link_resources()),
      spots_(plan.graph.operations.size()) {
  for (const BlockId b : class_.blocks.ids()) {
    std::int32_t position = 0;
    for (const OpId id : class_.blocks[b].operations) spots_[id] = {b, position++};
  }
  for (const BlockId b : class_.blocks.ids()) {
    steps_.emplace_back();
    for (const OpId id : class_.blocks[b].operations) steps_[b].push_back(step_of(plan, cost, writers, id));
  }
}

BlockId PassSteps::input_grad_of(BlockId weight_grads) const {
  const IssueBlock& own = class_.blocks[weight_grads];
  for (const BlockId b : class_.blocks.ids()) {
    const IssueBlock& other = class_.blocks[b];
    if (other.kind == BlockKind::input_grad && other.chunk == own.chunk && other.slice == own.slice) return b;
  }
  return {};
}

PassStep PassSteps::step_of(const Plan& plan, const CostModel& cost, const OpLists& writers, OpId id) const {
  const Operation& op = graph_.op(id);
  const CyclicOperation alone = cyclic_operation(plan, cost, id);
  PassStep step;
  step.ns = alone.ns;
  step.queue = alone.queue;
  step.link = alone.link;
  // When a message comes is up to other stages.
  if (op.communication && op.communication->collective == Collective::send_recv) step.ns = 0;
  step.may_move = !op.communication || (!alone.fixed_order && alone.queue != 0);
  const BlockId own = spots_[id].block;
  const bool is_weight_grad = class_.blocks[own].kind == BlockKind::weight_grad;
  const BlockId input_grad = is_weight_grad ? input_grad_of(own) : BlockId{};
  for (const Read& read : op.reads) {
    if (read.distance > 0) continue;
    const Slice slice = read_slice_of(graph_, op, read.value);
    for (const OpId writer : writers[read.value.index()]) {
      if (!overlap(slice, slice_of(graph_, graph_.op(writer), read.value))) continue;
      const Spot& spot = spots_[writer];
      if (spot.block == own) step.behind.push_back(spot.position);
      if (is_weight_grad && spot.block == input_grad) step.behind_input_grad.push_back(spot.position);
    }
  }
  if (input_grad.valid()) add_readers_of_weight(op, input_grad, step);
  return step;
}

// Who reads a weight comes before the weight's gradient, so that an update behind this finds nobody using it.
void PassSteps::add_readers_of_weight(const Operation& op, BlockId input_grad, PassStep& step) const {
  for (const OpId reader : class_.blocks[input_grad].operations) {
    const Operation& other = graph_.op(reader);
    if (other.communication || other.layer != op.layer || other.role != op.role) continue;
    step.behind_input_grad.push_back(spots_[reader].position);
  }
}

double PassClock::start(const PassStep& step, double ready) const {
  if (step.queue == 0) return std::max(compute, ready);
  const double link = step.link < 0 ? 0 : links[static_cast<std::size_t>(step.link)];
  return std::max({queues[static_cast<std::size_t>(step.queue)], link, ready});
}

double PassClock::end(const PassStep& step, double ready) {
  const double ended = start(step, ready) + step.ns;
  (step.queue == 0 ? compute : queues[static_cast<std::size_t>(step.queue)]) = ended;
  if (step.queue != 0 && step.link >= 0) links[static_cast<std::size_t>(step.link)] = ended;
  return ended;
}

double last_end(const std::vector<double>& ended, std::span<const std::int32_t> of) {
  double result = 0;
  for (const std::int32_t position : of) result = std::max(result, ended[static_cast<std::size_t>(position)]);
  return result;
}

}  // namespace weft
