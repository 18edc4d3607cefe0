// Products of activations and weights, of all tokens and by expert.
#include "kernels/cuda/cuda_kernels.hpp"

namespace weft::cuda {
namespace {

// Calls visit(expert, its rows) for every block that has any; the blocks of an expert in order of sources.
template <class Visit>
void for_each_block(const CapacityBlocks& blocks, const Visit& visit) {
  for (std::int64_t e = 0; e < blocks.experts; ++e) {
    for (std::int64_t s = 0; s < blocks.sources; ++s) {
      const std::int64_t block = s * blocks.experts + e, first = block * blocks.capacity;
      const ElementRange used =
          blocks.used.empty() ? ElementRange{0, blocks.capacity} : blocks.used[static_cast<std::size_t>(block)];
      if (!used.empty()) visit(static_cast<std::size_t>(e), ElementRange{first + used.begin, first + used.end});
    }
  }
}

Matrix rows_of(const Matrix& x, const ElementRange& rows) {
  return x.row_slice(rows.begin, rows.end);
}

}  // namespace

void CudaKernels::linear(const Matrix& x, const Matrix& w, const Vector& bias, const Matrix& y, Into into) {
  products_.multiply({.a = {x}, .b = {w, Turned::yes}, .out = y, .into = into, .bias = bias});
}

void CudaKernels::linear_input_grad(const Matrix& dy, const Matrix& w, const Matrix& dx, Into into) {
  products_.multiply({.a = {dy}, .b = {w}, .out = dx, .into = into});
}

void CudaKernels::linear_weight_grad(const Matrix& x, const Matrix& dy, const Matrix& dw, const Vector& dbias,
                                     Into into) {
  products_.multiply({.a = {dy, Turned::yes}, .b = {x}, .out = dw, .into = into, .sums = dbias});
}

void CudaKernels::expert_linear(const CapacityBlocks& blocks, const Matrix& x, std::span<const Matrix> weights,
                                std::span<const Vector> biases, const Matrix& y) {
  for_each_block(blocks, [&](std::size_t expert, const ElementRange& rows) {
    linear(rows_of(x, rows), weights[expert], biases.empty() ? Vector{} : biases[expert], rows_of(y, rows),
           Into::overwrite);
  });
}

void CudaKernels::expert_linear_input_grad(const CapacityBlocks& blocks, const Matrix& dy,
                                           std::span<const Matrix> weights, const Matrix& dx) {
  for_each_block(blocks, [&](std::size_t expert, const ElementRange& rows) {
    linear_input_grad(rows_of(dy, rows), weights[expert], rows_of(dx, rows), Into::overwrite);
  });
}

// The first block of an expert overwrites; an expert without rows has a gradient of zero.
void CudaKernels::expert_linear_weight_grad(const CapacityBlocks& blocks, const Matrix& x, const Matrix& dy,
                                            std::span<const Matrix> d_weights, std::span<const Vector> d_biases,
                                            Into into) {
  std::vector<Into> next(d_weights.size(), into);
  const auto bias_of = [&](std::size_t expert) { return d_biases.empty() ? Vector{} : d_biases[expert]; };
  for_each_block(blocks, [&](std::size_t expert, const ElementRange& rows) {
    linear_weight_grad(rows_of(x, rows), rows_of(dy, rows), d_weights[expert], bias_of(expert), next[expert]);
    next[expert] = Into::add;
  });
  for (std::size_t expert = 0; expert < next.size(); ++expert)
    if (next[expert] == Into::overwrite)
      linear_weight_grad(x.row_slice(0, 0), dy.row_slice(0, 0), d_weights[expert], bias_of(expert), Into::overwrite);
}

}  // namespace weft::cuda
