// PowerSGD's factors (compress/low_rank.hpp). Factors have few columns, so a matrix of gradients is read once for every
// four of them, and gradient and error are added up on the way. All sums are taken in a fixed order: ranks that have
// the same factors make the same numbers of them.
#include "base/mix.hpp"
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/cuda_kernels.hpp"
#include "kernels/cuda/encoding.cuh"

namespace weft::cuda {
namespace {

constexpr int kColumnsAtOnce = 4;  // of a factor
constexpr int kRowsOfBlock = kThreads / 32;
constexpr int kOrthonormalThreads = 1024;

__device__ Values load_wanted(const Operand& gradient, const Operand& errors, std::int64_t row, std::int64_t column,
                              int count) {
  Values wanted = load(gradient, row, column, count);
  const Values error = load(errors, row, column, count);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) wanted.v[i] += error.v[i];
  return wanted;
}

// A warp makes the elements of a row of the matrix. `first` and `count` say which columns of the factor.
__global__ void __launch_bounds__(kThreads)
    left_factor_kernel(Operand gradient, Operand errors, Extent extent, Operand right, Operand left, std::int64_t first,
                       int count) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kRowsOfBlock + threadIdx.x / 32;
  if (row >= extent.rows) return;
  const int lane = static_cast<int>(threadIdx.x % 32);
  float sums[kColumnsAtOnce] = {};
  for (std::int64_t column = lane * kChunk; column < extent.columns; column += 32 * kChunk) {
    const int elements = static_cast<int>(min(static_cast<std::int64_t>(kChunk), extent.columns - column));
    const Values wanted = load_wanted(gradient, errors, row, column, elements);
#pragma unroll
    for (int k = 0; k < kColumnsAtOnce; ++k) {
      if (k >= count) continue;
      const Values basis = load(right, first + k, column, elements);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) sums[k] += wanted.v[i] * basis.v[i];
    }
  }
#pragma unroll
  for (int k = 0; k < kColumnsAtOnce; ++k) {
    for (int offset = 16; offset > 0; offset /= 2) sums[k] += __shfl_xor_sync(0xffffffffU, sums[k], offset);
    if (lane == 0 && k < count) store_one(left, first + k, row, sums[k]);
  }
}

// By all threads of the block; each looks at the elements that it alone writes.
__device__ double block_dot(const float* a, const float* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return block_sum(sum);
}

// As weft::make_orthonormal(), by one block of threads.
__global__ void __launch_bounds__(kOrthonormalThreads)
    orthonormal_kernel(float* factor, std::int64_t rows, std::int64_t rank, HostValue<std::uint64_t> given_seed) {
  constexpr double kLeastShare = 1e-5;  // what rounding leaves of a column that depends on those before it
  constexpr double kUnit = 1.0 / (1 << 23);
  const std::uint64_t seed = value_of(given_seed);
  for (std::int64_t k = 0; k < rank; ++k) {
    float* const column = factor + k * rows;
    for (std::uint64_t draws = 0;; ++draws) {
      const double before = sqrt(block_dot(column, column, rows));
      for (int pass = 0; pass < 2; ++pass) {
        for (std::int64_t l = 0; l < k; ++l) {
          const float* const earlier = factor + l * rows;
          const auto share = static_cast<float>(block_dot(earlier, column, rows));
          for (std::int64_t i = threadIdx.x; i < rows; i += blockDim.x) column[i] -= share * earlier[i];
        }
      }
      const double left = sqrt(block_dot(column, column, rows));
      // The same in all threads. Gradients that are not finite stay so, and the run notices.
      if (!isfinite(left) || (left > kLeastShare * before && left > 0)) {
        const auto scale = static_cast<float>(1 / left);
        for (std::int64_t i = threadIdx.x; i < rows; i += blockDim.x) column[i] *= scale;
        break;
      }
      const std::uint64_t drawn = mix_bits(seed ^ mix_bits(static_cast<std::uint64_t>(k) + (draws << 32)));
      for (std::int64_t i = threadIdx.x; i < rows; i += blockDim.x) {
        const std::uint64_t bits = mix_bits(drawn + static_cast<std::uint64_t>(i)) >> 40;
        column[i] = static_cast<float>(static_cast<double>(bits) * kUnit - 1.0);
      }
    }
  }
}

int columns_from(std::int64_t first, std::int64_t rank) {
  return static_cast<int>(std::min<std::int64_t>(kColumnsAtOnce, rank - first));
}

}  // namespace

void CudaKernels::make_orthonormal(const Matrix& factor, std::uint64_t seed) {
  const HostValue<std::uint64_t> given = context_.host_value(seed);
  if (context_.only_takes_data()) return;
  orthonormal_kernel<<<1, kOrthonormalThreads, 0, context_.current_stream()>>>(
      floats({factor.data, factor.rows * factor.columns}), factor.columns, factor.rows, given);
  check(cudaGetLastError(), "making columns orthonormal");
}

void CudaKernels::left_factor(const Matrix& gradient, const Matrix& errors, const Matrix& right, const Matrix& left) {
  const auto blocks = static_cast<unsigned>(ceil_div(gradient.rows, kRowsOfBlock));
  for (std::int64_t first = 0; first < right.rows; first += kColumnsAtOnce) {
    left_factor_kernel<<<blocks, kThreads, 0, context_.current_stream()>>>(
        operand(gradient), operand(errors), {gradient.rows, gradient.columns}, operand(right), operand(left), first,
        columns_from(first, right.rows));
    check(cudaGetLastError(), "making left factors");
  }
}

void CudaKernels::right_factor(const Matrix& gradient, const Matrix& errors, const Matrix& left, const Matrix& right) {
  const Operand values = operand(gradient), held = operand(errors), factor = operand(left);
  for (std::int64_t first = 0; first < left.rows; first += kColumnsAtOnce) {
    const int columns = columns_from(first, left.rows);
    SumTargets<kColumnsAtOnce> targets;
    for (int k = 0; k < columns; ++k) targets.vectors[k] = operand(right.row(first + k));
    column_sums<kColumnsAtOnce>(context_, {gradient.rows, gradient.columns}, targets, Into::overwrite,
                                [=] __device__(std::int64_t row, std::int64_t column, int count, Values* sums) {
                                  const Values wanted = load_wanted(values, held, row, column, count);
#pragma unroll
                                  for (int k = 0; k < kColumnsAtOnce; ++k) {
                                    const float of_row = k < columns ? load_one(factor, first + k, row) : 0.0F;
#pragma unroll
                                    for (int i = 0; i < kChunk; ++i) sums[k].v[i] += of_row * wanted.v[i];
                                  }
                                });
  }
}

void CudaKernels::factor_product(const Matrix& left, const Matrix& right, std::int64_t ranks, const Matrix& gradient,
                                 const Matrix& errors, EncodedSquares& squares) {
  const SquareSums sums = square_sums(context_, gradient.rows, &squares);
  const Operand of_rows = operand(left), of_columns = operand(right), values = operand(gradient),
                held = operand(errors);
  const std::int64_t columns = gradient.columns, rank = left.rows;
  const auto share = static_cast<float>(1.0 / static_cast<double>(ranks));
  for_rows(context_, gradient.rows, columns, [=] __device__(std::int64_t row) {
    float of_gradient = 0, of_errors = 0;
    for (std::int64_t column = threadIdx.x * kChunk; column < columns; column += blockDim.x * kChunk) {
      const int count = static_cast<int>(min(static_cast<std::int64_t>(kChunk), columns - column));
      const Values value = load(values, row, column, count);
      Values error = load(held, row, column, count), sum = {};
      for (std::int64_t k = 0; k < rank; ++k) {
        const float factor = load_one(of_rows, k, row);
        const Values of_column = load(of_columns, k, column, count);
#pragma unroll
        for (int i = 0; i < kChunk; ++i) sum.v[i] += factor * of_column.v[i];
      }
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        error.v[i] = (value.v[i] + error.v[i]) - share * sum.v[i];
        of_gradient += value.v[i] * value.v[i];
        of_errors += error.v[i] * error.v[i];
      }
      store(values, row, column, sum, count);
      store(held, row, column, error, count);
    }
    sums.add(of_gradient, of_errors);
  });
  total_squares(context_, sums, gradient.rows, &squares);
}

}  // namespace weft::cuda
