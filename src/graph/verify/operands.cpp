// Every operation has the operands that its kind of computation needs, each once, and no others.
#include <algorithm>
#include <array>
#include <optional>

#include "graph/verify/rules.hpp"

namespace weft {
namespace {

using enum Operand;

class OperandSet {
 public:
  constexpr OperandSet(std::initializer_list<Operand> operands) {
    for (const Operand operand : operands) bits_ |= bit(operand);
  }
  constexpr bool has(Operand operand) const { return (bits_ & bit(operand)) != 0; }

 private:
  static constexpr std::uint64_t bit(Operand operand) { return std::uint64_t{1} << static_cast<int>(operand); }
  std::uint64_t bits_ = 0;
};

struct OperandRule {
  OpKind kind;
  Phase phase;               // recomputation follows the rule of forward
  std::optional<Role> role;  // a rule for one role comes before that for all others
  OperandSet needs, may_read;
  OperandSet makes, may_write;
};

constexpr OperandRule kRules[] = {
    {OpKind::gemm, Phase::forward, {}, {input, weight}, {}, {output}, {output_beside}},
    {OpKind::gemm, Phase::input_grad, {}, {output_grad, weight}, {output_beside_grad, addend_grad}, {input_grad}, {}},
    {OpKind::gemm, Phase::weight_grad, {}, {input, output_grad}, {output_beside_grad}, {weight_grad}, {}},
    {OpKind::attention,
     Phase::forward,
     {},
     {queries},
     {keys_values, rotary_key},
     {output},
     {log_sums, softmax, dropped_softmax, kept_elements}},
    {OpKind::attention,
     Phase::input_grad,
     {},
     {queries, output_grad, output},
     {keys_values, rotary_key, log_sums, softmax, dropped_softmax, kept_elements},
     {queries_grad},
     {keys_values_grad, rotary_key_grad}},
    {OpKind::norm, Phase::forward, {}, {input, weight}, {input_beside}, {output}, {output_beside}},
    {OpKind::norm,
     Phase::input_grad,
     {},
     {output_grad, input, weight},
     {output_beside_grad, input_beside, addend_grad},
     {input_grad},
     {input_beside_grad}},
    {OpKind::norm, Phase::weight_grad, {}, {input, output_grad}, {input_beside, output_beside_grad}, {weight_grad}, {}},
    {OpKind::elementwise, Phase::forward, Role::loss, {input, loss_parts}, {}, {output}, {}},
    {OpKind::elementwise, Phase::input_grad, Role::loss, {output}, {}, {input_grad}, {}},
    {OpKind::elementwise, Phase::weight_grad, Role::positions, {output_grad}, {}, {weight_grad}, {}},
    {OpKind::elementwise, Phase::forward, Role::param_keep, {weight}, {}, {weight}, {}},
    {OpKind::elementwise, Phase::forward, Role::kv_gather, {keys_values}, {rotary_key}, {keys_values}, {rotary_key}},
    {OpKind::elementwise, Phase::input_grad, Role::kv_gather, {keys_values}, {rotary_key}, {keys_values}, {rotary_key}},
    {OpKind::elementwise,
     Phase::input_grad,
     Role::kv_reduce,
     {keys_values_grad},
     {rotary_key_grad},
     {keys_values_grad},
     {rotary_key_grad}},
    {OpKind::elementwise, Phase::forward, {}, {input}, {addend}, {output}, {kept_elements}},
    {OpKind::elementwise, Phase::input_grad, {}, {output_grad}, {input, addend_grad, kept_elements}, {input_grad}, {}},
    {OpKind::gather_rows, Phase::forward, Role::embedding, {weight}, {positions}, {output}, {}},
    {OpKind::gather_rows, Phase::weight_grad, Role::embedding, {output_grad}, {}, {weight_grad}, {}},
    {OpKind::gather_rows, Phase::forward, {}, {input, routing}, {}, {output}, {}},
    {OpKind::gather_rows,
     Phase::input_grad,
     Role::combine,
     {output_grad, input, routing},
     {},
     {input_grad, routing_grad},
     {}},
    {OpKind::gather_rows, Phase::input_grad, {}, {output_grad, routing}, {}, {input_grad}, {}},
    {OpKind::cross_entropy, Phase::forward, {}, {input}, {}, {}, {output, loss_parts}},
    {OpKind::gate, Phase::forward, {}, {input}, {loads}, {routing, loads}, {}},
    {OpKind::gate, Phase::input_grad, {}, {routing_grad, input, routing, loads}, {}, {input_grad}, {}},
    {OpKind::square_sum, Phase::optimizer, Role::task, {weight}, {}, {square_sum}, {}},
    {OpKind::square_sum, Phase::optimizer, {}, {gradient}, {}, {square_sum}, {}},
    {OpKind::adam,
     Phase::optimizer,
     {},
     {gradient, optimizer_state},
     {weight, square_sum, direction},
     {weight, optimizer_state},
     {}},
    {OpKind::curvature, Phase::weight_grad, {}, {}, {input, output_grad}, {Operand::curvature}, {}},
    {OpKind::inverse,
     Phase::optimizer,
     {},
     {Operand::curvature, factor, direction},
     {},
     {factor, Operand::inverse},
     {}},
    {OpKind::precondition, Phase::optimizer, {}, {gradient, input_inverse, output_inverse}, {}, {direction}, {}},
    {OpKind::task, Phase::forward, Role::task, {}, {}, {}, {}},
    {OpKind::task, Phase::input_grad, Role::task, {}, {}, {}, {}},
    {OpKind::task, Phase::optimizer, Role::task, {}, {}, {}, {}},
    {OpKind::encode, Phase::optimizer, Role::param_encode, {weight}, {}, {encoded}, {}},
    {OpKind::encode, Phase::weight_grad, {}, {gradient}, {}, {encoded}, {}},
    {OpKind::decode, Phase::forward, Role::param_decode, {encoded}, {}, {weight}, {}},
    {OpKind::decode, Phase::input_grad, Role::param_decode, {encoded}, {}, {weight}, {}},
    {OpKind::decode, Phase::optimizer, Role::param_decode, {encoded}, {}, {weight}, {}},
    {OpKind::decode, Phase::weight_grad, {}, {encoded}, {}, {gradient}, {}},
    {OpKind::encode, Phase::optimizer, {}, {gradient, compression_error}, {}, {encoded, compression_error}, {}},
    {OpKind::decode, Phase::optimizer, {}, {encoded}, {}, {gradient}, {}},
    {OpKind::low_rank,
     Phase::optimizer,
     Role::grad_encode,
     {gradient, compression_error},
     {basis, encoded},
     {encoded},
     {left_factor}},
    {OpKind::low_rank,
     Phase::optimizer,
     Role::grad_decode,
     {gradient, compression_error, left_factor, encoded},
     {},
     {gradient, compression_error, basis},
     {}},
};

const OperandRule* rule_for(const Operation& op) {
  const Phase phase = op.phase == Phase::recompute ? Phase::forward : op.phase;
  const auto found = std::find_if(std::begin(kRules), std::end(kRules), [&](const OperandRule& rule) {
    return rule.kind == op.key.kind && rule.phase == phase && (!rule.role || *rule.role == op.role);
  });
  return found == std::end(kRules) ? nullptr : found;
}

using Counts = std::array<std::size_t, kOperands>;

template <class Touches>
Counts count_names(const Touches& touches) {
  Counts counts{};
  for (const auto& touch : touches) ++counts[static_cast<std::size_t>(touch.operand)];
  return counts;
}

// A norm is that of any number of gradients, and any number of slices have keys and values.
bool has_any_number(const Operation& op) {
  return op.key.kind == OpKind::square_sum ||
         (op.key.kind == OpKind::elementwise && (op.role == Role::kv_gather || op.role == Role::kv_reduce));
}

// A merged operation has the operands of all that it carries out.
void verify_side(const StepGraph& graph, const Operation& op, const Counts& counts, const OperandSet& needs,
                 const OperandSet& may, const char* verb) {
  const std::size_t most = std::max<std::size_t>(1, op.origins.size());
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    const std::size_t count = counts[i];
    if (count > 0 && !needs.has(operand) && !may.has(operand)) {
      reject(graph, op, "{} a value as its '{}', which it does not have", verb, name_of(operand));
    }
    if (count == 0 && needs.has(operand)) reject(graph, op, "{} no value as its '{}'", verb, name_of(operand));
    if (count > most && !has_any_number(op)) {
      reject(graph, op, "{} {} values as its '{}'", verb, count, name_of(operand));
    }
  }
}

// The payload has the same name before and after; a message has only one end here.
void verify_transfer(const StepGraph& graph, const Operation& op) {
  constexpr OperandSet kAny{payload, keys_values, rotary_key, keys_values_grad, rotary_key_grad};
  verify_side(graph, op, count_names(op.reads), {}, kAny, "reads");
  verify_side(graph, op, count_names(op.writes), {}, kAny, "writes");
  const auto same_name = [](const Read& read, const Write& write) { return read.operand == write.operand; };
  if (op.communication->collective != Collective::send_recv &&
      !std::equal(op.reads.begin(), op.reads.end(), op.writes.begin(), op.writes.end(), same_name)) {
    reject(graph, op, "does not write under the names that it reads under");
  }
}

}  // namespace

void verify_operands(const StepGraph& graph) {
  for (const Operation& op : graph.operations) {
    if (op.is_transfer() != (op.key.kind == OpKind::transfer)) continue;  // verify_transfers rejects it
    if (op.is_transfer()) {
      verify_transfer(graph, op);
      continue;
    }
    const OperandRule* const rule = rule_for(op);
    if (rule == nullptr) reject(graph, op, "no operation of kind {} has this role and phase", name_of(op.key.kind));
    verify_side(graph, op, count_names(op.reads), rule->needs, rule->may_read, "reads");
    verify_side(graph, op, count_names(op.writes), rule->makes, rule->may_write, "writes");
  }
}

}  // namespace weft
