#include "exec/bound_operation.hpp"

namespace weft {

void BoundOperation::run(Kernels& kernels, std::int64_t step) const {
  compute_(kernels, step);
  kernels.synchronize();
  BoundOperation::read_results(kernels, step);
}

BoundOperation BoundOperation::join(std::vector<BoundOperation> pieces) {
  if (pieces.size() == 1) return pieces.front();
  const auto read = [pieces](Kernels& kernels, std::int64_t step) {
    for (const BoundOperation& piece : pieces) {
      if (piece.read_results_) piece.read_results_(kernels, step);
    }
  };
  const auto compute = [pieces = std::move(pieces)](Kernels& kernels, std::int64_t step) {
    for (const BoundOperation& piece : pieces) piece.compute_(kernels, step);
  };
  return {compute, read};
}

}  // namespace weft
