// What every block of a layer is made of: linear layers, norms, residuals.
#include "graph/build/class_builder.hpp"

namespace weft {

// A linear layer declared under `role`; shapes are local.
ValueId ClassBuilder::linear(Role role, Phase phase, ValueId x, LinearShape shape, const char* name) {
  const std::int64_t rows = graph_.value(x).elements() / shape.in;
  const ValueId y = value({label(name), {rows, shape.out}, ValueKind::activation, output_sharding(role, x)});
  const Read weight = use(by_role_.at({layer_, role}), phase, role);
  add(role, phase, gemm(phase, rows, shape.out, shape.in), {{Operand::input, x}, weight}, {{Operand::output, y}});
  return y;
}

std::vector<Read> ClassBuilder::reads_of(OutputGrad grads) const {
  std::vector<Read> reads{{Operand::output_grad, grads.grad}};
  if (grads.beside.valid()) reads.push_back({Operand::output_beside_grad, grads.beside});
  return reads;
}

std::int64_t ClassBuilder::rows_of(OutputGrad grads, std::int64_t columns) const {
  std::int64_t elements = 0;
  for (const Read& read : reads_of(grads)) elements += graph_.value(read.value).elements();
  return elements / columns;
}

ValueId ClassBuilder::linear_input_grad(Role role, OutputGrad grads, LinearShape shape, ValueId onto) {
  const std::int64_t rows = rows_of(grads, shape.out);
  Sharding sharding = of_rows(graph_.value(grads.grad).sharding);
  const Spread spread = spread_of(role);
  if (spread.columns) sharding.add_split({1, *spread.columns});
  if (spread.rows) sharding.add_partial(*spread.rows);
  const ValueId dx = value({label(name_of(role)) + ".dx", {rows, shape.in}, ValueKind::activation_grad, sharding});
  std::vector<Read> reads = reads_of(grads);
  if (onto.valid()) reads.push_back({Operand::addend_grad, onto});
  reads.push_back(use(by_role_.at({layer_, role}), Phase::input_grad, role));
  add(role, Phase::input_grad, gemm(Phase::input_grad, rows, shape.in, shape.out), std::move(reads),
      {{Operand::input_grad, dx}});
  return dx;
}

void ClassBuilder::linear_weight_grad(Role role, ValueId x, OutputGrad grads, LinearShape shape) {
  std::vector<Read> reads = reads_of(grads);
  reads.insert(reads.begin(), {Operand::input, x});
  weight_grad(by_role_.at({layer_, role}), gemm(Phase::weight_grad, shape.in, shape.out, rows_of(grads, shape.out)),
              std::move(reads));
  add_curvature(role, x, grads, shape);
}

ValueId ClassBuilder::linear_backward(Role role, ValueId x, OutputGrad grads, LinearShape shape, ValueId onto) {
  const ValueId dx = linear_input_grad(role, grads, shape, onto);
  linear_weight_grad(role, x, grads, shape);
  return dx;
}

ValueId ClassBuilder::norm(Role role, Phase phase, ValueId in, const char* name) {
  // Where products round, the norm before one writes what they read; a router reads the norm's own.
  const bool rounds = role == Role::attention_norm || (role == Role::ffn_norm && !model_.is_moe_layer(layer_));
  const ValueId out = value_like(in, label(name), graph_.value(in).kind, rounds ? kept_input_bytes() : 0);
  OpKey key;
  key.kind = OpKind::norm;
  key.dtype = layout_.precision;
  const std::int64_t columns = graph_.value(in).shape.back();
  key.dims = {graph_.value(in).elements() / columns, columns, 0, 0, 0, 0};
  const Read weight = use(by_role_.at({layer_, role}), phase);
  add(role, phase, key, {{Operand::input, in}, weight}, {{Operand::output, out}});
  return out;
}

// Adds dX of a norm, whose kernel also adds the gradient of the residual branch, then dW.
ValueId ClassBuilder::norm_backward(Role role, ValueId in, ValueId grad, ValueId residual_grad) {
  const ValueId dx = value_like(in, label(name_of(role)) + ".dx", ValueKind::activation_grad);
  graph_.values[dx.index()].sharding.partial = graph_.value(grad).sharding.partial;
  OpKey key;
  key.kind = OpKind::norm;
  key.dtype = layout_.precision;
  const std::int64_t columns = graph_.value(in).shape.back();
  key.dims = {graph_.value(in).elements() / columns, columns, 0, 0, 0, 0};
  std::vector<Read> reads{{Operand::output_grad, grad}, {Operand::input, in}};
  if (residual_grad.valid()) reads.push_back({Operand::addend_grad, residual_grad});
  const ParameterIndex weight = by_role_.at({layer_, role});
  reads.push_back(use(weight, Phase::input_grad));
  add(role, Phase::input_grad, key, std::move(reads), {{Operand::input_grad, dx}});
  weight_grad(weight, key, {{Operand::input, in}, {Operand::output_grad, grad}});
  return dx;
}

ValueId ClassBuilder::residual(Role role, Phase phase, ValueId branch, ValueId stream, ValueId* mask,
                               const char* name) {
  const ValueKind kind = graph_.value(stream).kind;
  const ValueId out = value_like(stream, label(name), kind);
  std::vector<Write> writes{{Operand::output, out}};
  if (has_dropout()) {
    *mask = value_like(stream, label(name) + ".mask", kind, 1);
    writes.push_back({Operand::kept_elements, *mask});
  }
  add(role, phase, elementwise(phase, graph_.value(stream).elements(), 3 * width() + (has_dropout() ? 1 : 0)),
      {{Operand::input, branch}, {Operand::addend, stream}}, std::move(writes));
  return out;
}

// Without dropout the branch's gradient is the stream's gradient itself.
ValueId ClassBuilder::residual_backward(Role role, ValueId mask, ValueId grad) {
  if (!has_dropout()) return grad;
  const ValueId out = value_like(grad, label(name_of(role)) + ".dx", ValueKind::activation_grad);
  add(role, Phase::input_grad, elementwise(Phase::input_grad, graph_.value(grad).elements(), 2 * width() + 1),
      {{Operand::output_grad, grad}, {Operand::kept_elements, mask}}, {{Operand::input_grad, out}});
  return out;
}

}  // namespace weft
