#include "graph/operand.hpp"

#include "base/enum_name.hpp"

namespace weft {

std::string_view name_of(Operand operand) {
  static constexpr auto kNames = split_names<kOperands>(
      "input input_beside output output_beside addend weight positions queries keys_values rotary_key log_sums "
      "softmax dropped_softmax kept_elements routing loads loss_parts output_grad output_beside_grad input_grad "
      "input_beside_grad addend_grad weight_grad queries_grad keys_values_grad rotary_key_grad routing_grad "
      "gradient square_sum optimizer_state encoded compression_error basis left_factor curvature factor inverse "
      "input_inverse "
      "output_inverse direction payload");
  return enum_name(kNames, operand);
}

}  // namespace weft
