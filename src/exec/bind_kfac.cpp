#include "exec/bind_kfac.hpp"

#include <memory>

#include "base/error.hpp"
#include "exec/operands.hpp"
#include "graph/kfac.hpp"

namespace weft {
namespace {

// Says in which steps the factors of a layer are computed.
struct Turn {
  std::int64_t interval = 1, turn = 0;
  bool is_now(std::int64_t step) const { return step % interval == turn; }
  // Whether no step before this one has computed them.
  bool is_first(std::int64_t step) const { return step < interval; }
  // The inverses that a step reads are those of the steps before it.
  bool has_inverses(std::int64_t step) const { return step > turn; }
};

Turn turn_of(const RankView& view, const Operation& op) {
  const std::int64_t interval = view.plan().layout.kfac_interval;
  return {interval, kfac_turn(op.layer, op.subject, interval)};
}

// Gradients are of the mean loss over the tokens of a step, curvature is the mean over tokens of the outer products of
// inputs, and of gradients of the token's own loss: (tokens dy)(tokens dy)^T / tokens.
BoundOperation bind_curvature(const RankView& view, const Operation& op, MicroBatch micro_batch, Into into) {
  const Operands of(view, op, micro_batch);
  const Layout& layout = view.plan().layout;
  const double tokens = static_cast<double>(layout.global_batch) * static_cast<double>(layout.seq);
  const bool of_inputs = op.part == 0;
  return [x = of.read(of_inputs ? Operand::input : Operand::output_grad), scale = of_inputs ? 1 / tokens : tokens,
          sum = of.write(Operand::curvature), into, turn = turn_of(view, op)](Kernels& kernels, std::int64_t step) {
    if (turn.is_now(step)) kernels.curvature(x, scale, sum, into);
  };
}

BoundOperation bind_inversion(const RankView& view, const KfacSettings& settings, const Operation& op) {
  const Operands of(view, op, kOncePerStep);
  const auto finite = std::make_shared<bool>(true);
  const auto compute = [sum = of.read(Operand::curvature), average = of.write(Operand::factor),
                        inverse = of.write(Operand::inverse), settings, finite,
                        turn = turn_of(view, op)](Kernels& kernels, std::int64_t step) {
    if (!turn.is_now(step)) return;
    kernels.invert_curvature(sum, turn.is_first(step) ? 0 : settings.decay, settings.damping, average, inverse,
                             *finite);
  };
  const auto read = [finite, what = describe(op)](Kernels&, std::int64_t) {
    if (!*finite) throw RunFailed(fmt::format("'{}': the damped curvature has no inverse", what));
  };
  return {compute, read};
}

// Returns whether tensor-parallel ranks hold columns of this role's weights and all of its bias.
bool adds_up_over_ranks(Role role) {
  return role == Role::attention_out || role == Role::ffn_out;
}

BoundOperation bind_precondition(const RankView& view, const ParameterStates& parameters, const Operation& op) {
  Operation linear = op;  // whose tensors are found by their role
  linear.role = op.subject;
  const Operands of(view, linear, kOncePerStep);
  const ValueId gradient = parameters.of(op.layer, op.subject).gradient, direction = write_of(op, Operand::direction);
  LinearGradient from{of.weight(gradient), of.bias(gradient)}, to{of.weight(direction), of.bias(direction)};
  // Every tensor-parallel rank scales its part of the weights by itself. All of them hold the bias of a product whose
  // results they add up, so that has a scale of its own, or the copies would drift apart.
  const bool bias_apart = view.plan().layout.tp > 1 && adds_up_over_ranks(op.subject) && !from.bias.empty();
  LinearGradient bias_from, bias_to;
  if (bias_apart) {
    bias_from.weight = Matrix::dense(from.bias.data, from.bias.size, 1);
    bias_to.weight = Matrix::dense(to.bias.data, to.bias.size, 1);
    from.bias = to.bias = {};
  }
  return [from, to, bias_apart, bias_from, bias_to, inputs = of.read(Operand::input_inverse),
          outputs = of.read(Operand::output_inverse), turn = turn_of(view, op)](Kernels& kernels, std::int64_t step) {
    const bool inverted = turn.has_inverses(step);
    kernels.precondition(from, inverted ? inputs : Matrix{}, inverted ? outputs : Matrix{}, to);
    if (bias_apart) kernels.precondition(bias_from, {}, inverted ? outputs : Matrix{}, bias_to);
  };
}

}  // namespace

bool is_of_kfac(const Operation& op) {
  return op.role == Role::curvature || op.role == Role::inversion || op.role == Role::precondition;
}

BoundOperation bind_kfac(const RankView& view, const ParameterStates& parameters, const KfacSettings& settings,
                         const Operation& op, MicroBatch micro_batch, Into into) {
  if (op.role == Role::curvature) return bind_curvature(view, op, micro_batch, into);
  if (op.role == Role::inversion) return bind_inversion(view, settings, op);
  return bind_precondition(view, parameters, op);
}

}  // namespace weft
