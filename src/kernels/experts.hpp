// Arguments of the kernels for a mixture of experts: the gate that gives every token its experts and slots, the
// movement of rows to their slots and back, and the products of all experts.
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

// Which tokens get the slots of an expert that more tokens want than it has.
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
  // Where rows come in several consecutive calls and the slots of each call are its own, counted from 0 in every call:
  // how many choices an expert takes in all of them. 0: all calls share the slots.
  std::int64_t capacity_of_calls = 0;
  std::int64_t slots() const { return experts * capacity; }
};
// Slots are kept as floats.
inline constexpr std::int64_t kMaxSlots = std::int64_t{1} << 24;

// By expert: how many choices fell on it, dropped ones among them, and the sum of its probabilities over the tokens.
struct GateLoad {
  Vector choices, probabilities;
};

// Returns whether the rows of a batch may get their slots in several consecutive calls: where tokens get slots in their
// order.
inline bool passes_capacity_on(const GateShape& shape) {
  return shape.order == SlotOrder::token || (shape.order == SlotOrder::choice && shape.top_k == 1);
}

// The balance loss of Switch Transformers (equation 4), over top_k choices: coefficient * experts * the sum over
// experts of (choices / (tokens top_k)) (probabilities / tokens). The choices count as constants.
struct BalanceLoss {
  double coefficient = 0;
  std::int64_t tokens = 1;  // of the whole batch that the load is of
};

// What happens to slots that no row of `routing` has.
enum class EmptySlots : std::uint8_t { clear, keep };

// Rows in consecutive blocks of `capacity`: [source][expert]. `used` says how many rows of each block products work on;
// where it is empty, all.
struct CapacityBlocks {
  std::int64_t sources = 1, experts = 1, capacity = 0;
  std::span<const ElementRange> used = {};
  std::int64_t rows() const { return sources * experts * capacity; }
};

}  // namespace weft
