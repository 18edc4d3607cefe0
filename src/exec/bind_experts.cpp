#include "exec/bind_experts.hpp"

#include "base/error.hpp"
#include "kernels/experts.hpp"

namespace weft {
namespace {

using Bound = std::function<void(std::int64_t)>;

SlotOrder slot_order(GateOrder order) {
  switch (order) {
    case GateOrder::position:
      return SlotOrder::token;
    case GateOrder::gshard:
      return SlotOrder::choice;
    case GateOrder::probs:
      return SlotOrder::priority;
  }
  WEFT_CHECK(!"an order of slots");
}

// Rows of what the layer's dispatch writes.
std::int64_t slots_of(const RankView& view, const Operation& op) {
  for (const Operation& other : view.original().operations) {
    if (other.role != Role::dispatch || other.layer != op.layer || other.rank_class != op.rank_class) continue;
    if (other.phase == Phase::forward) return view.original().value(other.writes.front()).shape.front();
  }
  WEFT_CHECK(!"a layer of experts has a dispatch");
}

GateShape gate_of(const RankView& view, const Operation& op) {
  const Experts& experts = *view.plan().model.experts;
  return {.experts = experts.count,
          .top_k = experts.top_k,
          .capacity = slots_of(view, op) / experts.count,
          .order = slot_order(experts.gate_order),
          .renormalise = experts.renormalise && experts.top_k > 1};
}

// Every rank's balance loss counts as much as its tokens do in the mean of the cross entropy.
BalanceLoss balance_of(const RankView& view, std::int64_t tokens) {
  const Layout& layout = view.plan().layout;
  const double share = static_cast<double>(tokens) / static_cast<double>(layout.global_batch * layout.seq);
  return {view.plan().model.experts->aux_loss_coeff * share, tokens};
}

GateLoad load_in(const Matrix& value) {
  const auto part = [&](std::int64_t row) {
    return Vector{static_cast<float*>(value.data) + row * value.stride, value.columns};
  };
  return {part(0), part(1)};
}

// What the experts of this rank work on: blocks from all ranks whose tokens come here.
ExpertBlocks blocks_of(const RankView& view, const Operation& op, const Matrix& rows) {
  const Experts& experts = *view.plan().model.experts;
  const std::int64_t local = experts.count / view.plan().layout.ep, capacity = slots_of(view, op) / experts.count;
  WEFT_CHECK(rows.rows % (local * capacity) == 0);
  return {rows.rows / (local * capacity), local, capacity};
}

[[noreturn]] void not_of_experts() {
  WEFT_CHECK(!"an operation of routed experts");
}

}  // namespace

Bound bind_experts(const RankView& view, const Operation& op, std::int32_t micro_batch) {
  const Operands of(view, op, micro_batch);
  switch (op.role) {
    case Role::gate:
      return [shape = gate_of(view, op), scores = of.read(0), routing = of.write(0),
              load = load_in(of.write(1))](std::int64_t) { gate(shape, scores, routing, load, Into::overwrite); };
    case Role::dispatch:
      return [x = of.read(0), routing = of.read(1), slots = of.write()](std::int64_t) {
        dispatch_rows(x, routing, slots, EmptySlots::clear);
      };
    case Role::combine:
      return
          [slots = of.read(0), routing = of.read(1), y = of.write()](std::int64_t) { combine_rows(slots, routing, y); };
    case Role::expert_in:
    case Role::expert_out: {
      ExpertWeights experts = of.experts(op.reads[1].value);
      if (experts.biases_are_copies) experts.biases.clear();
      return [blocks = blocks_of(view, op, of.read(0)), x = of.read(0), experts, y = of.write()](std::int64_t) {
        expert_linear(blocks, x, experts.weights, experts.biases, y);
      };
    }
    default:
      not_of_experts();
  }
}

Bound bind_experts_input_grad(const RankView& view, const Operation& op, std::int32_t micro_batch) {
  const Operands of(view, op, micro_batch);
  switch (op.role) {
    case Role::gate:
      return [shape = gate_of(view, op), balance = balance_of(view, of.read(1).rows), d_weights = of.read(0),
              scores = of.read(1), routing = of.read(2), load = load_in(of.read(3)), d_scores = of.write()](
                 std::int64_t) { gate_input_grad(shape, balance, d_weights, scores, routing, load, d_scores); };
    case Role::dispatch:
      return [d_slots = of.read(0), routing = of.read(1), dx = of.write()](std::int64_t) {
        dispatch_rows_input_grad(d_slots, routing, dx);
      };
    case Role::combine:
      return [dy = of.read(0), slots = of.read(1), routing = of.read(2), d_slots = of.write(0),
              d_weights = of.write(1)](std::int64_t) {
        combine_rows_input_grad(dy, slots, routing, d_slots, d_weights, EmptySlots::clear);
      };
    case Role::expert_in:
    case Role::expert_out:
      return [blocks = blocks_of(view, op, of.read(0)), dy = of.read(0), experts = of.experts(op.reads[1].value),
              dx = of.write()](std::int64_t) { expert_linear_input_grad(blocks, dy, experts.weights, dx); };
    default:
      not_of_experts();
  }
}

Bound bind_experts_weight_grad(const RankView& view, const Operation& op, std::int32_t micro_batch, Into into) {
  const Operands of(view, op, micro_batch);
  const ExpertWeights d = of.experts(op.writes.front());
  return [blocks = blocks_of(view, op, of.read(0)), x = of.read(0), dy = of.read(1), d, into](std::int64_t) {
    expert_linear_weight_grad(blocks, x, dy, d.weights, d.biases, into);
  };
}

}  // namespace weft
