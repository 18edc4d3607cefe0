// The kernels of mixtures of experts inside the module: what experts.hpp says, sizes already checked.
#pragma once

#include "kernels/experts.hpp"

namespace weft::aten {

void gate(const GateShape& shape, const Matrix& scores, const Matrix& routing, const GateLoad& load, Into into);
void gate_input_grad(const GateShape& shape, const BalanceLoss& balance, const Matrix& d_weights, const Matrix& scores,
                     const Matrix& routing, const GateLoad& load, const Matrix& d_scores);
void dispatch_rows(const Matrix& x, const Matrix& routing, const Matrix& slots, EmptySlots empty);
void dispatch_rows_input_grad(const Matrix& d_slots, const Matrix& routing, const Matrix& dx);
void combine_rows(const Matrix& slots, const Matrix& routing, const Matrix& y);
void combine_rows_input_grad(const Matrix& dy, const Matrix& slots, const Matrix& routing, const Matrix& d_slots,
                             const Matrix& d_weights, EmptySlots empty);
void expert_linear(const ExpertBlocks& blocks, const Matrix& x, std::span<const Matrix> weights,
                   std::span<const Vector> biases, const Matrix& y);
void expert_linear_input_grad(const ExpertBlocks& blocks, const Matrix& dy, std::span<const Matrix> weights,
                              const Matrix& dx);
void expert_linear_weight_grad(const ExpertBlocks& blocks, const Matrix& x, const Matrix& dy,
                               std::span<const Matrix> d_weights, std::span<const Vector> d_biases, Into into);

}  // namespace weft::aten
