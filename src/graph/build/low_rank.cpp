// Gradients of data parallelism as factors of low rank (PowerSGD, compress/low_rank.hpp), in the stages of all
// compressed gradients:
//   grad_reduce stage   left factors of gradient and error, with what travels as it is behind them; all_reduce
//   grad_merge stage    their sum made orthonormal, right factors of gradient and error; all_reduce
//   grad_decode stage   the product of both: the sum of gradients, the next errors and the next basis
// Gradient and error are kept as they are until then. ZeRO 1 goes on with its shard of the product.
#include "graph/build/class_builder.hpp"

namespace weft {

bool ClassBuilder::has_factors(const Parameter& p) {
  const auto [found, is_new] = factor_sizes_.try_emplace(p.role);
  if (is_new) {
    found->second = factor_sizes(held_tensors(model_, layout_, p.layer, p.role, {}), layout_.compress.rank);
  }
  return found->second.has_factors();
}

ValueId ClassBuilder::factor_gradient(Parameter& p, ValueId grad, Role stage) {
  const FactorSizes& sizes = factor_sizes_.at(p.role);
  const std::string name = label(name_of(p.role)) + ".grad";
  const auto new_value = [&](const char* suffix, std::int64_t elements, ValueKind kind) {
    return once({.name = name + suffix, .shape = {elements}, .kind = kind, .dtype = ElementType::fp32});
  };
  const auto step = [&](LowRankStep number, std::vector<Read> reads, std::vector<Write> writes) {
    OpKey key;
    key.kind = OpKind::low_rank;
    key.dtype = ElementType::fp32;
    key.dims = {p.elements, layout_.compress.rank, sizes.left, sizes.right, static_cast<std::int64_t>(number), 0};
    const Role role = number == LowRankStep::product ? Role::grad_decode : Role::grad_encode;
    Operation& op = add(role, Phase::optimizer, key, std::move(reads), std::move(writes));
    op.per_micro_batch = false;
    op.subject = p.role;
    op.part = number == LowRankStep::right ? 1 : 0;  // another operation of the same name
  };
  const auto sum_up = [&](Role role, ValueId factors, const char* suffix) {
    const std::int64_t elements = graph_.value(factors).elements();
    const ValueId sum = new_value(suffix, elements, ValueKind::gradient);
    transfer(role, Phase::optimizer, Collective::all_reduce, p.group, elements, {{Operand::payload, factors}},
             {{Operand::payload, sum}}, p.role)
        .per_micro_batch = false;
    return sum;
  };
  if (stage == Role::grad_reduce) {
    p.error = new_value(".error", p.elements, ValueKind::optimizer_state);
    p.basis = new_value(".basis", sizes.right, ValueKind::optimizer_state);
    const ValueId left = new_value(".left", sizes.left, ValueKind::gradient);
    step(LowRankStep::left,
         {{Operand::gradient, grad}, {Operand::compression_error, p.error, 1}, {Operand::basis, p.basis, 1}},
         {{Operand::encoded, left}});
    p.whole_gradient = grad;
    return sum_up(Role::grad_exchange, left, ".left.sum");
  }
  const Read gradient{Operand::gradient, p.whole_gradient}, error{Operand::compression_error, p.error, 1};
  if (stage == Role::grad_merge) {
    p.left_factor = new_value(".left.factor", sizes.left, ValueKind::gradient);
    const ValueId right = new_value(".right", sizes.right, ValueKind::gradient);
    step(LowRankStep::right, {gradient, error, {Operand::encoded, grad}},
         {{Operand::left_factor, p.left_factor}, {Operand::encoded, right}});
    return sum_up(Role::grad_gather, right, ".right.sum");
  }
  const std::int64_t n = shards(p.group);
  const std::int64_t own = layout_.zero == 0 ? p.elements : (p.elements + n - 1) / n;
  const ValueId sum = new_value(layout_.zero == 0 ? ".reduced" : ".shard", own, ValueKind::gradient);
  step(LowRankStep::product, {gradient, error, {Operand::left_factor, p.left_factor}, {Operand::encoded, grad}},
       {{Operand::gradient, sum}, {Operand::compression_error, p.error}, {Operand::basis, p.basis}});
  return sum;
}

}  // namespace weft
