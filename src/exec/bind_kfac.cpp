#include "exec/bind_kfac.hpp"

#include <memory>

#include "base/error.hpp"
#include "exec/operands.hpp"
#include "graph/kfac.hpp"

namespace weft {
namespace {

// Says in which steps the factors of a layer are computed.
class Turn {
 public:
  Turn(const RankView& view, const Operation& op)
      : interval_(view.plan().layout.kfac_interval), turn_(kfac_turn(op.layer, op.subject, interval_)) {}
  bool is_now(std::int64_t step) const { return step % interval_ == turn_; }
  // Whether no step of a run that begins with step `begin` has computed them before this one.
  bool is_first(std::int64_t step, std::int64_t begin) const { return step <= first_from(begin); }

 private:
  std::int64_t first_from(std::int64_t begin) const {
    return begin + (turn_ - begin % interval_ + interval_) % interval_;
  }

  std::int64_t interval_, turn_;
};

// Gradients are of the mean loss over the tokens of a step, curvature is the mean over tokens of the outer products of
// inputs, and of gradients of the token's own loss: (tokens dy)(tokens dy)^T / tokens.
BoundOperation bind_curvature(const RankView& view, const Operation& op, MicroBatch micro_batch, Into into) {
  const Operands of(view, op, micro_batch);
  const Layout& layout = view.plan().layout;
  const double tokens = static_cast<double>(layout.global_batch) * static_cast<double>(layout.seq);
  const bool of_inputs = op.part == 0;
  return [x = of.read(of_inputs ? Operand::input : Operand::output_grad), scale = of_inputs ? 1 / tokens : tokens,
          sum = of.write(Operand::curvature), into, turn = Turn(view, op)](Kernels& kernels, std::int64_t step) {
    if (turn.is_now(step)) kernels.curvature(x, scale, sum, into);
  };
}

BoundOperation bind_inversion(const RankView& view, const KfacSettings& settings, CurvatureState& curvature,
                              std::size_t factor, const Operation& op) {
  const Operands of(view, op, kOncePerStep);
  const auto finite = std::make_shared<bool>(true);
  const auto compute = [sum = of.read(Operand::curvature), average = of.write(Operand::factor),
                        inverse = of.write(Operand::inverse), settings, finite, &curvature, factor,
                        turn = Turn(view, op)](Kernels& kernels, std::int64_t step) {
    if (!turn.is_now(step)) return;
    const bool begins = !curvature.known[factor] && turn.is_first(step, curvature.first_step);
    kernels.invert_curvature(sum, begins ? 0 : settings.decay, settings.damping, average, inverse, *finite);
  };
  const auto read = [finite, &curvature, factor, what = describe(op)](Kernels&, std::int64_t step) {
    if (!*finite) throw RunFailed(fmt::format("'{}': the damped curvature has no inverse", what));
    if (curvature.on_averaged) curvature.on_averaged(step, factor);
  };
  return {compute, read};
}

// Returns whether tensor-parallel ranks hold columns of this role's weights and all of its bias.
bool adds_up_over_ranks(Role role) {
  return role == Role::attention_out || role == Role::ffn_out;
}

BoundOperation bind_precondition(const RankView& view, const ParameterStates& parameters,
                                 const CurvatureState& curvature, const Operation& op) {
  Operation linear = op;  // whose tensors are found by their role
  linear.role = op.subject;
  const Operands of(view, linear, kOncePerStep);
  const ValueId gradient = read_of(op, Operand::gradient), direction = write_of(op, Operand::direction);
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
          outputs = of.read(Operand::output_inverse), &curvature, factor = parameters.factor_of(op),
          turn = Turn(view, op)](Kernels& kernels, std::int64_t step) {
    // The inverses that a step reads are those of the steps before it; both factors have their turns in one step.
    const bool inverted = curvature.known[factor] || !turn.is_first(step, curvature.first_step);
    kernels.precondition(from, inverted ? inputs : Matrix{}, inverted ? outputs : Matrix{}, to);
    if (bias_apart) kernels.precondition(bias_from, {}, inverted ? outputs : Matrix{}, bias_to);
  };
}

}  // namespace

bool is_of_kfac(const Operation& op) {
  return op.role == Role::curvature || op.role == Role::inversion || op.role == Role::precondition;
}

BoundOperation bind_kfac(const RankView& view, const ParameterStates& parameters, const KfacSettings& settings,
                         CurvatureState& curvature, const Operation& op, MicroBatch micro_batch, Into into) {
  if (op.role == Role::curvature) return bind_curvature(view, op, micro_batch, into);
  if (op.role == Role::inversion) {
    return bind_inversion(view, settings, curvature, parameters.factor_of(op), op);
  }
  return bind_precondition(view, parameters, curvature, op);
}

}  // namespace weft
