#include "exec/bound_operation.hpp"

#include <algorithm>
#include <iterator>

namespace weft {

void BoundOperation::run(Kernels& kernels, std::int64_t step) const {
  enqueue(kernels, step);
  kernels.synchronize();
  read_results(kernels, step);
}

void BoundOperation::enqueue(Kernels& kernels, std::int64_t step) const {
  for (const Piece& piece : pieces_) piece.compute(kernels, step);
}

void BoundOperation::read_results(Kernels& kernels, std::int64_t step) const {
  for (const Piece& piece : pieces_) {
    if (piece.read_results) piece.read_results(kernels, step);
  }
}

BoundOperation BoundOperation::join(std::vector<BoundOperation> operations) {
  BoundOperation all;
  for (BoundOperation& operation : operations) {
    std::ranges::move(operation.pieces_, std::back_inserter(all.pieces_));
  }
  return all;
}

}  // namespace weft
