// LayerNorm and RMSNorm. What forward knew of a row (its mean and deviation) is computed again where it is needed: the
// row is read anyway.
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/cuda_kernels.hpp"
#include "kernels/cuda/launch.cuh"

namespace weft::cuda {
namespace {

struct RowScale {
  float mean;     // 0 for RMSNorm
  float inverse;  // of the deviation
};

struct Norm {
  Operand gain, bias;
  std::int64_t columns;
  float epsilon;
  __device__ bool is_centred() const { return bias.data != nullptr; }
};
Norm norm_of(const NormWeights& weights) {
  return {operand(weights.gain), operand(weights.bias), weights.gain.size, static_cast<float>(weights.epsilon)};
}

// The chunks of a row that a thread has. The first few are loaded at once and kept in registers, so that rows of up to
// kKept * kMaxRowThreads chunks are read once; longer ones are read again at every visit. Fewer threads a row are
// faster as long as registers suffice, which two rows at once do not leave.
inline constexpr int kKeptOfOneRow = 4, kKeptOfTwoRows = 1;
template <int kKept>
class ChunksOfThread {
 public:
  __device__ ChunksOfThread(const Operand& x, std::int64_t row, std::int64_t columns)
      : x_(x), row_(row), columns_(columns) {
#pragma unroll
    for (int k = 0; k < kKept; ++k) kept_[k] = load_chunk(column_of(k));
  }

  // Calls body(column, count, values).
  template <class Body>
  __device__ void visit(const Body& body) const {
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      if (const std::int64_t column = column_of(k); column < columns_) body(column, count_at(column), kept_[k]);
    }
    for (int k = kKept; column_of(k) < columns_; ++k)
      body(column_of(k), count_at(column_of(k)), load_chunk(column_of(k)));
  }
  // Calls body(column, count, values, the other row's values): both have the same columns.
  template <class Body>
  __device__ void visit_with(const ChunksOfThread& other, const Body& body) const {
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const std::int64_t column = column_of(k);
      if (column < columns_) body(column, count_at(column), kept_[k], other.kept_[k]);
    }
    for (int k = kKept; column_of(k) < columns_; ++k) {
      const std::int64_t column = column_of(k);
      body(column, count_at(column), load_chunk(column), other.load_chunk(column));
    }
  }

 private:
  __device__ static std::int64_t column_of(int k) {
    return (threadIdx.x + static_cast<std::int64_t>(k) * blockDim.x) * kChunk;
  }
  __device__ int count_at(std::int64_t column) const {
    return static_cast<int>(max(min(static_cast<std::int64_t>(kChunk), columns_ - column), std::int64_t{0}));
  }
  __device__ Values load_chunk(std::int64_t column) const { return load(x_, row_, column, count_at(column)); }

  const Operand& x_;
  std::int64_t row_, columns_;
  Values kept_[kKept];
};

template <int kKept>
__device__ RowScale scale_of(const ChunksOfThread<kKept>& x, const Norm& norm) {
  float sum = 0, squares = 0;
  const auto columns = static_cast<float>(norm.columns);
  if (norm.is_centred()) {
    x.visit([&](std::int64_t, int, const Values& a) {
#pragma unroll
      for (const float v : a.v) sum += v;
    });
    sum = block_sum(sum);
  }
  const float mean = sum / columns;
  x.visit([&](std::int64_t, int count, const Values& a) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i)
      if (i < count) squares += (a.v[i] - mean) * (a.v[i] - mean);
  });
  return {mean, 1.0F / sqrtf(block_sum(squares) / columns + norm.epsilon)};
}

}  // namespace

void CudaKernels::norm(const Matrix& x, const NormWeights& weights, const Matrix& y) {
  const Operand in = operand(x), out = operand(y);
  const Norm norm = norm_of(weights);
  for_rows(context_, x.rows, ceil_div(x.columns, kKeptOfOneRow), [=] __device__(std::int64_t row) {
    const ChunksOfThread<kKeptOfOneRow> chunks(in, row, norm.columns);
    const RowScale scale = scale_of(chunks, norm);
    chunks.visit([&](std::int64_t column, int count, const Values& a) {
      const Values gain = load(norm.gain, 0, column, count);
      Values result = {};
      if (norm.is_centred()) result = load(norm.bias, 0, column, count);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) result.v[i] += (a.v[i] - scale.mean) * scale.inverse * gain.v[i];
      store(out, row, column, result, count);
    });
  });
}

// With n = (x - mean) inverse and g = dy gain: dx = inverse (g - mean(g) - n mean(g n)); RMSNorm has no mean(g).
void CudaKernels::norm_input_grad(const Matrix& dy, const Matrix& x, const NormWeights& weights, const Matrix& residual,
                                  const Matrix& dx) {
  const Operand in = operand(x), gradient = operand(dy), around = operand(residual), out = operand(dx);
  const Norm norm = norm_of(weights);
  for_rows(context_, x.rows, ceil_div(x.columns, kKeptOfTwoRows), [=] __device__(std::int64_t row) {
    const ChunksOfThread<kKeptOfTwoRows> chunks(in, row, norm.columns), gradients(gradient, row, norm.columns);
    const RowScale scale = scale_of(chunks, norm);
    float sum = 0, product = 0;
    gradients.visit_with(chunks, [&](std::int64_t column, int count, const Values& d, const Values& a) {
      const Values gain = load(norm.gain, 0, column, count);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        sum += d.v[i] * gain.v[i];
        product += d.v[i] * gain.v[i] * (a.v[i] - scale.mean);
      }
    });
    const auto columns = static_cast<float>(norm.columns);
    const float mean = norm.is_centred() ? block_sum(sum) / columns : 0.0F;
    const float slope = block_sum(product) * scale.inverse * scale.inverse / columns;
    gradients.visit_with(chunks, [&](std::int64_t column, int count, const Values& d, const Values& a) {
      const Values gain = load(norm.gain, 0, column, count);
      Values result = {};
      if (around.data != nullptr) result = load(around, row, column, count);
#pragma unroll
      for (int i = 0; i < kChunk; ++i)
        result.v[i] += scale.inverse * (d.v[i] * gain.v[i] - mean - (a.v[i] - scale.mean) * slope);
      store(out, row, column, result, count);
    });
  });
}

void CudaKernels::norm_weight_grad(const Matrix& dy, const Matrix& x, const NormWeights& weights, const Vector& dgain,
                                   const Vector& dbias, Into into) {
  const Operand in = operand(x), gradient = operand(dy);
  const Norm norm = norm_of(weights);
  RowScale* const scales = context_.scratch<RowScale>(Scratch::row_values, x.rows);
  for_rows(context_, x.rows, ceil_div(x.columns, kKeptOfOneRow), [=] __device__(std::int64_t row) {
    const RowScale scale = scale_of(ChunksOfThread<kKeptOfOneRow>(in, row, norm.columns), norm);
    if (threadIdx.x == 0) scales[row] = scale;
  });
  column_sums<2>(context_, {x.rows, x.columns}, {operand(dgain), operand(dbias)}, into,
                 [=] __device__(std::int64_t row, std::int64_t column, int count, Values* sums) {
                   const Values a = load(in, row, column, count), d = load(gradient, row, column, count);
                   const RowScale scale = scales[row];
#pragma unroll
                   for (int i = 0; i < kChunk; ++i) {
                     sums[0].v[i] += d.v[i] * (a.v[i] - scale.mean) * scale.inverse;
                     sums[1].v[i] += d.v[i];
                   }
                 });
}

}  // namespace weft::cuda
