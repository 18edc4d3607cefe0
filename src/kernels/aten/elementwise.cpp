#include <algorithm>

#include "kernels/aten/aten_kernels.hpp"
#include "kernels/aten/loops.hpp"
#include "kernels/aten/vector_math.hpp"

namespace weft::aten {
namespace {

constexpr float kInverseSqrt2 = 0.70710678118654752440F;
constexpr float kInverseSqrt2Pi = 0.39894228040143267794F;

// body(row) for every row of x
template <class Body>
void for_rows(const Matrix& x, const Body& body) {
  in_ranges(x.rows, row_grain(x.columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) body(r);
  });
}

}  // namespace

void AtenKernels::gelu(const Matrix& x, const Matrix& y) {
  for_rows(x, [&](std::int64_t r) {
    const float* in = row(x, r);
    float* out = row(y, r);
    for (std::int64_t c = 0; c < x.columns; ++c) out[c] = in[c] * (0.5F + 0.5F * error_function(in[c] * kInverseSqrt2));
  });
}

void AtenKernels::gelu_input_grad(const Matrix& dy, const Matrix& x, const Matrix& dx) {
  for_rows(x, [&](std::int64_t r) {
    const float* in = row(x, r);
    const float* gradient = row(dy, r);
    float* out = row(dx, r);
    for (std::int64_t c = 0; c < x.columns; ++c) {
      const float share = 0.5F + 0.5F * error_function(in[c] * kInverseSqrt2);
      const float density = kInverseSqrt2Pi * exponential(-0.5F * in[c] * in[c]);
      out[c] = gradient[c] * (share + in[c] * density);
    }
  });
}

void AtenKernels::swiglu(const Matrix& x, const Matrix& y) {
  for_rows(y, [&](std::int64_t r) {
    const float* gates = row(x, r);
    const float* values = gates + y.columns;
    float* out = row(y, r);
    for (std::int64_t c = 0; c < y.columns; ++c) out[c] = gates[c] * sigmoid(gates[c]) * values[c];
  });
}

void AtenKernels::swiglu_input_grad(const Matrix& dy, const Matrix& x, const Matrix& dx) {
  for_rows(dy, [&](std::int64_t r) {
    const float* gates = row(x, r);
    const float* values = gates + dy.columns;
    const float* gradient = row(dy, r);
    float* d_gates = row(dx, r);
    float* d_values = d_gates + dy.columns;
    for (std::int64_t c = 0; c < dy.columns; ++c) {
      const float gate = gates[c], value = values[c], share = sigmoid(gate);
      d_gates[c] = gradient[c] * value * share * (1.0F + gate * (1.0F - share));
      d_values[c] = gradient[c] * gate * share;
    }
  });
}

void AtenKernels::add(const Matrix& a, const Matrix& b, const Matrix& sum) {
  for_rows(sum, [&](std::int64_t r) {
    const float* left = row(a, r);
    const float* right = row(b, r);
    float* out = row(sum, r);
    for (std::int64_t c = 0; c < sum.columns; ++c) out[c] = left[c] + right[c];
  });
}

void AtenKernels::copy(const Matrix& from, const Matrix& to) {
  for_rows(to, [&](std::int64_t r) { std::copy_n(row(from, r), from.columns, row(to, r)); });
}

void AtenKernels::fill(const Vector& x, float value) {
  std::fill_n(floats(x), x.size, value);
}

}  // namespace weft::aten
