#include "exec/bind_experts.hpp"

#include "base/error.hpp"
#include "exec/expert_slots.hpp"
#include "graph/operation_part.hpp"
#include "kernels/experts.hpp"

namespace weft {
namespace {

// Every rank's balance loss counts as much as its tokens do in the mean of the cross entropy.
BalanceLoss balance_of(const RankView& view, std::int64_t tokens) {
  const Layout& layout = view.plan().layout;
  const double share = static_cast<double>(tokens) / static_cast<double>(layout.global_batch * layout.seq);
  return {view.plan().model.experts->aux_loss_coeff * share, tokens};
}

GateLoad load_in(const Matrix& value) {
  return {value.row(0), value.row(1)};
}

// Knows what one operation, or a part of it, works on.
class ExpertOperation {
 public:
  ExpertOperation(const RankView& view, const Operation& op, MicroBatch micro_batch, const Origin& part)
      : view_(view),
        op_(op),
        micro_batch_(micro_batch),
        part_(part),
        whole_(view, op, micro_batch),
        use_(op.role == Role::gate ? SlotUse() : slot_use(view, op, micro_batch, part)) {}

  KernelCalls forward() const {
    switch (op_.role) {
      case Role::gate:
        return bind_gate();
      case Role::dispatch:
        return [tell = teller(), x = tokens(whole_.read(Operand::input)), routing = routing(),
                slots = whole_.write(Operand::output), empty = empty_slots()](Kernels& kernels, std::int64_t) {
          kernels.dispatch_rows(x, routing, slots, empty);
          tell(kernels);
        };
      case Role::combine:
        return [slots = whole_.read(Operand::input), routing = routing(), y = tokens(whole_.write(Operand::output))](
                   Kernels& kernels, std::int64_t) { kernels.combine_rows(slots, routing, y); };
      case Role::expert_act:
        return bind_activation();
      default:
        return bind_product();
    }
  }

  KernelCalls input_grad() const {
    switch (op_.role) {
      case Role::gate:
        return bind_gate_grad();
      case Role::dispatch:
        return [d_slots = whole_.read(Operand::output_grad), routing = routing(),
                dx = tokens(whole_.write(Operand::input_grad))](Kernels& kernels, std::int64_t) {
          kernels.dispatch_rows_input_grad(d_slots, routing, dx);
        };
      case Role::combine:
        return [tell = teller(), dy = tokens(whole_.read(Operand::output_grad)), slots = whole_.read(Operand::input),
                routing = routing(), d_slots = whole_.write(Operand::input_grad),
                d_weights = tokens(whole_.write(Operand::routing_grad)),
                empty = empty_slots()](Kernels& kernels, std::int64_t) {
          kernels.combine_rows_input_grad(dy, slots, routing, d_slots, d_weights, empty);
          tell(kernels);
        };
      case Role::expert_act:
        return bind_activation_grad();
      default: {
        const Matrix dy = whole_.read(Operand::output_grad);
        return [blocks = blocks_of(view_, op_, dy), use = use_, dy,
                experts = whole_.experts(read_of(op_, Operand::weight)),
                dx = whole_.write(Operand::input_grad)](Kernels& kernels, std::int64_t) mutable {
          kernels.expert_linear_input_grad(used(blocks, use), dy, experts.weights, dx);
        };
      }
    }
  }

 private:
  // Returns the rows of the part's tokens. Experts see a rank's own tokens: one stretch of them, whatever the layout.
  ElementRange token_rows_of(const Matrix& all) const {
    return is_whole(part_) ? ElementRange{0, all.rows} : part_range(all.rows, part_);
  }
  Matrix tokens(const Matrix& all) const {
    const ElementRange rows = token_rows_of(all);
    return all.row_slice(rows.begin, rows.end);
  }
  Matrix routing() const { return tokens(whole_.read(Operand::routing)); }
  EmptySlots empty_slots() const { return use_.is_data() ? EmptySlots::keep : EmptySlots::clear; }
  static CapacityBlocks used(CapacityBlocks blocks, SlotUse& use) {
    blocks.used = use.ranges();
    return blocks;
  }

  // Writes down which slots the part's tokens have, where others need to know.
  std::function<void(Kernels&)> teller() const {
    if (!use_.is_data()) return [](Kernels&) {};
    if (view_.memory().is_of_device()) {
      fail(
          "'{}': only the device knows how many rows it has; plans for GPUs exchange padded slots and cut experts by "
          "capacity",
          describe(op_));
    }
    const Matrix all = whole_.read(Operand::routing);
    return [&ranges = view_.expert_row_ranges(), &op = op_, micro_batch = micro_batch_, all,
            rows = token_rows_of(all)](Kernels& kernels) {
      kernels.synchronize();
      ranges.fill(op, micro_batch, all, rows);
    };
  }

  // A part adds to the loads of those before it in their own place, the gate of a slice to a copy.
  KernelCalls bind_gate() const {
    const Matrix before = whole_.find_read(Operand::loads), loads = whole_.write(Operand::loads);
    const bool first = before.empty() && (is_whole(part_) || part_.begin == 0);
    return [shape = gate_shape(view_, op_), scores = tokens(whole_.read(Operand::input)),
            routing = tokens(whole_.write(Operand::routing)), before, loads,
            into = first ? Into::overwrite : Into::add](Kernels& kernels, std::int64_t) {
      if (!before.empty()) kernels.copy(before, loads);
      kernels.gate(shape, scores, routing, load_in(loads), into);
    };
  }

  // The balance loss is that of the whole micro-batch.
  KernelCalls bind_gate_grad() const {
    const Layout& layout = view_.plan().layout;
    const std::int64_t of_micro_batch = layout.tokens() / token_rows(layout).shards;
    return [shape = gate_shape(view_, op_), balance = balance_of(view_, of_micro_batch),
            d_weights = tokens(whole_.read(Operand::routing_grad)), scores = tokens(whole_.read(Operand::input)),
            routing = routing(), load = load_in(whole_.read(Operand::loads)),
            d_scores = tokens(whole_.write(Operand::input_grad))](Kernels& kernels, std::int64_t) {
      kernels.gate_input_grad(shape, balance, d_weights, scores, routing, load, d_scores);
    };
  }

  KernelCalls bind_product() const {
    ExpertWeights experts = whole_.experts(read_of(op_, Operand::weight));
    if (experts.biases_are_copies) experts.biases.clear();
    const Matrix x = whole_.read(Operand::input);
    return [blocks = blocks_of(view_, op_, x), use = use_, x, experts, y = whole_.write(Operand::output)](
               Kernels& kernels, std::int64_t) mutable {
      kernels.expert_linear(used(blocks, use), x, experts.weights, experts.biases, y);
    };
  }

  KernelCalls bind_activation() const {
    const auto act = view_.plan().model.activation == Activation::swiglu ? &Kernels::swiglu : &Kernels::gelu;
    const Matrix x = whole_.read(Operand::input);
    return [act, blocks = blocks_of(view_, op_, x), use = use_, x, y = whole_.write(Operand::output)](
               Kernels& kernels, std::int64_t) mutable {
      for_each_used(blocks, use, [&](const ElementRange& rows) {
        (kernels.*act)(x.row_slice(rows.begin, rows.end), y.row_slice(rows.begin, rows.end));
      });
    };
  }

  KernelCalls bind_activation_grad() const {
    const auto act =
        view_.plan().model.activation == Activation::swiglu ? &Kernels::swiglu_input_grad : &Kernels::gelu_input_grad;
    const Matrix dy = whole_.read(Operand::output_grad);
    return [act, blocks = blocks_of(view_, op_, dy), use = use_, dy, x = whole_.read(Operand::input),
            dx = whole_.write(Operand::input_grad)](Kernels& kernels, std::int64_t) mutable {
      for_each_used(blocks, use, [&](const ElementRange& rows) {
        (kernels.*act)(dy.row_slice(rows.begin, rows.end), x.row_slice(rows.begin, rows.end),
                       dx.row_slice(rows.begin, rows.end));
      });
    };
  }

  const RankView& view_;
  const Operation& op_;
  MicroBatch micro_batch_;
  Origin part_;
  Operands whole_;
  SlotUse use_;
};

}  // namespace

bool is_of_routed_experts(const Operation& op) {
  switch (op.role) {
    case Role::gate:
    case Role::dispatch:
    case Role::expert_in:
    case Role::expert_act:
    case Role::expert_out:
    case Role::combine:
      return op.phase != Phase::weight_grad && op.phase != Phase::optimizer;
    default:
      return false;
  }
}

KernelCalls bind_experts(const RankView& view, const Operation& op, MicroBatch micro_batch, const Origin& part) {
  const ExpertOperation operation(view, op, micro_batch, part);
  return op.phase == Phase::input_grad ? operation.input_grad() : operation.forward();
}

// Uses the rows in use alone, where the others were never written: those of the gradients, or of what was computed
// last.
KernelCalls bind_experts_weight_grad(const RankView& view, const Operation& op, MicroBatch micro_batch, Into into) {
  const Operands of(view, op, micro_batch);
  const ExpertWeights d = of.experts(write_of(op, Operand::weight_grad));
  const Matrix x = of.read(Operand::input), dy = of.read(Operand::output_grad);
  SlotUse use;
  Operation as_pass = op;
  for (const Phase phase : {Phase::weight_grad, Phase::recompute, Phase::forward}) {
    as_pass.phase = phase;
    if (!view.expert_row_ranges().has_tables(as_pass, micro_batch)) continue;
    use = slot_use(view, as_pass, micro_batch, {});
    break;
  }
  return [blocks = blocks_of(view, op, x), use, x, dy, d, into](Kernels& kernels, std::int64_t) mutable {
    CapacityBlocks of_rows = blocks;
    of_rows.used = use.ranges();
    kernels.expert_linear_weight_grad(of_rows, x, dy, d.weights, d.biases, into);
  };
}

}  // namespace weft
