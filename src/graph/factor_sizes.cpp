#include "graph/factor_sizes.hpp"

#include <algorithm>

namespace weft {
namespace {

constexpr std::int64_t kLeastRate = 2;  // elements of a tensor for each of its factors: min_compression_rate of PyTorch

bool is_worth_it(std::int64_t rows, std::int64_t columns, std::int64_t rank) {
  return (rows + columns) * rank * kLeastRate < rows * columns;
}

}  // namespace

FactorSizes factor_sizes(const std::vector<HeldTensor>& tensors, std::int64_t rank) {
  FactorSizes sizes;
  for (const HeldTensor& tensor : tensors) {
    const std::int64_t rows = tensor.row_count(), columns = tensor.columns.size();
    const std::int64_t own_rank = std::min({rank, rows, columns});
    if (tensor.whole.shape.size() < 2 || !is_worth_it(rows, columns, own_rank)) {
      if (tensor.elements() > 0) sizes.plain.push_back({tensor.offset, tensor.offset + tensor.elements()});
      continue;
    }
    sizes.matrices.push_back({tensor.offset, rows, columns, own_rank, sizes.left, sizes.right});
    sizes.left += own_rank * rows;
    sizes.right += own_rank * columns;
  }
  for (const ElementRange& range : sizes.plain) sizes.left += range.size();
  return sizes;
}

}  // namespace weft
