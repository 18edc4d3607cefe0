#include "kernels/experts.hpp"

#include "kernels/checks.hpp"

namespace weft {
namespace {

void check_gate(const GateShape& shape, const Matrix& scores, const Matrix& routing, const GateLoad& load) {
  WEFT_CHECK(shape.experts > 0 && shape.top_k > 0 && shape.top_k <= shape.experts);
  WEFT_CHECK(shape.capacity > 0 && shape.slots() <= kMaxSlots);
  check_shape(scores, routing.rows, shape.experts);
  check_shape(routing, scores.rows, 2 * shape.top_k);
  check_size(load.choices, shape.experts);
  check_size(load.probabilities, shape.experts);
}

// Slots are data, but a kernel must never write beyond its buffer.
void check_routing(const Matrix& routing, const Matrix& slots) {
  WEFT_CHECK(is_matrix(routing) && routing.columns > 0 && routing.columns % 2 == 0);
  const auto limit = static_cast<float>(slots.rows);
  for (std::int64_t r = 0; r < routing.rows; ++r) {
    const std::span<const float> of_token = floats_of(routing.row(r));
    for (std::int64_t j = 0; j < routing.columns / 2; ++j) WEFT_CHECK(of_token[static_cast<std::size_t>(j)] < limit);
  }
}

void check_blocks(const ExpertBlocks& blocks, const Matrix& x, const Matrix& y) {
  WEFT_CHECK(blocks.sources > 0 && blocks.experts > 0 && blocks.capacity >= 0);
  check_shape(x, blocks.rows(), x.columns);
  check_shape(y, blocks.rows(), y.columns);
  WEFT_CHECK(blocks.used.empty() || std::ssize(blocks.used) == blocks.sources * blocks.experts);
  for (const ElementRange& used : blocks.used) {
    WEFT_CHECK(used.empty() || (used.begin >= 0 && used.end <= blocks.capacity));
  }
}

void check_weights(const ExpertBlocks& blocks, const Matrix& x, const Matrix& y, std::span<const Matrix> weights,
                   std::span<const Vector> biases) {
  WEFT_CHECK(std::ssize(weights) == blocks.experts);
  for (const Matrix& weight : weights) check_shape(weight, y.columns, x.columns);
  WEFT_CHECK(biases.empty() || std::ssize(biases) == blocks.experts);
  for (const Vector& bias : biases) check_size(bias, y.columns);
}

}  // namespace

bool passes_capacity_on(const GateShape& shape) {
  return shape.order == SlotOrder::token || (shape.order == SlotOrder::choice && shape.top_k == 1);
}

void gate(const GateShape& shape, const Matrix& scores, const Matrix& routing, const GateLoad& load, Into into) {
  check_gate(shape, scores, routing, load);
  WEFT_CHECK(into == Into::overwrite || passes_capacity_on(shape));
  loaded_kernels().gate(shape, scores, routing, load, into);
}

double balance_loss(const GateShape& shape, const BalanceLoss& balance, const GateLoad& load) {
  check_size(load.choices, shape.experts);
  check_size(load.probabilities, shape.experts);
  const std::span<const float> choices = floats_of(load.choices), probabilities = floats_of(load.probabilities);
  double sum = 0;
  for (std::size_t e = 0; e < choices.size(); ++e) {
    sum += static_cast<double>(choices[e]) * static_cast<double>(probabilities[e]);
  }
  const auto tokens = static_cast<double>(balance.tokens);
  return balance.coefficient * static_cast<double>(shape.experts) * sum /
         (tokens * tokens * static_cast<double>(shape.top_k));
}

void gate_input_grad(const GateShape& shape, const BalanceLoss& balance, const Matrix& d_weights, const Matrix& scores,
                     const Matrix& routing, const GateLoad& load, const Matrix& d_scores) {
  check_gate(shape, scores, routing, load);
  WEFT_CHECK(balance.tokens > 0);
  check_shape(d_weights, scores.rows, shape.top_k);
  check_shape(d_scores, scores.rows, scores.columns);
  loaded_kernels().gate_input_grad(shape, balance, d_weights, scores, routing, load, d_scores);
}

void dispatch_rows(const Matrix& x, const Matrix& routing, const Matrix& slots, EmptySlots empty) {
  check_shape(x, routing.rows, slots.columns);
  check_shape(slots, slots.rows, x.columns);
  check_routing(routing, slots);
  loaded_kernels().dispatch_rows(x, routing, slots, empty);
}

void dispatch_rows_input_grad(const Matrix& d_slots, const Matrix& routing, const Matrix& dx) {
  check_shape(dx, routing.rows, d_slots.columns);
  check_shape(d_slots, d_slots.rows, dx.columns);
  check_routing(routing, d_slots);
  loaded_kernels().dispatch_rows_input_grad(d_slots, routing, dx);
}

void combine_rows(const Matrix& slots, const Matrix& routing, const Matrix& y) {
  check_shape(y, routing.rows, slots.columns);
  check_shape(slots, slots.rows, y.columns);
  check_routing(routing, slots);
  loaded_kernels().combine_rows(slots, routing, y);
}

void combine_rows_input_grad(const Matrix& dy, const Matrix& slots, const Matrix& routing, const Matrix& d_slots,
                             const Matrix& d_weights, EmptySlots empty) {
  check_shape(dy, routing.rows, slots.columns);
  check_shape(slots, d_slots.rows, d_slots.columns);
  check_shape(d_slots, slots.rows, slots.columns);
  check_shape(d_weights, routing.rows, routing.columns / 2);
  check_routing(routing, slots);
  loaded_kernels().combine_rows_input_grad(dy, slots, routing, d_slots, d_weights, empty);
}

void expert_linear(const ExpertBlocks& blocks, const Matrix& x, std::span<const Matrix> weights,
                   std::span<const Vector> biases, const Matrix& y) {
  check_blocks(blocks, x, y);
  check_weights(blocks, x, y, weights, biases);
  loaded_kernels().expert_linear(blocks, x, weights, biases, y);
}

void expert_linear_input_grad(const ExpertBlocks& blocks, const Matrix& dy, std::span<const Matrix> weights,
                              const Matrix& dx) {
  check_blocks(blocks, dx, dy);
  check_weights(blocks, dx, dy, weights, {});
  loaded_kernels().expert_linear_input_grad(blocks, dy, weights, dx);
}

void expert_linear_weight_grad(const ExpertBlocks& blocks, const Matrix& x, const Matrix& dy,
                               std::span<const Matrix> d_weights, std::span<const Vector> d_biases, Into into) {
  check_blocks(blocks, x, dy);
  check_weights(blocks, x, dy, d_weights, d_biases);
  loaded_kernels().expert_linear_weight_grad(blocks, x, dy, d_weights, d_biases, into);
}

}  // namespace weft
