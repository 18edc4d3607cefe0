// K-FAC for linear layers: in every micro-batch the outer products of inputs and of output gradients are added up; once
// a step data-parallel ranks sum them, the gradient is multiplied by the inverses that the step before left, and new
// inverses are made, which may happen while the next step computes (planner/schedule/extra_work.hpp), as in PipeFisher.
#include "graph/kfac.hpp"

#include <fmt/format.h>

#include "graph/build/class_builder.hpp"

namespace weft {

void ClassBuilder::add_curvature(Role role, ValueId x, OutputGrad grads, LinearShape shape) {
  if (layout_.kfac_interval == 0 || !has_curvature(role)) return;
  std::array<KfacFactor, 2>& factors = kfac_[by_role_.at({layer_, role})];
  for (int part = 0; part < 2; ++part) {
    const bool of_inputs = part == 0;
    KfacFactor& factor = factors[static_cast<std::size_t>(part)];
    factor.rows = of_inputs ? shape.in : shape.out;
    if (!factor.sum.valid()) {
      factor.sum = once({.name = label(name_of(role)) + (of_inputs ? ".inputs" : ".outputs") + ".curvature",
                         .shape = {factor.rows, factor.rows},
                         .kind = ValueKind::optimizer_state,
                         .dtype = ElementType::fp32},
                        true);
    }
    OpKey key;
    key.kind = OpKind::curvature;
    key.dtype = layout_.precision;
    key.dims = {factor.rows, rows_of(grads, shape.out), layout_.kfac_interval, 0, 0, 0};
    const Read read = of_inputs ? Read{Operand::input, x} : Read{Operand::output_grad, grads.grad};
    Operation& op = add(Role::curvature, Phase::weight_grad, key, {read}, {{Operand::curvature, factor.sum}});
    op.subject = role;
    op.part = part;
  }
}

void ClassBuilder::reduce_curvature(ParameterIndex index) {
  const Parameter& p = parameters_[index];
  for (int part = 0; part < 2; ++part) {
    KfacFactor& factor = kfac_.at(index)[static_cast<std::size_t>(part)];
    factor.reduced = factor.sum;
    if (shards(p.group) == 1) continue;
    factor.reduced = once({.name = graph_.value(factor.sum).name + ".reduced",
                           .shape = {factor.rows, factor.rows},
                           .kind = ValueKind::optimizer_state,
                           .dtype = ElementType::fp32});
    Operation& op =
        transfer(Role::curvature_reduce, Phase::optimizer, Collective::all_reduce, p.group, factor.rows * factor.rows,
                 {{Operand::payload, factor.sum}}, {{Operand::payload, factor.reduced}}, p.role);
    op.per_micro_batch = false;
    op.part = part;
    if (part == 1 && op.communication->transfer >= 0) {
      // Both factors go by the same name but for the part, which numbers of transfers do not know: the second one has
      // that of the phase it comes from.
      const std::int32_t first = rank_class().group(p.group).members.front().value;
      op.communication->transfer =
          transfers_.id({p.group, first, Role::curvature_reduce, p.role, Phase::weight_grad, layer_, turn_});
    }
  }
}

// Returns the whole gradient, of which ZeRO leaves a rank its shard: inverses act on rows and columns of all of it.
ValueId ClassBuilder::gather_gradient(const Parameter& p, ValueId shard) {
  if (layout_.zero == 0 || shards(p.group) == 1) return shard;
  const ValueId whole = once({.name = label(name_of(p.role)) + ".grad.gathered",
                              .shape = {p.elements},
                              .kind = ValueKind::gradient,
                              .dtype = layout_.grad_dtype});
  transfer(Role::grad_gather, Phase::optimizer, Collective::all_gather, p.group,
           graph_.value(shard).elements() * shards(p.group), {{Operand::payload, shard}}, {{Operand::payload, whole}},
           p.role)
      .per_micro_batch = false;
  return whole;
}

void ClassBuilder::precondition(ParameterIndex index, ValueId gradient) {
  Parameter& p = parameters_[index];
  std::array<KfacFactor, 2>& factors = kfac_.at(index);
  for (KfacFactor& factor : factors) {
    const auto state = [&](const char* what) {
      return once({.name = graph_.value(factor.sum).name + what,
                   .shape = {factor.rows, factor.rows},
                   .kind = ValueKind::optimizer_state,
                   .dtype = ElementType::fp32});
    };
    factor.average = state(".average");
    factor.inverse = state(".inverse");
  }
  p.direction = once({.name = label(name_of(p.role)) + ".direction",
                      .shape = {p.elements},
                      .kind = ValueKind::gradient,
                      .dtype = layout_.grad_dtype});
  OpKey key;
  key.kind = OpKind::precondition;
  key.dtype = layout_.grad_dtype;
  key.dims = {factors[1].rows, factors[0].rows, 0, 0, 0, 0};
  Operation& op = add(Role::precondition, Phase::optimizer, key,
                      {{Operand::gradient, gradient},
                       {Operand::input_inverse, factors[0].inverse, 1},
                       {Operand::output_inverse, factors[1].inverse, 1}},
                      {{Operand::direction, p.direction}});
  op.per_micro_batch = false;
  op.subject = p.role;
}

// New inverses are written where preconditioning finds those of the step before, so they come after the direction that
// it makes of them.
void ClassBuilder::invert_curvature(ParameterIndex index) {
  for (int part = 0; part < 2; ++part) {
    const KfacFactor& factor = kfac_.at(index)[static_cast<std::size_t>(part)];
    OpKey key;
    key.kind = OpKind::inverse;
    key.dtype = ElementType::fp32;
    key.dims = {factor.rows, layout_.kfac_interval, 0, 0, 0, 0};
    Operation& op = add(Role::inversion, Phase::optimizer, key,
                        {{Operand::curvature, factor.reduced},
                         {Operand::factor, factor.average, 1},
                         {Operand::direction, parameters_[index].direction}},
                        {{Operand::factor, factor.average}, {Operand::inverse, factor.inverse}});
    op.per_micro_batch = false;
    op.subject = parameters_[index].role;
    op.part = part;
  }
}

}  // namespace weft
