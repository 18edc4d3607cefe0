// Rows on their way to the experts' slots and back. Slots beyond the buffer, which only broken data names, are passed
// over.
#include "kernels/cuda/cuda_kernels.hpp"
#include "kernels/cuda/launch.cuh"

namespace weft::cuda {
namespace {

// By slot: the choice that has it, as token * top_k + choice, or -1.
const int* owners_of(Context& context, const Matrix& routing, std::int64_t slots) {
  int* const owners = context.scratch<int>(Scratch::order, slots + 1);
  check(cudaMemsetAsync(owners, 0xff, static_cast<std::size_t>(slots) * sizeof(int), context.current_stream()),
        "clearing memory");
  const Operand in = operand(routing);
  const std::int64_t k = routing.columns / 2;
  for_chunks(context, {routing.rows, 1}, [=] __device__(std::int64_t row, std::int64_t, int) {
    for (std::int64_t j = 0; j < k; ++j) {
      const float slot = load_one(in, row, j);
      if (slot >= 0 && slot < static_cast<float>(slots)) owners[static_cast<int>(slot)] = static_cast<int>(row * k + j);
    }
  });
  return owners;
}

// Every slot that a choice has gets the token's row of x, times the weight of the choice where that is wanted.
void fill_slots(Context& context, const Matrix& x, const Matrix& routing, const Matrix& slots, EmptySlots empty,
                bool weighted) {
  const int* const owners = owners_of(context, routing, slots.rows);
  const Operand in = operand(x), weights = operand(routing), out = operand(slots);
  const std::int64_t k = routing.columns / 2;
  const bool clears = empty == EmptySlots::clear;
  for_chunks(context, {slots.rows, slots.columns}, [=] __device__(std::int64_t slot, std::int64_t column, int count) {
    const int owner = owners[slot];
    if (owner < 0 && !clears) return;
    Values a = {};
    if (owner >= 0) {
      a = load(in, owner / k, column, count);
      const float weight = weighted ? load_one(weights, owner / k, k + owner % k) : 1.0F;
#pragma unroll
      for (float& v : a.v) v *= weight;
    }
    store(out, slot, column, a, count);
  });
}

// out = the sum of a token's rows, each times the weight of its choice where that is wanted.
void sum_slots(Context& context, const Matrix& slots, const Matrix& routing, const Matrix& out, bool weighted) {
  const Operand in = operand(slots), choices = operand(routing), sums = operand(out);
  const std::int64_t k = routing.columns / 2;
  const auto limit = static_cast<float>(slots.rows);
  for_chunks(context, {out.rows, out.columns}, [=] __device__(std::int64_t row, std::int64_t column, int count) {
    Values sum = {};
    for (std::int64_t j = 0; j < k; ++j) {
      const float slot = load_one(choices, row, j);
      if (!(slot >= 0 && slot < limit)) continue;
      const Values a = load(in, static_cast<std::int64_t>(slot), column, count);
      const float weight = weighted ? load_one(choices, row, k + j) : 1.0F;
#pragma unroll
      for (int i = 0; i < kChunk; ++i) sum.v[i] += weight * a.v[i];
    }
    store(sums, row, column, sum, count);
  });
}

}  // namespace

void CudaKernels::dispatch_rows(const Matrix& x, const Matrix& routing, const Matrix& slots, EmptySlots empty) {
  fill_slots(context_, x, routing, slots, empty, false);
}

void CudaKernels::dispatch_rows_input_grad(const Matrix& d_slots, const Matrix& routing, const Matrix& dx) {
  sum_slots(context_, d_slots, routing, dx, false);
}

void CudaKernels::combine_rows(const Matrix& slots, const Matrix& routing, const Matrix& y) {
  sum_slots(context_, slots, routing, y, true);
}

void CudaKernels::combine_rows_input_grad(const Matrix& dy, const Matrix& slots, const Matrix& routing,
                                          const Matrix& d_slots, const Matrix& d_weights, EmptySlots empty) {
  const Operand gradient = operand(dy), in = operand(slots), choices = operand(routing), out = operand(d_weights);
  const std::int64_t k = routing.columns / 2, columns = dy.columns;
  const auto limit = static_cast<float>(slots.rows);
  for_rows(context_, dy.rows * k, columns, [=] __device__(std::int64_t index) {
    const std::int64_t row = index / k, j = index % k;
    const float slot = load_one(choices, row, j);
    float product = 0;
    if (slot >= 0 && slot < limit)
      for (std::int64_t column = threadIdx.x * kChunk; column < columns; column += blockDim.x * kChunk) {
        const int count = static_cast<int>(min(static_cast<std::int64_t>(kChunk), columns - column));
        const Values d = load(gradient, row, column, count),
                     a = load(in, static_cast<std::int64_t>(slot), column, count);
#pragma unroll
        for (int i = 0; i < kChunk; ++i) product += d.v[i] * a.v[i];
      }
    product = block_sum(product);
    if (threadIdx.x == 0) store_one(out, row, j, product);
  });
  fill_slots(context_, dy, routing, d_slots, empty, true);
}

}  // namespace weft::cuda
