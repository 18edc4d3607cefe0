#include <algorithm>

#include "kernels/aten/aten_kernels.hpp"
#include "kernels/aten/loops.hpp"
#include "kernels/aten/products.hpp"

namespace weft::aten {

void AtenKernels::linear(const Matrix& x, const Matrix& w, const Vector& bias, const Matrix& y, Into into) {
  // Adds the product to the bias, which only writes y; adding the bias to the product would read y as well.
  if (!bias.empty()) {
    const float* biases = floats(bias);
    in_ranges(y.rows, row_grain(y.columns), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        float* out = row(y, r);
        if (into == Into::overwrite)
          std::copy_n(biases, y.columns, out);
        else
          for (std::int64_t c = 0; c < y.columns; ++c) out[c] += biases[c];
      }
    });
  }
  multiply({x}, {w, Turned::yes}, y, bias.empty() ? into : Into::add);
}

void AtenKernels::linear_input_grad(const Matrix& dy, const Matrix& w, const Matrix& dx, Into into) {
  multiply({dy}, {w}, dx, into);
}

void AtenKernels::linear_weight_grad(const Matrix& x, const Matrix& dy, const Matrix& dw, const Vector& dbias,
                                     Into into) {
  multiply({dy, Turned::yes}, {x}, dw, into);
  if (!dbias.empty()) sum_rows(dy, floats(dbias), into);
}

}  // namespace weft::aten
