// Mixture of experts: the gate that gives every token its experts and slots, the rows' way to their slots and back, and
// the products of all experts side by side. Forward and backward, dX apart from dW, like the rest of kernels.hpp.
//
// A rank's tokens have slots in a buffer of `experts` x `capacity` rows. Row r of `routing` holds, for each of the
// token's `top_k` choices in descending order of score, the slot (or -1 - expert where the expert was full: the choice
// is dropped), then as many weights.
#pragma once

#include <cstdint>
#include <span>

#include "base/element_range.hpp"
#include "kernels/matrix.hpp"

namespace weft {

// Who gets the slots of an expert that more tokens want than it has.
enum class SlotOrder : std::uint8_t {
  token,    // earlier tokens, whatever choice of theirs the expert is
  choice,   // first choices in order of tokens, then second choices, ... (GShard)
  priority  // first choices of tokens by descending probability of their first choice, then second choices, ... (V-MoE)
};

struct GateShape {
  std::int64_t experts = 1, top_k = 1;
  std::int64_t capacity = 1;  // slots of an expert
  SlotOrder order = SlotOrder::token;
  bool renormalise = false;  // weights are probabilities over the sum of those of the chosen experts
  std::int64_t slots() const { return experts * capacity; }
};
// Slots are kept as floats.
inline constexpr std::int64_t kMaxSlots = std::int64_t{1} << 24;

// By expert: how many choices fell on it, dropped ones among them, and the sum of its probabilities over the tokens.
struct GateLoad {
  Vector choices, probabilities;
};

// Softmax over a row of scores, the largest top_k (of equal ones the first), their weights and slots. Into::add: the
// rows are the next of a batch whose earlier rows left `load`; together they get what the whole batch would give them.
// Only where the order is that of tokens (any order that gives slots as tokens come: with one choice, `choice` too).
void gate(const GateShape& shape, const Matrix& scores, const Matrix& routing, const GateLoad& load, Into into);
bool passes_capacity_on(const GateShape& shape);

// The balance loss of Switch Transformers (equation 4), over top_k choices: coefficient * experts * the sum over
// experts of (choices / (tokens top_k)) (probabilities / tokens). The choices count as constants.
struct BalanceLoss {
  double coefficient = 0;
  std::int64_t tokens = 1;  // of the whole batch that the load is of
};
double balance_loss(const GateShape& shape, const BalanceLoss& balance, const GateLoad& load);
// d_weights: by token and choice; those of dropped choices count as well, so they must be zero where nothing used them.
void gate_input_grad(const GateShape& shape, const BalanceLoss& balance, const Matrix& d_weights, const Matrix& scores,
                     const Matrix& routing, const GateLoad& load, const Matrix& d_scores);

// What becomes of slots that no row of `routing` has.
enum class EmptySlots : std::uint8_t { clear, keep };
// A token's row goes to the slots of its choices.
void dispatch_rows(const Matrix& x, const Matrix& routing, const Matrix& slots, EmptySlots empty);
// dx = the sum of the rows in the token's slots.
void dispatch_rows_input_grad(const Matrix& d_slots, const Matrix& routing, const Matrix& dx);
// y = the weighted sum of the rows in the token's slots: zero where all choices were dropped.
void combine_rows(const Matrix& slots, const Matrix& routing, const Matrix& y);
void combine_rows_input_grad(const Matrix& dy, const Matrix& slots, const Matrix& routing, const Matrix& d_slots,
                             const Matrix& d_weights, EmptySlots empty);

// Rows in blocks of `capacity`, one after the other: [source][expert]. Products take those of every block that `used`
// says, by block; empty: all of every block.
struct ExpertBlocks {
  std::int64_t sources = 1, experts = 1, capacity = 0;
  std::span<const ElementRange> used = {};
  std::int64_t rows() const { return sources * experts * capacity; }
};
// y = x w^T + bias with the expert's own weight, biases all or none. Rows that are not used stay what they are.
void expert_linear(const ExpertBlocks& blocks, const Matrix& x, std::span<const Matrix> weights,
                   std::span<const Vector> biases, const Matrix& y);
void expert_linear_input_grad(const ExpertBlocks& blocks, const Matrix& dy, std::span<const Matrix> weights,
                              const Matrix& dx);
void expert_linear_weight_grad(const ExpertBlocks& blocks, const Matrix& x, const Matrix& dy,
                               std::span<const Matrix> d_weights, std::span<const Vector> d_biases, Into into);

}  // namespace weft
