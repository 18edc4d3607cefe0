// The meaning of a value for an operation that reads or writes it. Operations find their values by these names, never
// by their position in a list.
#pragma once

#include <cstdint>
#include <string_view>

namespace weft {

enum class Operand : std::uint8_t {
  input,
  input_beside,  // a second input whose columns continue those of the first: keys and values behind the queries
  output,
  output_beside,  // a second output whose columns continue those of the first
  addend,         // what is added to the input or, by a product, to its result
  weight,
  positions,  // the table of learned positions
  queries,    // with keys and values beside them in the same rows, where those have no value of their own
  keys_values,
  rotary_key,       // of latent attention: one key that all heads share
  log_sums,         // of a flash kernel: the logarithm of the sum of a row's exponentials
  softmax,          // of an unfused kernel
  dropped_softmax,  // the softmax after dropout
  kept_elements,    // what dropout kept
  routing,          // a slot and a weight for every choice of a token
  loads,            // of experts
  loss_parts,       // maximum, sum and target's logit of every token, of one vocabulary part or of all
  output_grad,
  output_beside_grad,
  input_grad,
  input_beside_grad,
  addend_grad,
  weight_grad,  // of one micro-batch, or summed over them
  queries_grad,
  keys_values_grad,
  rotary_key_grad,
  routing_grad,  // of the weights of a token's choices
  gradient,      // of parameters, as the norm and the update read it
  square_sum,    // of gradients: the square of their norm
  optimizer_state,
  encoded,            // what a compressor made of gradients
  compression_error,  // what encodings have taken away and the next one adds
  basis,              // of PowerSGD: the right factors that the next step begins with
  left_factor,        // of PowerSGD: of the sum over ranks, with orthonormal columns
  curvature,          // of K-FAC: the sum of outer products of a step
  factor,             // its moving average over steps
  inverse,            // of the damped factor
  input_inverse,      // the inverses of a linear layer's two factors
  output_inverse,
  direction,  // the preconditioned gradient, which the update then follows
  payload     // what a transfer carries, before and after
};
inline constexpr int kOperands = static_cast<int>(Operand::payload) + 1;
std::string_view name_of(Operand operand);

}  // namespace weft
