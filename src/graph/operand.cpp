#include "graph/operand.hpp"

#include <array>

namespace weft {

std::string_view name_of(Operand operand) {
  static constexpr std::array<std::string_view, kOperands> kNames{"input",
                                                                  "input_beside",
                                                                  "output",
                                                                  "output_beside",
                                                                  "addend",
                                                                  "weight",
                                                                  "positions",
                                                                  "queries",
                                                                  "keys_values",
                                                                  "rotary_key",
                                                                  "log_sums",
                                                                  "softmax",
                                                                  "dropped_softmax",
                                                                  "kept_elements",
                                                                  "routing",
                                                                  "loads",
                                                                  "loss_parts",
                                                                  "output_grad",
                                                                  "output_beside_grad",
                                                                  "input_grad",
                                                                  "input_beside_grad",
                                                                  "addend_grad",
                                                                  "weight_grad",
                                                                  "queries_grad",
                                                                  "keys_values_grad",
                                                                  "rotary_key_grad",
                                                                  "routing_grad",
                                                                  "gradient",
                                                                  "square_sum",
                                                                  "optimizer_state",
                                                                  "payload"};
  return kNames[static_cast<std::size_t>(operand)];
}

}  // namespace weft
