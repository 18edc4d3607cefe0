#include "kernels/cuda/cuda_kernels.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/dropout_hash.hpp"

namespace weft::cuda {
namespace {

constexpr float kInverseSqrt2 = 0.70710678118654752440F;
constexpr float kInverseSqrt2Pi = 0.39894228040143267794F;

__device__ float sigmoid(float x) {
  return 1.0F / (1.0F + expf(-x));
}

// At once where they begin at a whole word.
__device__ void store_bytes(std::uint8_t* to, const std::uint8_t* from, int count) {
  if (count == kChunk && reinterpret_cast<std::uintptr_t>(to) % kChunk == 0) {
    *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(from);
    return;
  }
  for (int i = 0; i < count; ++i) to[i] = from[i];
}

}  // namespace

void CudaKernels::gelu(const Matrix& x, const Matrix& y) {
  const Operand in = operand(x), out = operand(y);
  for_chunks(context_, flat_extent(x.rows, x.columns, {in, out}),
             [=] __device__(std::int64_t row, std::int64_t column, int count) {
               Values a = load(in, row, column, count);
#pragma unroll
               for (float& v : a.v) v *= 0.5F + 0.5F * erff(v * kInverseSqrt2);
               store(out, row, column, a, count);
             });
}

void CudaKernels::gelu_input_grad(const Matrix& dy, const Matrix& x, const Matrix& dx) {
  const Operand gradient = operand(dy), in = operand(x), out = operand(dx);
  for_chunks(context_, flat_extent(x.rows, x.columns, {gradient, in, out}),
             [=] __device__(std::int64_t row, std::int64_t column, int count) {
               const Values a = load(in, row, column, count);
               Values d = load(gradient, row, column, count);
#pragma unroll
               for (int i = 0; i < kChunk; ++i) {
                 const float share = 0.5F + 0.5F * erff(a.v[i] * kInverseSqrt2);
                 d.v[i] *= share + a.v[i] * kInverseSqrt2Pi * expf(-0.5F * a.v[i] * a.v[i]);
               }
               store(out, row, column, d, count);
             });
}

void CudaKernels::swiglu(const Matrix& x, const Matrix& y) {
  const Operand gates = operand(x.column_slice(0, y.columns)), values = operand(x.column_slice(y.columns, x.columns));
  const Operand out = operand(y);
  for_chunks(context_, {y.rows, y.columns}, [=] __device__(std::int64_t row, std::int64_t column, int count) {
    const Values gate = load(gates, row, column, count);
    Values value = load(values, row, column, count);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) value.v[i] *= gate.v[i] * sigmoid(gate.v[i]);
    store(out, row, column, value, count);
  });
}

void CudaKernels::swiglu_input_grad(const Matrix& dy, const Matrix& x, const Matrix& dx) {
  const std::int64_t columns = dy.columns;
  const Operand gates = operand(x.column_slice(0, columns)), values = operand(x.column_slice(columns, 2 * columns));
  const Operand d_gates = operand(dx.column_slice(0, columns)),
                d_values = operand(dx.column_slice(columns, 2 * columns));
  const Operand gradient = operand(dy);
  for_chunks(context_, {dy.rows, columns}, [=] __device__(std::int64_t row, std::int64_t column, int count) {
    const Values d = load(gradient, row, column, count);
    Values gate = load(gates, row, column, count), value = load(values, row, column, count);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const float share = sigmoid(gate.v[i]), of_value = d.v[i] * gate.v[i] * share;
      gate.v[i] = d.v[i] * value.v[i] * share * (1.0F + gate.v[i] * (1.0F - share));
      value.v[i] = of_value;
    }
    store(d_gates, row, column, gate, count);
    store(d_values, row, column, value, count);
  });
}

void CudaKernels::add(const Matrix& a, const Matrix& b, const Matrix& sum) {
  const Operand left = operand(a), right = operand(b), out = operand(sum);
  for_chunks(context_, flat_extent(sum.rows, sum.columns, {left, right, out}),
             [=] __device__(std::int64_t row, std::int64_t column, int count) {
               Values x = load(left, row, column, count);
               const Values y = load(right, row, column, count);
#pragma unroll
               for (int i = 0; i < kChunk; ++i) x.v[i] += y.v[i];
               store(out, row, column, x, count);
             });
}

void CudaKernels::copy(const Matrix& from, const Matrix& to) {
  const Operand in = operand(from), out = operand(to);
  for_chunks(context_, flat_extent(to.rows, to.columns, {in, out}),
             [=] __device__(std::int64_t row, std::int64_t column, int count) {
               store(out, row, column, load(in, row, column, count), count);
             });
}

void CudaKernels::fill(const Vector& x, float value) {
  const Operand out = operand(x);
  for_chunks(context_, {1, x.size}, [=] __device__(std::int64_t row, std::int64_t column, int count) {
    Values a;
#pragma unroll
    for (float& v : a.v) v = value;
    store(out, row, column, a, count);
  });
}

void CudaKernels::dropout(const Matrix& x, const DropoutDraw& draw, const Matrix& residual, KeptElements kept,
                          const Matrix& y) {
  const HostValue<DropoutRule> rule = context_.host_value(DropoutRule(draw.rate, draw.key));
  const Operand in = operand(x), added = operand(residual), out = operand(y);
  const std::int64_t* const rows = context_.stage(draw.rows);
  if (context_.only_takes_data()) return;
  std::uint8_t* const bytes = kept.data();
  const std::int64_t columns = x.columns;
  for_chunks(context_, {x.rows, columns}, [=] __device__(std::int64_t row, std::int64_t column, int count) {
    const RowDropout drops(value_of(rule), rows[row]);
    Values a = load(in, row, column, count), b = {};
    alignas(8) std::uint8_t kept_here[kChunk];
    if (added.data != nullptr) b = load(added, row, column, count);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const bool keeps = drops.keeps(column + i);
      a.v[i] = keeps ? a.v[i] * drops.scale() + b.v[i] : b.v[i];
      kept_here[i] = keeps ? 1 : 0;
    }
    store_bytes(bytes + row * columns + column, kept_here, count);
    store(out, row, column, a, count);
  });
}

void CudaKernels::dropout_input_grad(const Matrix& dy, double rate, KeptElements kept, const Matrix& dx) {
  const Operand in = operand(dy), out = operand(dx);
  const auto scale = static_cast<float>(1 / (1 - rate));
  const std::uint8_t* const bytes = kept.data();
  const std::int64_t columns = dy.columns;
  for_chunks(context_, {dy.rows, columns}, [=] __device__(std::int64_t row, std::int64_t column, int count) {
    Values d = load(in, row, column, count);
#pragma unroll
    for (int i = 0; i < kChunk; ++i)
      d.v[i] = i < count && bytes[row * columns + column + i] != 0 ? d.v[i] * scale : 0.0F;
    store(out, row, column, d, count);
  });
}

}  // namespace weft::cuda
