// K-FAC: outer products of a layer's inputs and output gradients, their inverses, and the step that follows. Inverses
// are made in double precision by block Gauss-Jordan elimination, in place and without pivoting, which matrices that
// are symmetric and positive definite do not need. The host never waits.
#include "kernels/cuda/cuda_kernels.hpp"
#include "kernels/cuda/launch.cuh"

namespace weft::cuda {
namespace {

constexpr int kBlock = 32;  // columns that are eliminated at once; kBlock x kBlock threads work on a tile

// The matrix that becomes its inverse, and what one round of elimination reads. With the rows and columns of the
// round's block called b, D = A[b, b]: `inverse` is D^-1, `rows` is D^-1 A[b, :] with D^-1 itself in b, `columns` is
// A[:, b].
struct Elimination {
  double *a = nullptr, *inverse = nullptr, *rows = nullptr, *columns = nullptr;
  std::int64_t size = 0;

  static std::int64_t doubles(std::int64_t size) { return size * size + kBlock * kBlock + 2 * kBlock * size; }
  static Elimination in(double* memory, std::int64_t size) {
    double* const behind = memory + size * size;
    return {memory, behind, behind + kBlock * kBlock, behind + kBlock * kBlock + kBlock * size, size};
  }
  __device__ bool is_in(std::int64_t i, std::int64_t begin) const { return i >= begin && i < begin + kBlock; }
};

__global__ void damp_kernel(Operand average, std::int64_t size, double damping, double* a) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < size; i += blockDim.x) sum += static_cast<double>(load_one(average, i, i));
  sum = block_sum(sum);
  const auto added = static_cast<float>(damping * sum / static_cast<double>(size));
  for (std::int64_t i = threadIdx.x; i < size; i += blockDim.x) a[i * size + i] += static_cast<double>(added);
}

// Inverts the block that begins at `begin`. A pivot that is not positive says that the matrix has no such inverse.
__global__ void __launch_bounds__(kBlock* kBlock) diagonal_kernel(Elimination e, std::int64_t begin, int* failed) {
  __shared__ double d[kBlock][kBlock];
  const int i = static_cast<int>(threadIdx.y), j = static_cast<int>(threadIdx.x);
  const bool inside = begin + i < e.size && begin + j < e.size;
  d[i][j] = inside ? e.a[(begin + i) * e.size + begin + j] : (i == j ? 1.0 : 0.0);
  __syncthreads();
  for (int k = 0; k < kBlock; ++k) {
    const double pivot = d[k][k], column = d[i][k], row = d[k][j], own = d[i][j];
    __syncthreads();
    if (i == k && j == k && !(pivot > 0 && isfinite(pivot))) *failed = 1;
    d[i][j] = i == k ? (j == k ? 1 / pivot : row / pivot) : (j == k ? -column / pivot : own - column * row / pivot);
    __syncthreads();
  }
  e.inverse[i * kBlock + j] = d[i][j];
}

// Of kBlock columns: the rows of the block, and the columns as they are before this round.
__global__ void __launch_bounds__(kBlock* kBlock) panels_kernel(Elimination e, std::int64_t begin) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  const int k = static_cast<int>(threadIdx.y);
  if (column >= e.size) return;
  double sum = 0;
  for (int l = 0; l < kBlock && begin + l < e.size; ++l) {
    sum += e.inverse[k * kBlock + l] * e.a[(begin + l) * e.size + column];
  }
  e.rows[k * e.size + column] = e.is_in(column, begin) ? e.inverse[k * kBlock + column - begin] : sum;
  e.columns[column * kBlock + k] = begin + k < e.size ? e.a[column * e.size + begin + k] : 0.0;
}

__global__ void __launch_bounds__(kBlock* kBlock) eliminate_kernel(Elimination e, std::int64_t begin) {
  __shared__ double columns[kBlock][kBlock], rows[kBlock][kBlock];
  const int y = static_cast<int>(threadIdx.y), x = static_cast<int>(threadIdx.x);
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.y) * kBlock + y;
  const std::int64_t j = static_cast<std::int64_t>(blockIdx.x) * kBlock + x;
  columns[y][x] = i < e.size ? e.columns[i * kBlock + x] : 0.0;
  rows[y][x] = j < e.size ? e.rows[y * e.size + j] : 0.0;
  __syncthreads();
  if (i >= e.size || j >= e.size) return;
  double& own = e.a[i * e.size + j];
  if (e.is_in(i, begin)) {
    own = e.rows[(i - begin) * e.size + j];
    return;
  }
  double sum = 0;
#pragma unroll
  for (int k = 0; k < kBlock; ++k) sum += columns[y][k] * rows[k][x];
  own = (e.is_in(j, begin) ? 0.0 : own) - sum;
}

__global__ void report_inverse_kernel(const int* failed, std::uint64_t* finite) {
  *finite = *failed == 0 ? 1 : 0;
}

Matrix as_column(const Vector& x) {
  return Matrix::dense(x.data, x.size, 1);
}

// One vector, or its rows where there are gaps between them.
void add_rows(const Matrix& x, std::vector<Vector>& to) {
  if (x.row_stride == x.columns * size_of(x.data.type)) return to.push_back({x.data, x.rows * x.columns});
  for (std::int64_t r = 0; r < x.rows; ++r) to.push_back(x.row(r));
}

// x = x times the factor that gives `elements` with this sum of squares a root mean square of 1. A layer without a
// gradient does not move; NaN passes, for the update to find it.
void scale_to_unit(Context& context, const Matrix& x, const float* square_sum, std::int64_t elements) {
  const Operand values = operand(x);
  for_chunks(context, {x.rows, x.columns}, [=] __device__(std::int64_t row, std::int64_t column, int count) {
    const double square = static_cast<double>(*square_sum);
    const auto factor = static_cast<float>(square <= 0 ? 0.0 : sqrt(static_cast<double>(elements) / square));
    Values v = load(values, row, column, count);
#pragma unroll
    for (float& element : v.v) element *= factor;
    store(values, row, column, v, count);
  });
}

}  // namespace

void CudaKernels::curvature(const Matrix& x, double scale, const Matrix& sum, Into into) {
  products_.multiply({.a = {x, Turned::yes}, .b = {x}, .out = sum, .into = into, .scale = scale});
}

void CudaKernels::invert_curvature(const Matrix& curvature, double keep, double damping, const Matrix& average,
                                   const Matrix& inverse, bool& finite) {
  const std::int64_t size = average.rows;
  const Elimination e =
      Elimination::in(context_.scratch<double>(Scratch::elimination, Elimination::doubles(size)), size);
  int* const failed = context_.scratch<int>(Scratch::flag, 1);
  const cudaStream_t stream = context_.current_stream();
  check(cudaMemsetAsync(failed, 0, sizeof(int), stream), "clearing memory");
  const Operand in = operand(curvature), mean = operand(average), out = operand(inverse);
  const auto kept = static_cast<float>(keep), taken = static_cast<float>(1 - keep);
  const bool begins = keep == 0;
  for_chunks(context_, {size, size}, [=] __device__(std::int64_t row, std::int64_t column, int count) {
    const Values found = load(in, row, column, count);
    Values averaged = begins ? found : load(mean, row, column, count);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (!begins) averaged.v[i] = kept * averaged.v[i] + taken * found.v[i];
      if (i < count) e.a[row * size + column + i] = static_cast<double>(averaged.v[i]);
    }
    store(mean, row, column, averaged, count);
  });
  damp_kernel<<<1, 1024, 0, stream>>>(mean, size, damping, e.a);
  const auto blocks = static_cast<unsigned>(ceil_div(size, kBlock));
  const dim3 tile(kBlock, kBlock);
  for (std::int64_t begin = 0; begin < size; begin += kBlock) {
    diagonal_kernel<<<1, tile, 0, stream>>>(e, begin, failed);
    panels_kernel<<<blocks, tile, 0, stream>>>(e, begin);
    eliminate_kernel<<<dim3(blocks, blocks), tile, 0, stream>>>(e, begin);
  }
  for_chunks(context_, {size, size}, [=] __device__(std::int64_t row, std::int64_t column, int count) {
    Values values = {};
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (i < count) values.v[i] = static_cast<float>(e.a[row * size + column + i]);
    }
    store(out, row, column, values, count);
  });
  report_inverse_kernel<<<1, 1, 0, stream>>>(failed, context_.results().ask_for(finite));
  check(cudaGetLastError(), "inverting curvature");
}

void CudaKernels::precondition(const LinearGradient& gradient, const Matrix& inputs, const Matrix& outputs,
                               const LinearGradient& direction) {
  const Matrix& weight = gradient.weight;
  Matrix half = weight;
  if (!outputs.empty()) {
    half = inputs.empty() ? direction.weight
                          : Matrix::dense(context_.scratch<float>(Scratch::half_product, weight.rows * weight.columns),
                                          weight.rows, weight.columns);
    products_.multiply({.a = {outputs}, .b = {weight}, .out = half});
  }
  if (!inputs.empty()) {
    products_.multiply({.a = {half}, .b = {inputs}, .out = direction.weight});
  } else if (outputs.empty()) {
    copy(weight, direction.weight);
  }
  std::vector<Vector> parts;
  add_rows(direction.weight, parts);
  std::int64_t elements = weight.rows * weight.columns;
  if (!gradient.bias.empty()) {
    const Matrix bias = as_column(gradient.bias), of_bias = as_column(direction.bias);
    if (outputs.empty()) {
      copy(bias, of_bias);
    } else {
      products_.multiply({.a = {outputs}, .b = {bias}, .out = of_bias});
    }
    parts.push_back(direction.bias);
    elements += gradient.bias.size;
  }
  float* const sum = context_.scratch<float>(Scratch::row_values, 1);
  square_sum(parts, {ElementPointer(sum), 1});
  scale_to_unit(context_, direction.weight, sum, elements);
  if (!gradient.bias.empty())
    scale_to_unit(context_, Matrix::dense(direction.bias.data, 1, direction.bias.size), sum, elements);
}

}  // namespace weft::cuda
