// One product per block: ATen 1.13 has no grouped product of different lengths, and blocks are long where time matters.
#include <algorithm>

#include "kernels/aten/aten_kernels.hpp"
#include "kernels/aten/loops.hpp"

namespace weft::aten {
namespace {

// Calls visit(expert, its rows) for every block that has any; the blocks of an expert in order of sources.
template <class Visit>
void for_each_block(const CapacityBlocks& blocks, const Visit& visit) {
  for (std::int64_t e = 0; e < blocks.experts; ++e) {
    for (std::int64_t s = 0; s < blocks.sources; ++s) {
      const std::int64_t block = s * blocks.experts + e, first = block * blocks.capacity;
      const ElementRange used = blocks.used.empty() ? ElementRange{0, blocks.capacity} : blocks.used[block];
      if (!used.empty()) visit(static_cast<std::size_t>(e), ElementRange{first + used.begin, first + used.end});
    }
  }
}

Matrix rows_of(const Matrix& x, const ElementRange& rows) {
  return x.row_slice(rows.begin, rows.end);
}

}  // namespace

void AtenKernels::expert_linear(const CapacityBlocks& blocks, const Matrix& x, std::span<const Matrix> weights,
                                std::span<const Vector> biases, const Matrix& y) {
  for_each_block(blocks, [&](std::size_t expert, const ElementRange& rows) {
    linear(rows_of(x, rows), weights[expert], biases.empty() ? Vector{} : biases[expert], rows_of(y, rows),
           Into::overwrite);
  });
}

void AtenKernels::expert_linear_input_grad(const CapacityBlocks& blocks, const Matrix& dy,
                                           std::span<const Matrix> weights, const Matrix& dx) {
  for_each_block(blocks, [&](std::size_t expert, const ElementRange& rows) {
    linear_input_grad(rows_of(dy, rows), weights[expert], rows_of(dx, rows), Into::overwrite);
  });
}

void AtenKernels::expert_linear_weight_grad(const CapacityBlocks& blocks, const Matrix& x, const Matrix& dy,
                                            std::span<const Matrix> d_weights, std::span<const Vector> d_biases,
                                            Into into) {
  if (into == Into::overwrite) {
    // An expert without rows has a gradient of zero.
    for (const Matrix& weight : d_weights) {
      for (std::int64_t r = 0; r < weight.rows; ++r) std::fill_n(row(weight, r), weight.columns, 0.0F);
    }
    for (const Vector& bias : d_biases) std::fill_n(floats(bias), bias.size, 0.0F);
  }
  for_each_block(blocks, [&](std::size_t expert, const ElementRange& rows) {
    linear_weight_grad(rows_of(x, rows), rows_of(dy, rows), d_weights[expert],
                       d_biases.empty() ? Vector{} : d_biases[expert], Into::add);
  });
}

}  // namespace weft::aten
