// Sums over rows, in two stages and always in the same order; and products of whatever cuBLASLt refuses.
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/products.hpp"

namespace weft::cuda {
namespace {

constexpr int kTile = 16;

__global__ void product_kernel(Operand a, Operand b, Operand out, Operand bias, std::int64_t rows, std::int64_t columns,
                               std::int64_t inner, bool a_turned, bool b_turned, float scale, bool adds, Batch batch) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * kTile + threadIdx.y;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kTile + threadIdx.x, number = blockIdx.z;
  if (row >= rows || column >= columns) return;
  float sum = 0;
  for (std::int64_t k = 0; k < inner; ++k)
    sum += (a_turned ? load_one(a, k, row + number * batch.a) : load_one(a, row, k + number * batch.a)) *
           (b_turned ? load_one(b, column, k + number * batch.b) : load_one(b, k, column + number * batch.b));
  sum *= scale;
  if (bias.data != nullptr) sum += load_one(bias, 0, column);
  if (adds) sum += load_one(out, row, column + number * batch.out);
  store_one(out, row, column + number * batch.out, sum);
}

}  // namespace

void multiply_plainly(Context& context, const Product& product) {
  const dim3 blocks(static_cast<unsigned>(ceil_div(product.out.columns, kTile)),
                    static_cast<unsigned>(ceil_div(product.out.rows, kTile)),
                    static_cast<unsigned>(product.batch.count));
  product_kernel<<<blocks, dim3(kTile, kTile), 0, context.current_stream()>>>(
      operand(product.a.matrix), operand(product.b.matrix), operand(product.out), operand(product.bias),
      product.out.rows, product.out.columns, product.a.columns(), product.a.turned == Turned::yes,
      product.b.turned == Turned::yes, static_cast<float>(product.scale), product.into == Into::add, product.batch);
  check(cudaGetLastError(), "multiplying matrices");
}

void add_to_rows(Context& context, const Vector& x, const Matrix& rows) {
  const Operand added = operand(x), out = operand(rows);
  for_chunks(context, {rows.rows, rows.columns}, [=] __device__(std::int64_t row, std::int64_t column, int count) {
    Values a = load(out, row, column, count);
    const Values b = load(added, 0, column, count);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) a.v[i] += b.v[i];
    store(out, row, column, a, count);
  });
}

void sum_rows(Context& context, const Matrix& x, const Vector& sums, Into into) {
  const Operand in = operand(x);
  column_sums<1>(context, {x.rows, x.columns}, {operand(sums)}, into,
                 [=] __device__(std::int64_t row, std::int64_t column, int count, Values* sum) {
                   const Values a = load(in, row, column, count);
#pragma unroll
                   for (int i = 0; i < kChunk; ++i) sum[0].v[i] += a.v[i];
                 });
}

}  // namespace weft::cuda
