// Which tensors of a parameter PowerSGD sends as two factors of low rank, and where everything lies in its messages.
// As in PyTorch's powerSGD_hook, a tensor whose factors would have more than half of its elements travels as it is.
#pragma once

#include <cstdint>
#include <vector>

#include "base/element_range.hpp"
#include "compress/low_rank.hpp"
#include "graph/held_tensor.hpp"

namespace weft {

struct FactorSizes {
  std::vector<LowRankMatrix> matrices;
  // Of the parameter's elements, those that are in no matrix. They travel behind the left factors, in this order.
  std::vector<ElementRange> plain;
  std::int64_t left = 0, right = 0;  // elements of each message
  bool has_factors() const { return !matrices.empty(); }
};

FactorSizes factor_sizes(const std::vector<HeldTensor>& tensors, std::int64_t rank);

}  // namespace weft
